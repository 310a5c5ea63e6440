"""LOCK: what a receipt holds.

A receipt holds the full data of a whole path, the window data of the last window, and the mamba
state at the end. Lock refs are counted on the node, so that an eviction only needs to look there.

What readers get wrong: an unlock must not work out again what to release. Between lock and unlock
pages are evicted, healed, loaded and cut; an unlock that looks at the tree as it is by then
releases what other receipts hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from kvcanon.spec.difference import REBUILT, REBUILT_AND_ADJACENT, Difference
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law, node_law, nodes_premise
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.comparison import is_loose_copy, page_in_words, refs_of, slot_of
from kvcanon.spec.laws.copies import may_be_given_up
from kvcanon.spec.operations import Lock, Refused, Settled, Unlock, UnlockWindow
from kvcanon.spec.oracle.grounds import lock_has_ground
from kvcanon.spec.oracle.window import in_window, window_start
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Key, NodeId
from kvcanon.spec.views import COLUMN, Step

Refs = dict[NodeId, list[int]]
"""Lock refs of full, swa and mamba, by node."""


@node_law(
    "LOCK-1",
    LawClass.SOUND,
    premise=nodes_premise(
        "a locked node",
        lambda _, node: node.full.lock_refs != 0 and node.parent_id is not None,
    ),
    enabled_if=bounds.has_locks,
    over=REBUILT,
)
def refs_not_negative(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """No lock ref count is below zero.

    Why: a count below zero means that something was released that was not held. The next lock
    raises it to zero, and the pages under a running request are evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24153,
    https://github.com/sgl-project/sglang/issues/27147
    """
    for node in nodes:
        for component, data in node.data.items():
            if data.lock_refs < 0:
                yield f"{state.describe(node)} has {data.lock_refs} {component} lock_refs"


@node_law(
    "LOCK-2",
    LawClass.SOUND,
    premise=nodes_premise(
        "locked window data, or a locked mamba state",
        lambda _, node: (
            (node.swa.lock_refs != 0 or node.mamba.lock_refs != 0) and node.parent_id is not None
        ),
    ),
    enabled_if=bounds.has_windows_or_states,
    over=REBUILT,
)
def component_order(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """On every node, full lock refs >= swa lock refs >= mamba lock refs.

    Why: window data is evicted with full data, and a mamba state with its window. A lock on the
    state alone does not keep the data that it needs.

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
    """The nodes whose lock refs may be wrong now: rebuilt nodes, and all that receipts cover."""
    ids = set(difference.rebuilt)
    for state in (difference.before, difference.after):
        for hold in state.holds:
            if hold.node_id in state.nodes:
                ids.update([up.node_id for up in state.upwards[hold.node_id]])
    return difference.nodes_after(ids)


