"""Using: matches, locks, and slots that requests take and give back.

What readers get wrong: a match is the judge's best witness. It says what is there without moving
anything, and what it says has to fit all that was said before.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.blackbox.tree.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Column,
    PageRecord,
    usable,
)
from kvcanon.conformance.blackbox.tree.slots import COMPONENTS, HELD, LOADING
from kvcanon.conformance.blackbox.tree.state import (
    ObservedState,
    OpenReceipt,
    Read,
    same_node_below,
)
from kvcanon.spec.operations import (
    Allocate,
    Free,
    Lock,
    Match,
    Matched,
    Receipt,
    Reset,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import GPU, Key, Slot, Slots, TransferId

Has = Callable[[PageRecord, Column], bool]


def after_match(state: ObservedState, operation: Match, found: Matched) -> None:
    """The prefix is as long as it may be, the slots are those of its pages, as are the bytes."""
    path = state.pages.path(operation.key)
    device = found.device_pages
    at_least = usable_by(state, path, PageRecord.surely_on_device)
    at_most = usable_by(state, path, PageRecord.maybe_on_device)
    state.check(
        "MATCH-2",
        at_least <= device <= at_most,
        f"a match of {len(operation.key)} pages found {device} of use on the device; "
        f"{_between(at_least, at_most)} are",
        met=max(device, at_least) > 0,
    )
    at_least = usable_by(state, path, PageRecord.surely_anywhere)
    at_most = usable_by(state, path, PageRecord.maybe_anywhere)
    state.check(
        "MATCH-1",
        at_least <= found.prefix_pages <= at_most and device <= found.prefix_pages,
        f"a match of {len(operation.key)} pages found {found.prefix_pages} of use, {device} of "
        f"them on the device; {_between(at_least, at_most)} are",
        met=max(found.prefix_pages, at_least) > 0,
    )
    if state.violations:
        return
    _check_pending(state, path[: found.prefix_pages], found.pending)
    _check_slots(state, path[:device], found.slots)
    if not state.violations and state.read is not None:
        _check_bytes(state, path[:device], found.slots, state.read)
    state.use_prefix(path, found.prefix_pages)
    if state.profile.hits_counted_at_match and found.prefix_pages:
        _count_hits(path[: found.prefix_pages])


def _count_hits(prefix: list[PageRecord]) -> None:
    """Count a hit on what was found; what may be of one node with its end may have one more."""
    for page in prefix:
        page.hits += 1
    for page in (*prefix, *same_node_below(prefix[-1])):
        page.hits_at_most += 1


def usable_by(state: ObservedState, path: list[PageRecord], has: Has) -> int:
    """The usable prefix of a path in pages, where `has` says which page has what."""
    table = [
        [has(page, column) for page in path] if column in state.columns else []
        for column in ALL_COLUMNS
    ]
    sizes = (state.config.page_size, state.config.window_tokens or 1)
    return usable(path, table, sizes, state.columns)


def _between(at_least: int, at_most: int) -> str:
    return f"{at_least}" if at_least == at_most else f"{at_least} to {at_most}"


def _check_slots(state: ObservedState, path: list[PageRecord], slots: Slots) -> None:
    """Full slots of all pages, window slots back to the first gap, and the state at the end."""
    counts = (len(slots.full), len(slots.swa), len(slots.mamba))
    gapless = [
        _gapless(path, has) for has in (PageRecord.surely_on_device, PageRecord.maybe_on_device)
    ]
    swa = gapless if SWA_COLUMN in state.columns else [0, 0]
    mamba = int(bool(path)) if MAMBA_COLUMN in state.columns else 0
    right = counts[0] == len(path) and swa[0] <= counts[1] <= swa[1] and counts[2] == mamba
    state.check(
        "MATCH-3",
        right,
        f"a match of {len(path)} pages on the device gave {counts[0]} full, {counts[1]} window and "
        f"{counts[2]} state slots; {len(path)}, {_between(*swa)} and {state} are there",
        met=bool(path),
    )
    for column in ALL_COLUMNS if right else ():
        some = slots[COMPONENTS[column]]
        for page, slot in zip(path[len(path) - len(some) :], some, strict=True):
            _check_slot(state, column, page, slot)


def _check_pending(
    state: ObservedState, path: list[PageRecord], pending: tuple[TransferId, ...]
) -> None:
    """The loads in flight on the prefix are named, and nothing else is."""
    loads = {
        transfer_id: transfer
        for transfer_id, transfer in state.transfers.items()
        if transfer.direction is Direction.LOAD_BACK and not state.loads_are_of_use
    }
    for transfer_id, transfer in loads.items():
        surely = [page for page, column in transfer.loads if not page.doubtful[column]]
        state.check(
            "MATCH-7",
            transfer_id in pending or not any(page in path for page in surely),
            f"a match does not name transfer {transfer_id}, which loads pages that it found",
            met=any(page in path for page in surely),
        )
    state.check(
        "MATCH-7",
        set(pending) <= loads.keys(),
        f"a match names {pending} as pending; the loads in flight are {tuple(loads)}",
        met=bool(pending),
    )


def _gapless(path: list[PageRecord], has: Has) -> int:
    length = 0
    for page in reversed(path):
        if not has(page, SWA_COLUMN):
            break
        length += 1
    return length


def _check_slot(state: ObservedState, column: Column, page: PageRecord, slot: Slot) -> None:
    """A slot that was matched is the page's; where nobody was told which that is, it is now."""
    owner = state.slots.owners[column].get(slot)
    if column in state.slots.blind:
        text = f"a match gave {COMPONENTS[column]} slot {slot}, which a request has"
        state.check("MATCH-3", owner is None, text)
        return
    state.is_not_loading(column, page)
    if page.device[column] == SOMEWHERE:
        right = owner is LOADING or owner is page or _lost_unseen(state, column, slot)
        if right:
            state.slots.settle_on(column, slot, page)
            page.device[column] = slot
    else:
        right = page.device[column] == slot
    state.check(
        "MATCH-3",
        right,
        lambda: (
            f"a match gave {COMPONENTS[column]} slot {slot} for {page.describe()}, which is "
            f"{state.slots.owner_in_words(column, slot)}"
        ),
    )


