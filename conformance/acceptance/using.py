"""Using: matches, locks, and slots that requests take and give back.

What readers get wrong: a match is the judge's best witness. It says what is there without moving
anything, and what it says has to fit all that was said before.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.acceptance.books import Books, OpenReceipt, Read, same_node_below
from kvcanon.conformance.acceptance.pages import (
    ALL_COLUMNS,
    FULL_COLUMN,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Column,
    PageBook,
    usable,
)
from kvcanon.conformance.acceptance.slots import COMPONENTS, HELD, LOADING
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

Has = Callable[[PageBook, Column], bool]


def after_match(books: Books, operation: Match, found: Matched) -> None:
    """The prefix is as long as it may be, the slots are those of its pages, as are the bytes."""
    path = books.pages.path(operation.key)
    device = found.device_pages
    at_least = usable_by(books, path, PageBook.surely_on_device)
    at_most = usable_by(books, path, PageBook.maybe_on_device)
    books.check(
        "MATCH-2",
        at_least <= device <= at_most,
        f"a match of {len(operation.key)} pages found {device} of use on the device; "
        f"{_between(at_least, at_most)} are",
        met=max(device, at_least) > 0,
    )
    at_least = usable_by(books, path, PageBook.surely_anywhere)
    at_most = usable_by(books, path, PageBook.maybe_anywhere)
    books.check(
        "MATCH-1",
        at_least <= found.prefix_pages <= at_most and device <= found.prefix_pages,
        f"a match of {len(operation.key)} pages found {found.prefix_pages} of use, {device} of "
        f"them on the device; {_between(at_least, at_most)} are",
        met=max(found.prefix_pages, at_least) > 0,
    )
    if books.violations:
        return
    _check_pending(books, path[: found.prefix_pages], found.pending)
    _check_slots(books, path[:device], found.slots)
    if not books.violations and books.read is not None:
        _check_bytes(books, path[:device], found.slots, books.read)
    books.use_prefix(path, found.prefix_pages)
    if books.profile.hits_counted_at_match and found.prefix_pages:
        _count_hits(path[: found.prefix_pages])


def _count_hits(prefix: list[PageBook]) -> None:
    """Count a hit on what was found; what may be of one node with its end may have one more."""
    for page in prefix:
        page.hits += 1
    for page in (*prefix, *same_node_below(prefix[-1])):
        page.hits_at_most += 1


def usable_by(books: Books, path: list[PageBook], has: Has) -> int:
    """The usable prefix of a path in pages, where `has` says which page has what."""
    table = [
        [has(page, column) for page in path] if column in books.columns else []
        for column in ALL_COLUMNS
    ]
    sizes = (books.config.page_size, books.config.window_tokens or 1)
    return usable(path, table, sizes, books.columns)


def _between(at_least: int, at_most: int) -> str:
    return f"{at_least}" if at_least == at_most else f"{at_least} to {at_most}"


def _check_slots(books: Books, path: list[PageBook], slots: Slots) -> None:
    """Full slots of all pages, window slots back to the first gap, and the state at the end."""
    counts = (len(slots.full), len(slots.swa), len(slots.mamba))
    gapless = [_gapless(path, has) for has in (PageBook.surely_on_device, PageBook.maybe_on_device)]
    swa = gapless if SWA_COLUMN in books.columns else [0, 0]
    state = int(bool(path)) if MAMBA_COLUMN in books.columns else 0
    right = counts[0] == len(path) and swa[0] <= counts[1] <= swa[1] and counts[2] == state
    books.check(
        "MATCH-3",
        right,
        f"a match of {len(path)} pages on the device gave {counts[0]} full, {counts[1]} window and "
        f"{counts[2]} state slots; {len(path)}, {_between(*swa)} and {state} are there",
        met=bool(path),
    )
    for column in ALL_COLUMNS if right else ():
        some = slots[COMPONENTS[column]]
        for page, slot in zip(path[len(path) - len(some) :], some, strict=True):
            _check_slot(books, column, page, slot)


def _check_pending(books: Books, path: list[PageBook], pending: tuple[TransferId, ...]) -> None:
    """The loads in flight on the prefix are named, and nothing else is."""
    loads = {
        transfer_id: transfer
        for transfer_id, transfer in books.transfers.items()
        if transfer.direction is Direction.LOAD_BACK and not books.loads_are_of_use
    }
    for transfer_id, transfer in loads.items():
        surely = [page for page, column in transfer.loads if not page.doubtful[column]]
        books.check(
            "MATCH-7",
            transfer_id in pending or not any(page in path for page in surely),
            f"a match does not name transfer {transfer_id}, which loads pages that it found",
            met=any(page in path for page in surely),
        )
    books.check(
        "MATCH-7",
        set(pending) <= loads.keys(),
        f"a match names {pending} as pending; the loads in flight are {tuple(loads)}",
        met=bool(pending),
    )


def _gapless(path: list[PageBook], has: Has) -> int:
    length = 0
    for page in reversed(path):
        if not has(page, SWA_COLUMN):
            break
        length += 1
    return length


def _check_slot(books: Books, column: Column, page: PageBook, slot: Slot) -> None:
    """A slot that was matched is the page's; where nobody was told which that is, it is now."""
    owner = books.slots.owners[column].get(slot)
    if column in books.slots.blind:
        text = f"a match gave {COMPONENTS[column]} slot {slot}, which a request has"
        books.check("MATCH-3", owner is None, text)
        return
    books.is_not_loading(column, page)
    if page.device[column] == SOMEWHERE:
        right = owner is LOADING or owner is page or _lost_unseen(books, column, slot)
        if right:
            books.slots.settle_on(column, slot, page)
            page.device[column] = slot
    else:
        right = page.device[column] == slot
    books.check(
        "MATCH-3",
        right,
        lambda: (
            f"a match gave {COMPONENTS[column]} slot {slot} for {page.describe()}, which is "
            f"{books.slots.owner_in_words(column, slot)}"
        ),
    )


