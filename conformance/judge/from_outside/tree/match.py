"""Checks of matches: the prefix found, the slots of its pages, and their bytes.

A match shows what is cached and changes no data, so it is checked against all earlier answers.
"""

from __future__ import annotations

from kvcanon.conformance.judge.answers import Read
from kvcanon.conformance.judge.explain import key_in_words
from kvcanon.conformance.judge.from_outside.tree.pages import (
    ALL_COLUMNS,
    MAMBA_COLUMN,
    SOMEWHERE,
    SWA_COLUMN,
    Column,
    Has,
    PageRecord,
    present_pages,
    usable,
)
from kvcanon.conformance.judge.from_outside.tree.slots import COMPONENTS, LOADING
from kvcanon.conformance.judge.from_outside.tree.state import ObservedState, Text, same_node_below
from kvcanon.spec.operations import Match, Matched
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import GPU, Key, Slot, Slots, TransferId


def after_match(state: ObservedState, operation: Match, found: Matched) -> None:
    """Check the length of the prefix, the slots of its pages, and their bytes."""
    path = state.pages.path(operation.key)
    device = found.device_pages
    at_least = usable_by(state, path, PageRecord.surely_on_device)
    at_most = usable_by(state, path, PageRecord.maybe_on_device)
    state.check(
        "MATCH-2",
        at_least <= device <= at_most,
        _found_text(operation.key, device, "usable pages on the device", at_least, at_most),
        met=max(device, at_least) > 0,
    )
    at_least = usable_by(state, path, PageRecord.surely_anywhere)
    at_most = usable_by(state, path, PageRecord.maybe_anywhere)
    state.check(
        "MATCH-1",
        at_least <= found.prefix_pages <= at_most and device <= found.prefix_pages,
        _found_text(
            operation.key,
            found.prefix_pages,
            f"usable pages, {device} of them on the device",
            at_least,
            at_most,
        ),
        met=max(found.prefix_pages, at_least) > 0,
    )
    _check_branch(state, path, operation.key, found)
    if state.has_failed():
        return
    _check_pending(state, path[: found.prefix_pages], found.pending)
    _check_slots(state, path[:device], found.slots)
    if not state.has_failed() and state.read is not None:
        _check_bytes(state, path[:device], found.slots, state.read)
    state.use_prefix(path, found.prefix_pages)
    if state.profile.hits_counted_at_match and found.prefix_pages:
        _count_hits(path[: found.prefix_pages])


def _check_branch(state: ObservedState, path: list[PageRecord], key: Key, found: Matched) -> None:
    """Check where a match says that its key leaves the tree, if it says it."""
    if found.branch_pages is None:
        return
    surely, maybe = (
        present_pages(path, has) for has in (PageRecord.surely_anywhere, PageRecord.maybe_anywhere)
    )
    state.check(
        "MATCH-1",
        surely <= found.branch_pages <= maybe and found.prefix_pages <= found.branch_pages,
        _found_text(key, found.branch_pages, "pages in the tree", surely, maybe),
        met=surely > 0,
    )


def _count_hits(prefix: list[PageRecord]) -> None:
    """Count a hit on each page found; pages of the same node below may have one more, too."""
    for page in prefix:
        page.hits += 1
    for page in (*prefix, *same_node_below(prefix[-1])):
        page.hits_at_most += 1


def usable_by(state: ObservedState, path: list[PageRecord], has: Has) -> int:
    """Return the usable prefix of a path in pages; `has` says which page has which data."""
    table = [
        [has(page, column) for page in path] if column in state.columns else []
        for column in ALL_COLUMNS
    ]
    sizes = (state.config.page_size, state.config.window_tokens or 1)
    return usable(path, table, sizes, state.columns)


def _found_text(key: Key, found: int, what: str, at_least: int, at_most: int) -> Text:
    right = _between(at_least, at_most)
    return lambda: f"a match of {key_in_words(key)} found {found} {what}; there are {right}"


def _between(at_least: int, at_most: int) -> str:
    return f"{at_least}" if at_least == at_most else f"{at_least} to {at_most}"


def _check_slots(state: ObservedState, path: list[PageRecord], slots: Slots) -> None:
    """Check the slots: full ones of all pages, window slots to the first gap, one mamba slot."""
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
        f"{counts[2]} state slots; {len(path)}, {_between(*swa)} and {mamba} are there",
        met=bool(path),
    )
    for column in ALL_COLUMNS if right else ():
        some = slots[COMPONENTS[column]]
        for page, slot in zip(path[len(path) - len(some) :], some, strict=True):
            _check_slot(state, column, page, slot)


def _check_pending(
    state: ObservedState, path: list[PageRecord], pending: tuple[TransferId, ...]
) -> None:
    """Check that the answer names exactly the loads in flight on the prefix."""
    loads = {
        transfer_id: transfer
        for transfer_id, transfer in state.transfers.items()
        if transfer.direction is Direction.LOAD_BACK and not state.loads_usable_at_once
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
    """Check that a slot is its page's; if the page's slot was unknown, record it."""
    owner = state.slots.owners[column].get(slot)
    if column in state.slots.unseen:
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
            f"a match gave {COMPONENTS[column]} slot {slot} for {page.describe(column)}, which is "
            f"{state.slots.describe_owner(column, slot)}"
        ),
    )


def _lost_unseen(state: ObservedState, column: Column, slot: Slot) -> bool:
    """Whether the slot's page may have lost it; if so, record the loss."""
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
    """Check that the bytes of pages' slots are those that were written for them."""
    state.check_each(
        "DATA-1",
        count,
        wrong,
        lambda each: (
            f"{each[0].describe(column)} was read in {COMPONENTS[column]} slot {each[1]}: its "
            f"bytes are {each[2].hex()}, not {next(iter(each[0].content[column])).hex()}"
        ),
    )
