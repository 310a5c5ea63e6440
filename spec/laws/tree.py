"""TREE: the shape of the tree.

The tree is a compressed prefix tree: an edge carries whole pages, and a node is the end of its
edge. A node may be cut in two, or joined with its only child, at any time. Laws must not depend on
where nodes are cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping

from attrs import frozen

from kvcanon.spec.difference import REBUILT_AND_ADJACENT
from kvcanon.spec.law import Kind, LawClass, Premise, law, node_law, nodes_premise
from kvcanon.spec.laws import premises, situations
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Refused,
    TakeEvents,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    Component,
    Medium,
    Namespace,
    NodeId,
    Page,
    WritePolicy,
)
from kvcanon.spec.views import COLUMN, PageRow, Step


@node_law("TREE-1", LawClass.SOUND, premise=premises.ANY_NODE, over=REBUILT_AND_ADJACENT)
def one_root(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The tree has one root, without pages and data, and every node descends from it.

    Why: a node that no walk from the root reaches is memory that nobody can use or free.

    Seen broken: not seen
    """
    roots = [node.node_id for node in _with_root(state, nodes) if node.parent_id is None]
    if roots != [state.root_id]:
        yield f"nodes without a parent are {roots}, the root is {state.root_id}"
        return
    if state.root.pages or any(data.anywhere for data in state.root.data.values()):
        yield "the root has pages or data of its own"
    for node in nodes:
        if not state.is_reachable(node.node_id):
            yield f"node {node.node_id} is in the tree but no path from the root leads to it"


@node_law("TREE-2", LawClass.SOUND, premise=premises.NODE_BELOW_NODE, over=REBUILT_AND_ADJACENT)
def links_agree(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Every node is listed once among its parent's children, and names its parent correctly.

    Why: a walk down the tree finds nodes that a walk up cannot lock or free, or the other way
    round.

    Seen broken: https://github.com/sgl-project/sglang/issues/36696
    """
    for node in _with_root(state, nodes):
        parent = state.nodes.get(node.parent_id) if node.parent_id is not None else None
        if node.parent_id is not None and parent is None:
            yield f"{state.describe(node)} names parent {node.parent_id}, which is not in the tree"
        elif parent is not None and node.node_id not in parent.child_ids:
            yield f"{state.describe(node)} is not among the children of its parent {node.parent_id}"
        for child_id, times in _counted(node.child_ids).items():
            child = state.nodes.get(child_id)
            if child is None or child.parent_id != node.node_id or times > 1:
                yield (
                    f"{state.describe(node)} lists child {child_id} {times} times, whose parent is "
                    f"{child.parent_id if child else 'not in the tree'}"
                )


@node_law("TREE-3", LawClass.SOUND, premise=premises.NODE_BELOW_NODE, over=REBUILT_AND_ADJACENT)
def whole_pages(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """An edge is one or more whole pages, all in the namespace of the parent.

    Only the root has children in different namespaces.

    Why: a node without pages cannot be told from its parent. A page of another size shifts all
    slots behind it, and the model reads half of another page.

    Seen broken: https://github.com/sgl-project/sglang/issues/10637,
    https://github.com/sgl-project/sglang/issues/34823
    """
    size = state.config.page_size
    for node in nodes:
        if not node.pages:
            yield f"{state.describe(node)} has no page; an edge has at least one"
        for index, page in enumerate(node.pages):
            if len(page) != size:
                yield (
                    f"{state.describe(node)} has {len(page)} units in page {index} of its edge; "
                    f"a page has {size}"
                )
        parent = state.nodes.get(node.parent_id) if node.parent_id is not None else None
        below_root = parent is None or parent.node_id == state.root_id
        if parent is not None and not below_root and node.namespace != parent.namespace:
            yield (
                f"{state.describe(node)} is in {node.namespace}, but its parent "
                f"{state.describe(parent)} is in {parent.namespace}"
            )


@node_law(
    "TREE-4",
    LawClass.SOUND,
    premise=nodes_premise(
        "two children of one parent",
        lambda _, node: len(node.child_ids) > 1,
    ),
    over=REBUILT_AND_ADJACENT,
)
def children_differ(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Children of one parent in one namespace differ in their first page.

    Why: a walk down the tree follows only one of two such children. What is below the other counts
    as cached, and no prompt can hit it.

    Seen broken: https://github.com/sgl-project/sglang/issues/36696
    """
    for parent in _with_root(state, nodes):
        seen: dict[tuple[Namespace, Page], NodeId] = {}
        for child in state.children(parent):
            first = seen.setdefault((child.namespace, child.pages[0]), child.node_id)
            if first != child.node_id:
                yield (
                    f"{state.describe(child)} and {state.describe(state.nodes[first])} are children"
                    f" of {state.describe(parent)} and begin with the same page {child.pages[0]}"
                )


@law(
    "TREE-5",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a call on a key while there are nodes off its path",
        situations.others_before,
    ),
)
def cuts_are_neutral(step: Step) -> Iterator[str]:
    """An operation on a key leaves all pages off the key's path as they are.

    This holds for a match, a lock, an insert, a host insert and a load-back, whichever nodes they
    cut or join. A page off the path keeps its slots, its lock refs, its hits and the copies that it
    waits for (MATCH-5 covers matches that count hits; REC-7 covers age). Only pages that are
    neither locked nor in flight may be evicted to free slots: from the host for the backups of an
    insert and for a host insert; from the device for a load-back, which under write_back copies its
    victims to the host and may evict there too.

    Why: otherwise a prompt loses its data or its lock because another prompt that shares a few
    pages with it was used.

    Seen broken: https://github.com/sgl-project/sglang/issues/38480,
    https://github.com/sgl-project/sglang/issues/22935
    """
    operation = step.operation
    if not isinstance(operation, (Match, Lock, Insert, InsertHost, LoadBack)):
        return
    if isinstance(step.outcome, Refused) or step.before is step.after:
        return
    yield from _changes_off_path(step, set(step.numbers_of(operation.key)))


