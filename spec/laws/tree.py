"""TREE: the shape of the tree.

A compressed prefix tree: an edge carries whole pages, and a node is the end of its edge.

What readers get wrong: where nodes are cut means nothing. A cut, and the joining of a node with its
only child, may happen at any time and must be invisible in everything but the nodes themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator

from attrs import frozen

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, law, node_law
from kvcanon.spec.laws import premises
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


@node_law("TREE-1", premises.ANY_NODE, over=Difference.rebuilt_and_adjacent)
def one_root(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """There is one root, without pages and data, and every node hangs on it.

    Why: a node that no walk reaches is memory that nobody can use or free.

    Seen broken: not seen
    """
    roots = [node.node_id for node in _with_root(state, nodes) if node.parent_id is None]
    if roots != [state.root_id]:
        yield f"nodes without a parent are {roots}, the root is {state.root_id}"
        return
    if state.root.pages or any(data.anywhere for data in state.root.data.values()):
        yield "the root has pages or data of its own"
    for node in nodes:
        if node.node_id not in state.starts:
            yield f"node {node.node_id} is in the tree but no path from the root leads to it"


@node_law("TREE-2", premises.NODE_BELOW_NODE, over=Difference.rebuilt_and_adjacent)
def links_agree(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """A node is a child of its parent, once, and the parent of each of its children.

    Why: a walk down finds what a walk up cannot lock or free, or the other way round.

    Seen broken: https://github.com/sgl-project/sglang/issues/36696
    """
    for node in _with_root(state, nodes):
        parent = state.nodes.get(node.parent_id) if node.parent_id is not None else None
        if node.parent_id is not None and parent is None:
            yield f"{state.describe(node)} names parent {node.parent_id}, which is not in the tree"
        elif parent is not None and node.node_id not in parent.child_ids:
            yield f"{state.describe(node)} is not among the children of its parent {node.parent_id}"
        for child_id, times in Counter(node.child_ids).items():
            child = state.nodes.get(child_id)
            if child is None or child.parent_id != node.node_id or times > 1:
                yield (
                    f"{state.describe(node)} lists child {child_id} {times} times, whose parent is "
                    f"{child.parent_id if child else 'not in the tree'}"
                )


@node_law("TREE-3", premises.NODE_BELOW_NODE, over=Difference.rebuilt_and_adjacent)
def whole_pages(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """An edge is one or more whole pages, all in the namespace of the parent.

    Only the children of the root may be of any namespace: there namespaces part.

    Why: a node without pages can be neither found nor told from its parent; a page of another size
    shifts every slot behind it by a part of a page, and the model reads half of another page.

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


@node_law("TREE-4", premises.SIBLINGS, over=Difference.rebuilt_and_adjacent)
def children_differ(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Children of one parent in one namespace differ in their first page.

    Why: a walk down follows one of the two; what is below the other is memory that no prompt finds,
    and counts as cached all the same.

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


@law("TREE-5", Kind.STEP, premises.CALL_BESIDE_OTHERS)
def cuts_are_neutral(step: Step) -> Iterator[str]:
    """Whatever nodes are cut or joined for a key, the pages off its path keep all that they have.

    Asked of a match, a lock, an insert, a host insert and a load-back. Off the path, a page keeps
    its slots, the marks of copies in flight, lock refs and hits (of a match that counts hits, says
    MATCH-5); what it keeps of its age is the business of REC-7. Only what is evicted to make room
    may go, and only where it is neither locked nor in flight: from the host for the backups of an
    insert and for a host insert, from the device for a load-back, which under write_back copies
    what it evicts to the host and makes room there too.

    Why: a prompt would lose its data or its lock because another prompt, which shares a few pages
    with it, came by.

    Seen broken: https://github.com/sgl-project/sglang/issues/38480,
    https://github.com/sgl-project/sglang/issues/22935
    """
    operation = step.operation
    if not isinstance(operation, (Match, Lock, Insert, InsertHost, LoadBack)):
        return
    if isinstance(step.outcome, Refused) or step.before is step.after:
        return
    yield from _changes_off_path(step, set(step.numbers.of_key(operation.key)))


@law("TREE-6", Kind.STEP, premises.BOOKKEEPING)
def bookkeeping_leaves_the_tree(step: Step) -> Iterator[str]:
    """Allocating, freeing and taking events change nothing in the tree.

    Why: they are called all the time, by code that does not expect to evict or refresh anything.

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


def _with_root(state: Snapshot, nodes: Collection[NodeState]) -> Collection[NodeState]:
    """Some nodes after the root, which has children too, if it is there."""
    root = state.nodes.get(state.root_id)
    return nodes if root is None else (root, *nodes)


@frozen
class _Room:
    """What an operation may evict on its way, off the path of its key."""

    media: frozenset[Medium] = frozenset()
    write_back: bool = False
    loose_copies: bool = False
    """Whether locks do not hold copies on the host."""

    @classmethod
    def of(cls, step: Step) -> _Room:
        """An insert and a host insert need room on the host, a load-back on the device."""
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
        """Whether a page may leave the tree: nobody holds it, and room is made where it is."""
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
            # Under write_back a victim is copied before it leaves the device: into a new slot, also
            # where the room for others was made from an older copy of it. A node of which only a
            # part leaves is copied as a whole, so that its full data may get another slot, too.
            demotes = self.write_back and GPU in self.media
            duplicate = old.slot(component, GPU) is not None and not any(old.lock_refs)
            return demotes and medium is CPU and (old.slot(component, CPU) is None or duplicate)
        if component is FULL and medium is CPU and not self.write_back:
            return False  # What has a host copy keeps it while it is on the device.
        rests = component is FULL and old.device[column] is None
        loose = self.loose_copies and medium is CPU and not rests
        return (not old.lock_refs[column] or loose) and (
            old.loading[column] is old.backing[column] is None
        )


def _changes_off_path(step: Step, on_path: set[int]) -> Iterator[str]:
    """What happened to pages off the path and is not an eviction for room; each once a node."""
    before, after = step.changed
    room, size = _Room.of(step), step.before.config.page_size
    counts = isinstance(step.operation, Match) and step.before.profile.hits_counted_at_match
    kept = _KEPT[:-1] if counts else _KEPT
    said: set[tuple[NodeId, str]] = set()
    for number, row in {**after, **before}.items():
        if number in on_path:
            continue
        for field, change in _changes(before.get(number), after.get(number), room, kept):
            if (row.node_id, field) not in said:
                said.add((row.node_id, field))
                tokens = f"tokens {row.depth * size}..{(row.depth + 1) * size}"
                yield (
                    f"{type(step.operation).__name__}: page {row.depth} ({tokens}) of node "
                    f"{row.node_id} is not on the key's path, but {change}"
                )


def _changes(
    old: PageRow | None, new: PageRow | None, room: _Room, kept: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """What differs in a page and may not: the field, and a clause."""
    if old is None or new is None:
        if old is None or not room.lets_vanish(old):
            yield "page", "appeared" if old is None else "is gone"
        return
    for field in kept:
        was, now = getattr(old, field), getattr(new, field)
        if was != now:
            yield field, f"its {field} was {was} and is {now}"
    for component in Component:
        for medium in (GPU, CPU):
            was, now = old.slot(component, medium), new.slot(component, medium)
            if was != now and not room.lets_change(old, new, component, medium):
                yield (
                    f"{component} on {medium}",
                    f"its {component} slot on {medium} was {was} and is {now}",
                )


_KEPT = ("loading", "backing", "lock_refs", "hit_count")