def _lost_unseen(books: Books, column: Column, slot: Slot) -> bool:
    """Whether a slot was that of a page that may have lost it; if so, it has lost it now."""
    owner = books.slots.owners[column].get(slot)
    if not isinstance(owner, PageBook) or not owner.doubtful[column]:
        return False
    books.lost(column, slot, owner)
    return True


def _check_bytes(books: Books, path: list[PageBook], slots: Slots, read: Read) -> None:
    for column in ALL_COLUMNS:
        component = COMPONENTS[column]
        some = slots[component]
        found = [
            (page, slot, read(component, GPU, slot))
            for page, slot in zip(path[len(path) - len(some) :], some, strict=True)
            if page.content[column] and (page, column) not in books.compared
        ]
        books.compared.update((page, column) for page, _, _ in found)
        wrong = [each for each in found if each[2] not in each[0].content[column]]
        _check_read(books, column, len(found), wrong)


def _check_read(
    books: Books, column: Column, count: int, wrong: list[tuple[PageBook, Slot, bytes]]
) -> None:
    """What is behind the slots of pages is what was written for them."""
    books.check_each(
        "DATA-1",
        count,
        wrong,
        lambda each: (
            f"behind {COMPONENTS[column]} slot {each[1]} of {each[0].describe()} is "
            f"{each[2].hex()}, not {next(iter(each[0].content[column])).hex()}"
        ),
    )


def after_lock(books: Books, operation: Lock, receipt: Receipt) -> None:
    """A lock was given for what is there, and the receipt is a new one."""
    path = books.pages.path(operation.key)
    present = _present(path, PageBook.maybe_anywhere)
    books.check(
        "LOCK-9",
        present == len(operation.key),
        f"a lock of {len(operation.key)} pages was given, of which {present} can be there",
        met=len(operation.key) > 0,
    )
    books.check(
        "LOCK-10",
        receipt.receipt_id not in books.receipts,
        f"receipt {receipt.receipt_id} was given for two locks",
        met=bool(books.receipts),
    )
    books.receipts[receipt.receipt_id] = OpenReceipt(
        receipt, path, books.window_from(len(path)), MAMBA_COLUMN in books.columns
    )
    books.may_cut(path)