@law(
    "TREE-6",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "bookkeeping while there is a tree",
        lambda step: (
            isinstance(step.operation, Allocate | Free | TakeEvents)
            and situations.nodes(step.before) > 0
        ),
    ),
)
def bookkeeping_leaves_the_tree(step: Step) -> Iterator[str]:
    """Allocating slots, freeing slots and taking events change nothing in the tree.

    Why: engines call these all the time and do not expect them to evict or refresh anything.

    Seen broken: not seen
    """
    if not isinstance(step.operation, Allocate | Free | TakeEvents):
        return
    if not step.difference.touched:
        return
    name = type(step.operation).__name__
    for node_id in sorted(step.before.nodes.keys() | step.after.nodes.keys()):
        if step.before.nodes.get(node_id) != step.after.nodes.get(node_id):
            yield f"{name} changed node {node_id}"


def _counted(ids: Collection[NodeId]) -> Mapping[NodeId, int]:
    """How often each id is listed: mostly once, which is found sooner than it is counted."""
    once = dict.fromkeys(ids, 1)
    return once if len(once) == len(ids) else Counter(ids)


def _with_root(state: Snapshot, nodes: Collection[NodeState]) -> Collection[NodeState]:
    """The root, if it is there, and then some nodes."""
    root = state.nodes.get(state.root_id)
    return nodes if root is None else (root, *nodes)


