"""LOCK: what a receipt holds, and nothing else does.

A receipt holds the full data of a whole path, the window data of the window at its end, and the
recurrent state at its end. Each is counted on the node, so that an eviction need only look there.

What readers get wrong: a release must not look for what there is to release. Between a lock and its
release pages are evicted, healed, loaded and cut; a release that decides again what was locked
takes another holder's lock away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Need, law, node_law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import (
    MEDIA,
    changes,
    in_words,
    is_loose_copy,
    page_in_words,
    refs_of,
    slot_of,
)
from kvcanon.spec.laws.copies import may_be_given_up
from kvcanon.spec.operations import Lock, Refused, Settled, Unlock, UnlockWindow
from kvcanon.spec.oracle.grounds import lock_has_ground
from kvcanon.spec.oracle.window import in_window, window_start
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Key,
    NodeId,
)
from kvcanon.spec.views import COLUMN, Step

Refs = dict[NodeId, list[int]]
"""Lock refs of full, swa and mamba, by node."""


@node_law("LOCK-1", premises.LOCKED_NODE, over=Difference.rebuilt_nodes)
def refs_not_negative(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """No count of locks is below zero.

    Why: a count below zero means that something was released that was not held. The next lock
    brings it to zero, and the pages under a running request are evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24153,
    https://github.com/sgl-project/sglang/issues/27147
    """
    for node in nodes:
        for component, data in node.data.items():
            if data.lock_refs < 0:
                yield f"{state.describe(node)} has {data.lock_refs} {component} lock_refs"


@node_law("LOCK-2", premises.LOCKED_AUXILIARY, over=Difference.rebuilt_nodes)
def component_order(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """On every node full data is locked at least as often as window data, and that as the state.

    Why: window data falls with full data and a state with its window. A lock on the lesser alone
    does not keep what it stands on.

    Seen broken: https://github.com/sgl-project/sglang/issues/28161
    """
    components = state.config.components
    for node in nodes:
        refs = [node[component].lock_refs for component in components]
        for at in range(1, len(components)):
            if not lock_has_ground(refs[at], refs[at - 1]):
                yield (
                    f"{state.describe(node)} has {refs[at]} {components[at]} lock_refs and only "
                    f"{refs[at - 1]} {components[at - 1]} lock_refs"
                )


def covered(difference: Difference) -> Collection[NodeState]:
    """The nodes whose lock refs may not be right: those rebuilt, and all that receipts cover."""
    ids = {node.node_id for node in difference.rebuilt_nodes()}
    for state in (difference.before, difference.after):
        ends = (state.nodes.get(hold.node_id) for hold in state.holds)
        ids.update(up.node_id for end in ends if end for up in state.upwards(end))
    return difference.nodes_after(ids)


@node_law(
    "LOCK-3",
    premises.OPEN_RECEIPT,
    over=covered,
    reads=("holds",),
    needs=(Need.SNAPSHOT, Need.HOLDS),
)
def refs_are_receipts(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The lock refs of each node are the open receipts that cover it, component by component.

    A receipt covers full data from its node up, window data of the nodes on that path that begin at
    `window_from_pages` or later (but for gaps that it names), and the state of its node alone. A
    copy in flight has a receipt, too; so where none is open nothing is locked.

    Why: one ref too many and pages can never be evicted, which is memory lost until a restart; one
    too few and they are evicted under a running request.

    Seen broken: https://github.com/sgl-project/sglang/issues/27038,
    https://github.com/sgl-project/sglang/issues/24972,
    https://github.com/sgl-project/sglang/issues/36350,
    https://github.com/LMCache/LMCache/issues/1756
    """
    for hold in state.holds:
        if hold.node_id not in state.nodes:
            yield f"receipt {hold.receipt_id} is on node {hold.node_id}, which is not in the tree"
            continue
        crossed = _crossed(state, hold)
        if crossed is not None:
            yield (
                f"receipt {hold.receipt_id} holds window data from page {hold.window_from_pages} "
                f"on, which is inside {state.describe(crossed)}; no node begins there"
            )
    refs = covered_refs(state, state.holds)
    for node in nodes:
        expected = refs.get(node.node_id, NO_REFS)
        for component in state.config.components:
            wanted, found = expected[COLUMN[component]], node[component].lock_refs
            if wanted != found:
                yield (
                    f"{state.describe(node)} has {found} {component} lock_refs, but {wanted} open "
                    f"receipts cover it: {_covering(state, node, component)}"
                )


@law("LOCK-4", Kind.STEP, premises.CHANGE_UNDER_LOCK)
def locked_stays(step: Step) -> Iterator[str]:
    """What is locked before a step stays in its slots, unless the step is a release.

    Data may be gained. The only data that may be lost is what never was there: the target of a copy
    that a poll or a flush finds failed, or cancelled. And, by profile, copies on the host: those of
    a node whose load is done (LOAD-5), and all where locks do not hold them; what the device has
    may even be copied again, into other slots.

    Why: a request reads these slots. Evicted or moved, they hold another prompt's data in the
    middle of its computation.

    Seen broken: https://github.com/sgl-project/sglang/issues/29352,
    https://github.com/sgl-project/sglang/issues/27444,
    https://github.com/vllm-project/vllm/issues/39702
    """
    if isinstance(step.outcome, Refused) or isinstance(step.operation, (Unlock, UnlockWindow)):
        return
    settles = isinstance(step.outcome, Settled)
    for change in changes(step):
        was = change.before
        if was is None or not any(was.lock_refs):
            continue
        for component in step.before.config.components:
            refs = refs_of(was, component)
            for medium in MEDIA if refs > 0 else ():
                old, new = slot_of(was, component, medium), slot_of(change.after, component, medium)
                waited = was.backing if medium is CPU else was.loading
                never_there = settles and new is None and waited[COLUMN[component]] is not None
                again = new is None or slot_of(change.after, component, GPU) is not None
                loose = again and is_loose_copy(step.before, was, component, medium)
                loaded = medium is CPU and new is None
                loose |= loaded and may_be_given_up(step, was, change.after, component)
                if old not in (None, new) and not never_there and not loose:
                    yield (
                        f"{page_in_words(step.before, was)} was in {component} slot {old} on "
                        f"{medium}, with {refs} lock_refs, and is now in {in_words(new)}"
                    )