@node_law(
    "LOCK-3",
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "an open receipt",
        lambda state: bool(state.holds),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=bounds.has_locks,
    over=covered,
    reads=("holds",),
)
def refs_are_receipts(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """The lock refs of each node count the open receipts that cover it, component by component.

    A receipt covers full data from its node up to the root, window data of the nodes on that path
    that begin at `window_from_pages` or later (except in gaps that it names), and the mamba state
    of its node only. A copy in flight has a receipt, too. So where no receipt is open, nothing is
    locked.

    Why: with one lock ref too many, pages can never be evicted until a restart; with one too few,
    they are evicted under a running request.

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


@law(
    "LOCK-4",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a change while a node is locked",
        lambda step: (
            not isinstance(step.operation, Unlock | UnlockWindow)
            and situations.changed(step)
            and situations.locked(step.before, FULL)
        ),
    ),
    enabled_if=bounds.has_locks,
    from_outside=(visibility.DEVICE_EVICTIONS,),
)
def locked_stays(step: Step) -> Iterator[str]:
    """Locked data stays in its slots, in every step but a release.

    A locked node may gain data. It loses a slot only if a copy was to fill that slot, and a poll, a
    flush or a settle call finds that the copy failed or was cancelled: the data never came.

    Two profiles allow more, for host copies only. Where a load-back need not keep the host copy
    that it loads, the copy may go when the load-back is settled (LOAD-5). Where locks need not hold
    host copies, any host copy may go, except full data that is on the host alone; if the data is on
    the device, it may also be copied again, into other host slots.

    Why: a request reads these slots. If they are evicted or moved, it reads another prompt's KV in
    the middle of its computation.

    Seen broken: https://github.com/sgl-project/sglang/issues/29352,
    https://github.com/sgl-project/sglang/issues/27444,
    https://github.com/vllm-project/vllm/issues/39702
    """
    if isinstance(step.outcome, Refused) or isinstance(step.operation, (Unlock, UnlockWindow)):
        return
    settles = isinstance(step.outcome, Settled)
    for _, was, now, component, medium, old, new in step.lost:
        refs = refs_of(was, component)
        if refs <= 0:
            continue
        waited = was.backing if medium is CPU else was.loading
        never_there = settles and new is None and waited[COLUMN[component]] is not None
        again = new is None or slot_of(now, component, GPU) is not None
        loose = again and is_loose_copy(step.before, was, component, medium)
        loaded = medium is CPU and new is None
        loose |= loaded and may_be_given_up(step, was, now, component)
        if not never_there and not loose:
            yield (
                f"{page_in_words(step.before, was)} was in {component} slot {old} on "
                f"{medium}, with lock_refs {refs}, and is now in "
                f"{'no slot' if new is None else f'slot {new}'}"
            )


@node_law(
    "LOCK-5",
    LawClass.SOUND,
    premise=nodes_premise(
        "a locked node below another",
        lambda state, node: node.full.lock_refs != 0 and situations.is_below_node(state, node),
    ),
    enabled_if=bounds.has_locks,
    over=REBUILT_AND_ADJACENT,
)
def ancestors_locked(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """A node's full data has at least as many lock refs as that of each of its children.

    Why: a prefix is of use only as a whole. An unlocked ancestor can be evicted while a request
    reads the pages below it.

    Seen broken: https://github.com/sgl-project/sglang/issues/38480
    """
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if not lock_has_ground(node.full.lock_refs, parent.full.lock_refs):
            yield (
                f"{state.describe(node)} has {node.full.lock_refs} full lock_refs and its parent "
                f"{state.describe(parent)} only {parent.full.lock_refs}"
            )


@law(
    "LOCK-6",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a lock of window data",
        lambda step: (
            isinstance(step.operation, Lock)
            and situations.went_well(step)
            and situations.locked(step.after, SWA)
        ),
    ),
    enabled_if=bounds.has_windows,
)
def window_covered(step: Step) -> Iterator[str]:
    """A lock adds one swa lock ref to exactly the pages of the last window of its key.

    By profile, locks cover whole nodes; then pages of the key before the window may be locked too.

    Why: with a page too few, attention reads evicted data; with pages too many, one long prompt
    keeps the window slots from all others.

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
        for node in state.upwards[end.node_id]:
            refs.setdefault(node.node_id, [0, 0, 0])[0] += 1
        window_from = hold.window_from_pages if has_swa else None
        for node in state.upwards[end.node_id] if window_from is not None else ():
            start = state.starts[node.node_id]
            if window_from is None or not in_window(start, window_from):
                break
            if not _in_gap(hold, start):
                refs[node.node_id][1] += 1
        if has_mamba and hold.state_held:
            refs[end.node_id][2] += 1
    return refs


def miscounted(
    step: Step, key: Key, component: Component, rises: Callable[[int | None], Collection[int]]
) -> Iterator[str]:
    """Pages whose lock refs rose by a number that `rises` does not allow.

    `rises` takes a page's index in the key, or None where it is not in the key.
    """
    before, after = step.changed
    places = {number: index for index, number in enumerate(step.numbers_of(key))}
    for number in (*places, *(number for number in before if number not in places)):
        place = places.get(number)
        was, now = before.get(number), after.get(number)
        # A page in neither table is in a node that did not change: no ref rose.
        old = 0 if was is None else refs_of(was, component)
        new = 0 if now is None else refs_of(now, component)
        if new - old not in rises(place) and (place is not None or now is not None):
            page = f"page {place}" if now is None else page_in_words(step.after, now)
            where = "not in the key" if place is None else f"page {place} of the key"
            right = " or ".join(str(old + rise) for rise in rises(place))
            yield (
                f"{page} is {where}; its {component} lock_refs went from {old} to {new}, expected "
                f"{right}"
            )


def _in_gap(hold: HoldState, page: int) -> bool:
    """Whether a page is in a window gap of a receipt: there was no window data to hold."""
    return any(begin <= page < end for begin, end in hold.window_gaps)


def _crossed(state: Snapshot, hold: HoldState) -> NodeState | None:
    """The node inside which a receipt's window begins, where no node begins there."""
    if hold.window_from_pages is None or SWA not in state.config.components:
        return None
    for node in state.upwards[hold.node_id]:
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