@frozen
class _EvictionRights:
    """Where an operation may evict pages off the path of its key."""

    media: frozenset[Medium] = frozenset()
    write_back: bool = False
    loose_copies: bool = False
    """Whether locks do not hold host copies, by profile."""

    @classmethod
    def of(cls, step: Step) -> _EvictionRights:
        """Inserts and host inserts need host slots, a load-back needs device slots."""
        config = step.before.config
        write_back = config.write_policy is WritePolicy.WRITE_BACK
        loose = not step.before.profile.locks_hold_host_copies
        if isinstance(step.operation, LoadBack):
            return cls(frozenset((GPU, CPU) if write_back else (GPU,)), write_back, loose)
        backs_up = isinstance(step.operation, Insert) and config.backup_hits is not None
        if backs_up or isinstance(step.operation, InsertHost):
            return cls(frozenset((CPU,)), write_back, loose)
        return cls()

    def lets_vanish(self, page: PageRow) -> bool:
        """Whether a page may leave the tree: nothing holds it, and it is only on these media."""
        return (
            not any(page.lock_refs)
            and page.loading == page.backing == (None, None, None)
            and (GPU in self.media or page.device[0] is None)
            and (CPU in self.media or page.host[0] is None)
        )

    def lets_change(self, old: PageRow, new: PageRow, component: Component, medium: Medium) -> bool:
        """Whether a page that stays in the tree may lose a slot, or gain one on the host."""
        column = COLUMN[component]
        if medium not in self.media:
            return False
        if new.slot(component, medium) is not None:
            # Under write_back a victim is copied before it leaves the device, into a new slot if
            # its older copy made way for others. A node is copied as a whole even if only a part
            # of it leaves, so its full data may get another slot, too.
            demotes = self.write_back and GPU in self.media
            duplicate = old.slot(component, GPU) is not None and not any(old.lock_refs)
            return demotes and medium is CPU and (old.slot(component, CPU) is None or duplicate)
        if component is FULL and medium is CPU and not self.write_back:
            return False  # A host copy stays while the data is on the device.
        rests = component is FULL and old.device[column] is None
        loose = self.loose_copies and medium is CPU and not rests
        return (not old.lock_refs[column] or loose) and (
            old.loading[column] is old.backing[column] is None
        )


def _changes_off_path(step: Step, on_path: set[int]) -> Iterator[str]:
    """Changes of pages off the path other than evictions, each once a node."""
    before, after = step.changed
    if on_path.issuperset(before) and on_path.issuperset(after):
        return
    rights, size = _EvictionRights.of(step), step.before.config.page_size
    counts = isinstance(step.operation, Match) and step.before.profile.hits_counted_at_match
    kept = _KEPT[:-1] if counts else _KEPT
    said: set[tuple[NodeId, str]] = set()
    for number, row in {**after, **before}.items():
        if number in on_path:
            continue
        old, new = before.get(number), after.get(number)
        if old is not None and new is not None and old[2:8] == new[2:8]:
            continue
        for field, change in _changes(old, new, rights, kept):
            if (row.node_id, field) not in said:
                said.add((row.node_id, field))
                tokens = f"tokens {row.depth * size}..{(row.depth + 1) * size}"
                yield (
                    f"{type(step.operation).__name__}: page {row.depth} ({tokens}) of node "
                    f"{row.node_id} is not on the key's path, but {change}"
                    f"{_elsewhere(step, row, field)}"
                )


def _elsewhere(step: Step, row: PageRow, field: str) -> str:
    """A clause for a new page in another namespace than the key: why it is not on its path."""
    key, node = getattr(step.operation, "key", None), step.after.nodes.get(row.node_id)
    if field != "page" or key is None or node is None or node.namespace == key.namespace:
        return ""
    return f" in {node.namespace}; the key is in {key.namespace}"


def _changes(
    old: PageRow | None, new: PageRow | None, rights: _EvictionRights, kept: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """The changes of a page that are not allowed: the field, and a clause for the message."""
    if old is None or new is None:
        if old is None or not rights.lets_vanish(old):
            yield "page", "appeared" if old is None else "is gone"
        return
    for field in kept:
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            yield field, f"its {field} was {was} and is {now}"
    for component in Component:
        for medium in (GPU, CPU):
            was, now = old.slot(component, medium), new.slot(component, medium)
            if was != now and not rights.lets_change(old, new, component, medium):
                yield (
                    f"{component} on {medium}",
                    f"its {component} slot on {medium} was {was} and is {now}",
                )


_KEPT = ("loading", "backing", "lock_refs", "hit_count")