@node_law("LOCK-5", premises.LOCKED_CHILD, over=Difference.rebuilt_and_adjacent)
def ancestors_locked(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """A node's full data is locked at least as often as that of each of its children.

    Why: a prefix is of use only whole. An unlocked ancestor can be evicted while a request reads
    what comes after it.

    Seen broken: https://github.com/sgl-project/sglang/issues/38480
    """
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if not lock_has_ground(node[FULL].lock_refs, parent[FULL].lock_refs):
            yield (
                f"{state.describe(node)} has {node[FULL].lock_refs} full lock_refs and its parent "
                f"{state.describe(parent)} only {parent[FULL].lock_refs}"
            )


@law("LOCK-6", Kind.STEP, premises.WINDOW_LOCK)
def window_covered(step: Step) -> Iterator[str]:
    """A lock adds one swa lock ref to exactly the pages of the window at the end of its key.

    Where the profile says that locks take whole nodes, pages of the key before the window may be
    locked with them.

    Why: a page too few and attention reads evicted data; pages too many and one long prompt keeps
    the window pool from everybody else.

    Seen broken: https://github.com/sgl-project/sglang/issues/26919
    """
    if not isinstance(step.operation, Lock) or isinstance(step.outcome, Refused):
        return
    config = step.before.config
    if config.window_tokens is None:
        return
    key = step.operation.key
    begin = window_start(len(key), config.window_tokens, config.page_size)

    def rises(place: int | None) -> Collection[int]:
        if place is None or place >= begin:
            return (0,) if place is None else (1,)
        return (0,) if step.before.profile.window_lock_exact else (0, 1)

    yield from miscounted(step, key, SWA, rises)


NO_REFS = (0, 0, 0)


def covered_refs(state: Snapshot, holds: Iterable[HoldState]) -> Refs:
    """The lock refs that receipts put on each node that they cover."""
    refs: Refs = {}
    has_swa, has_mamba = SWA in state.config.components, MAMBA in state.config.components
    for hold in holds:
        end = state.nodes.get(hold.node_id)
        if end is None or end.parent_id is None:
            continue
        window_from = hold.window_from_pages if has_swa else None
        for node in state.upwards(end):
            counted = refs.setdefault(node.node_id, [0, 0, 0])
            counted[0] += 1
            start = state.starts[node.node_id]
            if (
                window_from is not None
                and in_window(start, window_from)
                and not _in_gap(hold, start)
            ):
                counted[1] += 1
        if has_mamba and hold.state_held:
            refs[end.node_id][2] += 1
    return refs


def miscounted(
    step: Step, key: Key, component: Component, rises: Callable[[int | None], Collection[int]]
) -> Iterator[str]:
    """Pages whose refs rose by other than `rises` allows, given their place in the key, or None."""
    before, after = step.changed
    places = {number: index for index, number in enumerate(step.numbers.of_key(key))}
    for number in (*places, *(number for number in before if number not in places)):
        place = places.get(number)
        was, now = before.get(number), after.get(number)
        # A page in neither table lies in a node that is equal in both states: no ref rose.
        page = f"page {place}" if now is None else page_in_words(step.after, now)
        old = 0 if was is None else refs_of(was, component)
        new = 0 if now is None else refs_of(now, component)
        if new - old not in rises(place) and (place is not None or now is not None):
            where = "not in the key" if place is None else f"page {place} of the key"
            right = " or ".join(str(old + rise) for rise in rises(place))
            yield (
                f"{page} is {where}; its {component} lock_refs went from {old} to {new}, expected "
                f"{right}"
            )


def _in_gap(hold: HoldState, page: int) -> bool:
    """Whether a receipt does not hold the window data of a page, for there was none."""
    return any(begin <= page < end for begin, end in hold.window_gaps)


def _crossed(state: Snapshot, hold: HoldState) -> NodeState | None:
    """The node inside which a receipt's window begins, where none begins with it."""
    if hold.window_from_pages is None or SWA not in state.config.components:
        return None
    for node in state.upwards(state.nodes[hold.node_id]):
        start = state.starts[node.node_id]
        if start <= hold.window_from_pages:
            return node if start < hold.window_from_pages < state.end(node) else None
    return None


def _covering(state: Snapshot, node: NodeState, component: Component) -> list[int]:
    """The receipts that cover a component at a node."""
    return [
        hold.receipt_id
        for hold in state.holds
        if covered_refs(state, [hold]).get(node.node_id, NO_REFS)[COLUMN[component]]
    ]