def _lost_unseen(state: ObservedState, column: Column, slot: Slot) -> bool:
    """Whether a slot was that of a page that may have lost it; if so, it has lost it now."""
    owner = state.slots.owners[column].get(slot)
    if not isinstance(owner, PageRecord) or not owner.doubtful[column]:
        return False
    state.lost(column, slot, owner)
    return True


def _check_bytes(state: ObservedState, path: list[PageRecord], slots: Slots, read: Read) -> None:
    for column in ALL_COLUMNS:
        component = COMPONENTS[column]
        some = slots[component]
        found = [
            (page, slot, read(component, GPU, slot))
            for page, slot in zip(path[len(path) - len(some) :], some, strict=True)
            if page.content[column] and (page, column) not in state.compared
        ]
        state.compared.update((page, column) for page, _, _ in found)
        wrong = [each for each in found if each[2] not in each[0].content[column]]
        _check_read(state, column, len(found), wrong)


def _check_read(
    state: ObservedState, column: Column, count: int, wrong: list[tuple[PageRecord, Slot, bytes]]
) -> None:
    """What is behind the slots of pages is what was written for them."""
    state.check_each(
        "DATA-1",
        count,
        wrong,
        lambda each: (
            f"behind {COMPONENTS[column]} slot {each[1]} of {each[0].describe()} is "
            f"{each[2].hex()}, not {next(iter(each[0].content[column])).hex()}"
        ),
    )


def after_lock(state: ObservedState, operation: Lock, receipt: Receipt) -> None:
    """A lock was given for what is there, and the receipt is a new one."""
    path = state.pages.path(operation.key)
    present = _present(path, PageRecord.maybe_anywhere)
    state.check(
        "LOCK-9",
        present == len(operation.key),
        f"a lock of {len(operation.key)} pages was given, of which {present} can be there",
        met=len(operation.key) > 0,
    )
    state.check(
        "LOCK-10",
        receipt.receipt_id not in state.receipts,
        f"receipt {receipt.receipt_id} was given for two locks",
        met=bool(state.receipts),
    )
    state.receipts[receipt.receipt_id] = OpenReceipt(
        receipt, path, state.window_from(len(path)), MAMBA_COLUMN in state.columns
    )
    state.may_cut(path)


