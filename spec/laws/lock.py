"""LOCK: what a receipt holds, and nothing else does.

A receipt holds the full data of a whole path, the window data of the window at its end, and the
recurrent state at its end. Each is counted on the node, so that an eviction need only look there.

What readers get wrong: a release must not look for what there is to release. Between a lock and its
release pages are evicted, healed, loaded and cut; a release that decides again what was locked
takes another holder's lock away.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws.comparing import (
    MEDIA,
    changes,
    in_words,
    page_in_words,
    pages_changed,
    refs_of,
    rest_changed,
    slot_of,
)
from kvcanon.spec.operations import Lock, Receipt, Refused, Settled, Unlock, UnlockWindow
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    MAMBA,
    SWA,
    Component,
    Key,
    Medium,
    NodeId,
    ReceiptId,
    TransferId,
)
from kvcanon.spec.views import COLUMN, PageNumber, PageRow, Step, pages_by_node

Refs = dict[NodeId, list[int]]
"""Lock refs of full, swa and mamba, by node."""


@law("LOCK-1", Kind.STATE)
def refs_not_negative(state: Snapshot) -> Iterator[str]:
    """No count of locks is below zero.

    Why: a count below zero means that something was released that was not held. The next lock
    brings it to zero, and the pages under a running request are evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24153,
    https://github.com/sgl-project/sglang/issues/27147
    """
    for node in state.below_root():
        for component, data in node.data.items():
            if data.lock_refs < 0:
                yield f"{state.describe(node)} has {data.lock_refs} {component} lock_refs"


@law("LOCK-2", Kind.STATE)
def component_order(state: Snapshot) -> Iterator[str]:
    """On every node full data is locked at least as often as window data, and that as the state.

    Why: window data falls with full data and a state with its window. A lock on the lesser alone
    does not keep what it stands on.

    Seen broken: https://github.com/sgl-project/sglang/issues/28161
    """
    components = state.config.components
    for node in state.below_root():
        refs = [node[component].lock_refs for component in components]
        for at in range(1, len(components)):
            if refs[at] > refs[at - 1]:
                yield (
                    f"{state.describe(node)} has {refs[at]} {components[at]} lock_refs and only "
                    f"{refs[at - 1]} {components[at - 1]} lock_refs"
                )


@law("LOCK-3", Kind.STATE, needs=(Need.SNAPSHOT, Need.HOLDS))
def refs_are_receipts(state: Snapshot) -> Iterator[str]:
    """The lock refs of each node are the open receipts that cover it, component by component.

    A receipt covers full data from its node up, window data of the nodes on that path that begin at
    `window_from_pages` or later, and the state of its node alone.

    Why: one ref too many and pages can never be evicted; one too few and they are evicted under a
    running request.

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
    covered = covered_refs(state, state.holds)
    for node in state.below_root():
        expected = covered.get(node.node_id, _NONE)
        for component in state.config.components:
            wanted, found = expected[COLUMN[component]], node[component].lock_refs
            if wanted != found:
                yield (
                    f"{state.describe(node)} has {found} {component} lock_refs, but {wanted} open "
                    f"receipts cover it: {_covering(state, node, component)}"
                )


@law("LOCK-4", Kind.STEP)
def locked_stays(step: Step) -> Iterator[str]:
    """What is locked before a step, by a receipt that stays open, is in the same slots after it.

    Data may be gained. The only data that may be lost is what never was there: the targets of a
    transfer that failed or was cancelled in this step.

    Why: a request reads these slots. Evicted or moved, they hold another prompt's data in the
    middle of its computation.

    Seen broken: https://github.com/sgl-project/sglang/issues/29352,
    https://github.com/sgl-project/sglang/issues/27444,
    https://github.com/vllm-project/vllm/issues/39702
    """
    if isinstance(step.outcome, Refused) or isinstance(step.operation, (Unlock, UnlockWindow)):
        return
    still_open = {hold.receipt_id for hold in step.after.holds}
    closed = [hold for hold in step.before.holds if hold.receipt_id not in still_open]
    released = covered_refs(step.before, closed)
    for change in changes(step):
        was = change.before
        if was is None or not any(was.lock_refs):
            continue
        gone = released.get(was.node_id, _NONE)
        for component in step.before.config.components:
            refs = refs_of(was, component) - gone[COLUMN[component]]
            for medium in MEDIA if refs > 0 else ():
                old, new = slot_of(was, component, medium), slot_of(change.after, component, medium)
                if old in (None, new) or (
                    new is None and _never_filled(step, was, component, medium)
                ):
                    continue
                yield (
                    f"{page_in_words(step.before, was)} was in {component} slot {old} on {medium}, "
                    f"with {refs} locks that are still held, and is now in {in_words(new)}"
                )