def pages_present(books: Books, key: Key) -> int:
    """How many pages of a key are there without doubt, on whatever medium."""
    return _present(books.pages.path(key), PageBook.surely_anywhere)


def pages_on_device(books: Books, key: Key) -> int:
    """How many pages of a key are on the device without doubt."""
    return _present(books.pages.path(key), PageBook.surely_on_device)


def _present(path: list[PageBook], has: Has) -> int:
    for count, page in enumerate(path):
        if not has(page, FULL_COLUMN):
            return count
    return len(path)


def after_unlock(books: Books, operation: Unlock | UnlockWindow, _answer: None) -> None:
    """Only an open receipt is released, and only once."""
    held = books.receipts.get(operation.receipt.receipt_id)
    books.check(
        "LOCK-10",
        held is not None,
        f"receipt {operation.receipt.receipt_id}, which is not open, was released",
        met=False,
    )
    if held is None:
        return
    if isinstance(operation, Unlock):
        del books.receipts[operation.receipt.receipt_id]
    else:
        held.window_from, held.state_held = len(held.path), False


def after_allocate(books: Books, operation: Allocate, slots: Slots) -> None:
    """As many slots as were asked, each of them free until now, and no others are gone."""
    books.check(
        "ALLOC-5",
        slots.counts() == operation.counts,
        f"{operation.counts} were asked for and {slots.counts()} given",
        met=bool(operation.counts),
    )
    for column, component in enumerate(COMPONENTS):
        some, capacity = slots[component], books.slots.capacity[column]
        owners = books.slots.owners[column]
        _check_given(
            books,
            column,
            len(some),
            [slot for slot in some if slot in owners or not 0 <= slot < capacity],
        )
        for slot in books.written[column].keys() & some:
            del books.written[column][slot]
        books.slots.give(column, some, HELD)
    if not books.violations:
        said = f"{slots.counts()} were given out"
        books.check_free("ALLOC-5", said, met=bool(operation.counts))


def _check_given(books: Books, column: Column, count: int, wrong: list[Slot]) -> None:
    """Slots that were given out were free, and are slots of the pool."""
    books.check_each(
        "ALLOC-1",
        count,
        wrong,
        lambda slot: (
            f"{COMPONENTS[column]} slot {slot} was given out, which is "
            f"{books.slots.owner_in_words(column, slot)}"
        ),
    )


def after_free(books: Books, operation: Free, _answer: None) -> None:
    """Slots come back from those who have them, and are free."""
    for column, component in enumerate(COMPONENTS):
        some, owners = operation.slots[component], books.slots.owners[column]
        books.check_held(column, some, "taken back")
        books.slots.free(column, [slot for slot in some if owners.get(slot) is HELD])
    if not books.violations:
        counts = operation.slots.counts()
        books.check_free("ALLOC-3", f"{counts} were taken back", met=bool(counts))


def after_reset(books: Books, _operation: Reset, _answer: None) -> None:
    """Nothing is in the tree; what requests have they keep."""
    open_receipts = len(books.receipts) + len(books.transfers)
    there_were = any(page.maybe_anywhere(FULL_COLUMN) for page in books.pages)
    text = f"reset with {open_receipts} receipts open"
    books.check("LOCK-4", not open_receipts, text, met=False)
    books.pages.clear()
    books.due.clear()
    books.transfers.clear()
    books.receipts.clear()
    books.slots.reset()
    for column in books.columns:
        if column not in books.slots.blind:
            expected = books.slots.free_count(column)
            books.check(
                "ALLOC-7",
                books.slots.look(column, expected).right,
                f"after a reset not all {expected} {COMPONENTS[column]} slots are free, or more",
                met=there_were,
            )