def pages_present(state: ObservedState, key: Key) -> int:
    """How many pages of a key are there without doubt, on whatever medium."""
    return _present(state.pages.path(key), PageRecord.surely_anywhere)


def pages_on_device(state: ObservedState, key: Key) -> int:
    """How many pages of a key are on the device without doubt."""
    return _present(state.pages.path(key), PageRecord.surely_on_device)


def _present(path: list[PageRecord], has: Has) -> int:
    for count, page in enumerate(path):
        if not has(page, FULL_COLUMN):
            return count
    return len(path)


def after_unlock(state: ObservedState, operation: Unlock | UnlockWindow, _answer: None) -> None:
    """Only an open receipt is released, and only once."""
    held = state.receipts.get(operation.receipt.receipt_id)
    state.check(
        "LOCK-10",
        held is not None,
        f"receipt {operation.receipt.receipt_id}, which is not open, was released",
        met=False,
    )
    if held is None:
        return
    if isinstance(operation, Unlock):
        del state.receipts[operation.receipt.receipt_id]
    else:
        held.window_from, held.state_held = len(held.path), False


def after_allocate(state: ObservedState, operation: Allocate, slots: Slots) -> None:
    """As many slots as were asked, each of them free until now, and no others are gone."""
    state.check(
        "ALLOC-5",
        slots.counts() == operation.counts,
        f"{operation.counts} were asked for and {slots.counts()} given",
        met=bool(operation.counts),
    )
    for column, component in enumerate(COMPONENTS):
        some, capacity = slots[component], state.slots.capacity[column]
        owners = state.slots.owners[column]
        _check_given(
            state,
            column,
            len(some),
            [slot for slot in some if slot in owners or not 0 <= slot < capacity],
        )
        for slot in state.written[column].keys() & some:
            del state.written[column][slot]
        state.slots.give(column, some, HELD)
    if not state.violations:
        said = f"{slots.counts()} were given out"
        state.check_free("ALLOC-5", said, met=bool(operation.counts))


def _check_given(state: ObservedState, column: Column, count: int, wrong: list[Slot]) -> None:
    """Slots that were given out were free, and are slots of the pool."""
    state.check_each(
        "ALLOC-1",
        count,
        wrong,
        lambda slot: (
            f"{COMPONENTS[column]} slot {slot} was given out, which is "
            f"{state.slots.owner_in_words(column, slot)}"
        ),
    )


def after_free(state: ObservedState, operation: Free, _answer: None) -> None:
    """Slots come back from those who have them, and are free."""
    for column, component in enumerate(COMPONENTS):
        some, owners = operation.slots[component], state.slots.owners[column]
        state.check_held(column, some, "taken back")
        state.slots.free(column, [slot for slot in some if owners.get(slot) is HELD])
    if not state.violations:
        counts = operation.slots.counts()
        state.check_free("ALLOC-3", f"{counts} were taken back", met=bool(counts))


def after_reset(state: ObservedState, _operation: Reset, _answer: None) -> None:
    """Nothing is in the tree; what requests have they keep."""
    open_receipts = len(state.receipts) + len(state.transfers)
    there_were = any(page.maybe_anywhere(FULL_COLUMN) for page in state.pages)
    text = f"reset with {open_receipts} receipts open"
    state.check("LOCK-4", not open_receipts, text, met=False)
    state.pages.clear()
    state.due.clear()
    state.transfers.clear()
    state.receipts.clear()
    state.slots.reset()
    for column in state.columns:
        if column not in state.slots.blind:
            expected = state.slots.free_count(column)
            state.check(
                "ALLOC-7",
                state.slots.look(column, expected).right,
                f"after a reset not all {expected} {COMPONENTS[column]} slots are free, or more",
                met=there_were,
            )