@law("LOCK-5", Kind.STATE)
def ancestors_locked(state: Snapshot) -> Iterator[str]:
    """A node's full data is locked at least as often as that of each of its children.

    Why: a prefix is of use only whole. An unlocked ancestor can be evicted while a request reads
    what comes after it.

    Seen broken: https://github.com/sgl-project/sglang/issues/38480
    """
    for node in state.below_root():
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if parent[FULL].lock_refs < node[FULL].lock_refs:
            yield (
                f"{state.describe(node)} has {node[FULL].lock_refs} full lock_refs and its parent "
                f"{state.describe(parent)} only {parent[FULL].lock_refs}"
            )


@law("LOCK-6", Kind.STEP)
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

    yield from _miscounted(step, key, SWA, rises)


@law("LOCK-7", Kind.STATE, needs=(Need.SNAPSHOT, Need.HOLDS, Need.TRANSFERS))
def rest_is_unlocked(state: Snapshot) -> Iterator[str]:
    """With no receipt open and no transfer in flight nothing is locked.

    Why: what stays locked at rest stays for ever: each such page is memory lost until a restart.

    Seen broken: https://github.com/LMCache/LMCache/issues/1756
    """
    if state.holds or state.transfers:
        return
    for node in state.below_root():
        for component, data in node.data.items():
            if data.lock_refs:
                yield (
                    f"{state.describe(node)} has {data.lock_refs} {component} lock_refs, but no "
                    f"receipt is open and no transfer in flight"
                )


@law("LOCK-8", Kind.STEP, needs=(Need.SNAPSHOT, Need.HOLDS))
def release_mirrors(step: Step) -> Iterator[str]:
    """A release lowers by one exactly the refs that its receipt covered, and changes nothing else.

    An early release of the window does so for window data and state, and keeps the receipt; the
    release itself does so for all that is left, and closes it.

    Why: what a release takes beyond its own belongs to another request, which then reads pages that
    may be evicted; what it leaves is never evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24153,
    https://github.com/sgl-project/sglang/issues/36848,
    https://github.com/sgl-project/sglang/issues/36350,
    https://github.com/LMCache/LMCache/issues/4133
    """
    if not isinstance(step.operation, (Unlock, UnlockWindow)) or isinstance(step.outcome, Refused):
        return
    receipt_id = step.operation.receipt.receipt_id
    hold = next((each for each in step.before.holds if each.receipt_id == receipt_id), None)
    if hold is None:
        yield f"receipt {receipt_id} was not open, and its release was not refused"
        return
    early = isinstance(step.operation, UnlockWindow)
    yield from _receipts_after_release(step, hold, early=early)
    covered = covered_refs(step.before, [hold])
    for node_id, refs in covered.items():
        if early:
            refs[COLUMN[FULL]] = 0
        if any(refs) and step.after.nodes.get(node_id) == step.before.nodes[node_id]:
            yield (
                f"{step.before.describe(step.before.nodes[node_id])} was covered by receipt "
                f"{receipt_id}, and its lock_refs are what they were"
            )
    for change in changes(step):
        if change.before is None or change.after is None:
            continue
        was, now = change.before, change.after
        lower = covered.get(was.node_id, _NONE)
        node = step.before.nodes[was.node_id]
        for component in step.before.config.components:
            at_end = component is not MAMBA or was.depth == step.before.end(node) - 1
            old, new = refs_of(was, component), refs_of(now, component)
            wanted = old - (lower[COLUMN[component]] if at_end else 0)
            if new != wanted:
                yield (
                    f"{page_in_words(step.before, was)}: {component} lock_refs went from {old} to "
                    f"{new} with the release of receipt {receipt_id}, expected {wanted}"
                )
    yield from pages_changed(step, but=("lock_refs",))
    yield from rest_changed(step)


