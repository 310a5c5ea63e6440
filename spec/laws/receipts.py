"""LOCK, continued: how receipts open and close.

A lock opens a receipt, an unlock closes it. Each lock has a receipt of its own: two requests that
lock the same prefix have two, and what one releases the other still holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.comparison import (
    in_words,
    page_in_words,
    pages_changed,
    refs_of,
    rest_changed,
)
from kvcanon.spec.laws.lock import NO_REFS, covered_refs, miscounted
from kvcanon.spec.operations import Lock, Receipt, Refused, Unlock, UnlockWindow
from kvcanon.spec.snapshot import HoldState, Snapshot
from kvcanon.spec.types import FULL, MAMBA, NodeId, ReceiptId
from kvcanon.spec.views import COLUMN, PageNumber, Step, pages_by_node, path_of


@law(
    "LOCK-8",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a release",
        lambda step: (
            isinstance(step.operation, Unlock | UnlockWindow) and situations.went_well(step)
        ),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=bounds.has_receipts,
)
def release_mirrors(step: Step) -> Iterator[str]:
    """A release lowers by one the lock refs that its receipt covers, and changes nothing else.

    `unlock_window` does so for window data and mamba state, and keeps the receipt. `unlock` does so
    for everything that is left, and closes the receipt.

    Why: lock refs that a release takes beyond its own belong to another request, whose pages may
    then be evicted; lock refs that it leaves keep pages for ever.

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
                f"{receipt_id}, and its lock_refs did not change"
            )
    for change in step.changes:
        if change.before is None or change.after is None:
            continue
        was, now = change.before, change.after
        lower = covered.get(was.node_id, NO_REFS)
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


@law(
    "LOCK-9",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a lock of at least one page",
        lambda step: isinstance(step.outcome, Receipt) and len(step.outcome.key) > 0,
    ),
    enabled_if=bounds.has_receipts,
    from_outside=visibility.ANSWERS,
)
def lock_only_counts(step: Step) -> Iterator[str]:
    """A lock adds a full lock ref to each page of its key, one to its mamba state, and no other.

    It changes nothing else, but nodes may be cut. LOCK-6 checks which window data it locks.

    Why: a lock that moves data moves it under other readers. One that misses a page leaves it to be
    evicted under the request.

    Seen broken: https://github.com/sgl-project/sglang/issues/24972,
    https://github.com/sgl-project/mini-sglang/pull/52
    """
    if not isinstance(step.operation, Lock) or isinstance(step.outcome, Refused):
        return
    key = step.operation.key
    yield from miscounted(step, key, FULL, lambda place: (int(place is not None),))
    if MAMBA in step.before.config.components:
        yield from miscounted(step, key, MAMBA, lambda place: (int(place == len(key) - 1),))
    yield from pages_changed(step, but=("lock_refs",))
    yield from rest_changed(step)


@law(
    "LOCK-10",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a change while a request has a receipt",
        lambda step: situations.changed(step) and situations.of_requests(step.before),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=bounds.has_receipts,
    from_outside=visibility.ANSWERS,
)
def receipts_last_until_released(step: Step) -> Iterator[str]:
    """A request's receipt opens with a lock, closes with its unlock, and nothing else changes it.

    A cut must not change what it covers: it stays on the node at the end of its key, whatever id
    that node has then.

    Why: a receipt that closes by itself leaves a request reading pages that may be evicted.

    Seen broken: https://github.com/sgl-project/sglang/issues/24972
    """
    same = not step.difference.touched and "holds" not in step.difference.fields
    if same and not isinstance(step.outcome, Receipt):
        return
    pages_before, pages_after = (pages_by_node(rows) for rows in step.changed)
    before = _of_requests(step.before, pages_before)
    after = _of_requests(step.after, pages_after)
    call, name = step.operation, type(step.operation).__name__
    refused = isinstance(step.outcome, Refused)
    released = call.receipt.receipt_id if isinstance(call, Unlock | UnlockWindow) else None
    for receipt_id in before.keys() - after.keys():
        if refused or not isinstance(call, Unlock) or receipt_id != released:
            yield f"{name} closed receipt {receipt_id}, which only its own unlock may close"
    opened = after.keys() - before.keys()
    given = {step.outcome.receipt_id} if isinstance(step.outcome, Receipt) else set()
    if opened != given:
        yield f"{name} opened receipts {sorted(opened)}, and gave out {sorted(given)}"
    for receipt_id in before.keys() & after.keys():
        changed = before[receipt_id] != after[receipt_id]
        if changed and (refused or receipt_id != released):
            hold = next(each for each in step.after.holds if each.receipt_id == receipt_id)
            yield f"{name} changed receipt {receipt_id}: {hold}"


@law(
    "LOCK-11",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a lock while a request has a receipt",
        lambda step: isinstance(step.outcome, Receipt) and situations.of_requests(step.before),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=lambda run: run.receipts > 1,
)
def lock_gives_a_receipt(step: Step) -> Iterator[str]:
    """A lock returns a new, open receipt for its key, with an id that no receipt had before.

    It belongs to a request, on the node at which the key ends. A second lock of the same key
    returns a second receipt.

    Why: two holders with one receipt release each other's lock; a holder of a receipt that is not
    open can never release its own.

    Seen broken: https://github.com/sgl-project/sglang/issues/27038
    """
    call, given = step.operation, step.outcome
    if not isinstance(call, Lock) or isinstance(given, Refused):
        return
    if not isinstance(given, Receipt):
        yield f"the lock was not refused, and gave no receipt: {given}"
        return
    name = f"receipt {given.receipt_id}"
    if given.key != call.key:
        yield f"{name} is of {len(given.key)} pages, not of the {len(call.key)} that were locked"
    if any(each.receipt_id == given.receipt_id for each in step.before.holds):
        yield f"{name} was open before the lock that gave it out"
    elif given.receipt_id in step.given:
        yield f"{name} was given out before; its first holder can release this lock"
    holds = [each for each in step.after.holds if each.receipt_id == given.receipt_id]
    if len(holds) != 1 or holds[0].transfer_id is not None:
        yield f"{name} was given out, and the open receipts of that number are {holds}"
        return
    path = path_of(step.after, call.key)
    end = path[-1].node if path else step.after.root
    if holds[0].node_id != end.node_id or step.after.end(end) != len(call.key):
        yield (
            f"{name} is on node {holds[0].node_id}; its key of {len(call.key)} pages leads to "
            f"{step.after.describe(end)}"
        )


def _receipts_after_release(step: Step, hold: HoldState, *, early: bool) -> Iterator[str]:
    """What is wrong with the list of open receipts after the release of one."""
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
        changed = sorted(others ^ after.keys())
        yield f"receipts {changed} are open only before or only after the call"


def _of_requests(
    state: Snapshot, pages: dict[NodeId, list[PageNumber]]
) -> dict[ReceiptId, tuple[int, int | None, bool]]:
    """What each receipt of a request holds: up to which page, window from where, state or not."""
    return {
        hold.receipt_id: (
            pages[hold.node_id][-1] if hold.node_id in pages else ~hold.node_id,
            hold.window_from_pages,
            hold.state_held,
        )
        for hold in state.holds
        if hold.transfer_id is None
    }