@law("LOCK-9", Kind.STEP)
def lock_only_counts(step: Step) -> Iterator[str]:
    """A lock adds one full ref to every page of its key and one to the state, and changes no more.

    Which window data it counts is the business of LOCK-6. Nodes may be cut.

    Why: a lock that moves data, or makes it recent, decides who is evicted next; one that does not
    count a page leaves it to be evicted under the request.

    Seen broken: https://github.com/sgl-project/sglang/issues/24972,
    https://github.com/sgl-project/mini-sglang/pull/52
    """
    if not isinstance(step.operation, Lock) or isinstance(step.outcome, Refused):
        return
    key = step.operation.key
    yield from _miscounted(step, key, FULL, lambda place: (int(place is not None),))
    if MAMBA in step.before.config.components:
        yield from _miscounted(step, key, MAMBA, lambda place: (int(place == len(key) - 1),))
    yield from pages_changed(step, but=("lock_refs",))
    yield from rest_changed(step)


_NONE = (0, 0, 0)


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
            if window_from is not None and state.starts[node.node_id] >= window_from:
                counted[1] += 1
        if has_mamba and hold.state_held:
            refs[end.node_id][2] += 1
    return refs


@law("LOCK-10", Kind.STEP, needs=(Need.SNAPSHOT, Need.HOLDS))
def receipts_last_until_released(step: Step) -> Iterator[str]:
    """A request's receipt opens with a lock, closes with its unlock, and changes by nothing else.

    A cut may move nothing of it: it stays on the node at the end of what it holds, whatever that
    node is called.

    Why: a receipt that closes by itself leaves a request reading what may be evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24972
    """
    pages_before, pages_after = (pages_by_node(rows) for rows in step.changed)
    before = _of_requests(step.before, pages_before)
    after = _of_requests(step.after, pages_after)
    asked, name = step.operation, type(step.operation).__name__
    refused = isinstance(step.outcome, Refused)
    released = asked.receipt.receipt_id if isinstance(asked, Unlock | UnlockWindow) else None
    for receipt_id in before.keys() - after.keys():
        if refused or not isinstance(asked, Unlock) or receipt_id != released:
            yield f"{name} closed receipt {receipt_id}, which is not its own to close"
    opened = after.keys() - before.keys()
    given = {step.outcome.receipt_id} if isinstance(step.outcome, Receipt) else set()
    if opened != given:
        yield f"{name} opened receipts {sorted(opened)}, and gave out {sorted(given)}"
    for receipt_id in before.keys() & after.keys():
        changed = before[receipt_id] != after[receipt_id]
        if changed and (refused or receipt_id != released):
            hold = next(each for each in step.after.holds if each.receipt_id == receipt_id)
            yield f"{name} changed receipt {receipt_id}: {hold}"


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
        if covered_refs(state, [hold]).get(node.node_id, _NONE)[COLUMN[component]]
    ]


def _never_filled(step: Step, was: PageRow, component: Component, medium: Medium) -> bool:
    """Whether a page's slot was the target of a transfer that ended without filling it."""
    pending = (was.backing if medium is CPU else was.loading)[COLUMN[component]]
    return pending is not None and _failed(step, pending)


def _failed(step: Step, transfer_id: TransferId) -> bool:
    if isinstance(step.outcome, Settled):
        for settled_id, status in step.outcome.transfers:
            if settled_id == transfer_id:
                return status is not TransferStatus.DONE
    in_flight = [each for each in step.after.transfers if each.transfer_id == transfer_id]
    return all(each.cancelled for each in in_flight)


def _miscounted(
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


def _receipts_after_release(step: Step, hold: HoldState, *, early: bool) -> Iterator[str]:
    """What is wrong with the list of receipts after the release of one."""
    after = {each.receipt_id: each for each in step.after.holds}
    left = after.pop(hold.receipt_id, None)
    if early and left is None:
        yield f"receipt {hold.receipt_id} is closed; its full data was not released"
    elif not early and left is not None:
        yield f"receipt {hold.receipt_id} is still open after its release"
    elif left is not None and (left.window_from_pages is not None or left.state_held):
        yield (
            f"receipt {hold.receipt_id} still holds window data from page "
            f"{in_words(left.window_from_pages)} on, state held: {left.state_held}"
        )
    others = {each.receipt_id for each in step.before.holds} - {hold.receipt_id}
    if others != after.keys():
        yield f"receipts {sorted(others ^ after.keys())} are open in one state only"


def _of_requests(
    state: Snapshot, pages: dict[NodeId, list[PageNumber]]
) -> dict[ReceiptId, tuple[int, int | None, bool]]:
    """What the receipts of requests hold: up to which page, window from where, a state or none."""
    return {
        hold.receipt_id: (
            pages[hold.node_id][-1] if hold.node_id in pages else ~hold.node_id,
            hold.window_from_pages,
            hold.state_held,
        )
        for hold in state.holds
        if hold.transfer_id is None
    }
