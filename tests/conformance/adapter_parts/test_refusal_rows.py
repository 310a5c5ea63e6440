"""Each row of the table of refusals: the parts refuse it, or only the cache can know it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import pytest

from adapter_page import TABLES
from kvcanon.conformance.adapter_parts.arguments import (
    check_allocate,
    check_evict,
    check_insert_host,
    check_key,
    check_load_back,
    check_settle,
)
from kvcanon.conformance.adapter_parts.receipts import Receipts
from kvcanon.conformance.adapter_parts.slot_ledger import SlotLedger
from kvcanon.conformance.adapter_parts.slot_memory import SlotMemory
from kvcanon.conformance.adapter_parts.tree_view import TreeView
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.refusals import cells
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Key, Slots, WritePolicy

Call: TypeAlias = Callable[[], object]
CONFIG = CacheConfig(
    page_size=2,
    window_tokens=2,
    device_slots=Counts(4, 2, 0),
    host_slots=Counts(4, 2, 0),
    write_policy=WritePolicy.WRITE_BACK,
    slot_bytes=2,
)
NO_HOST = CacheConfig(page_size=2, window_tokens=2, device_slots=Counts(4, 2, 0), slot_bytes=2)
KEY = Key(((1, 2), (3, 4)))
TORN = Key(((1, 2), (3,)))
BIGRAMS = Key((((1, 2), (2, 3)),))
LARGE = Key(((1, 2**32),))
WRONG_KEYS = (TORN, BIGRAMS, LARGE)
VIEW = TreeView[None](2, lambda _: (), lambda _: (), lambda _: ())
"""A tree with nothing in it."""


def of_ledger(call: Callable[[SlotLedger, Slots], object]) -> Call:
    """A call of a ledger, with the slots of a request: two pages, of which the last is paired."""

    def made() -> object:
        ledger = SlotLedger.of_config(CONFIG)
        return call(ledger, ledger.allocate(Counts(2, 1, 0)))

    return made


def of_receipts(call: Callable[[Receipts[str], Receipt], object]) -> Call:
    """A call of receipts, of which one is open."""

    def made() -> object:
        receipts = Receipts[str]()
        return call(receipts, receipts.issue(KEY, "node"))

    return made


def spent_twice(receipts: Receipts[str], receipt: Receipt) -> None:
    """Release a receipt, and again."""
    receipts.spend(receipt)
    receipts.spend(receipt)


def copies_alone(receipts: Receipts[str], receipt: Receipt) -> None:
    """Ask for a reset when no receipt of a request is open, and a copy is in flight."""
    receipts.spend(receipt)
    receipts.check_none_open(copies_in_flight=1)


def payload(pages: int, windows: int = 0, size: int = 2) -> HostPayload:
    """Bytes of pages, and window data of the last ones."""
    return HostPayload((b"x" * size,) * pages, (b"x" * size,) * windows)


def settled(*named: tuple[int, bool]) -> Call:
    """A settlement where backups 1 and 2 have arrived, and load 3, which failed."""
    arrived = [(Completion(1, True), Completion(2, True)), (Completion(3, False),)]
    return lambda: check_settle([Completion(*each) for each in named], arrived)


def wrong_keys() -> list[Call]:
    """Checks of keys of which each is wrong."""
    return [partial(check_key, CONFIG, key) for key in WRONG_KEYS]


ROWS: dict[tuple[str, str], list[Call]] = {
    ("match", "BadArgument"): wrong_keys(),
    ("lock", "BadArgument"): wrong_keys(),
    ("lock", "PrefixNotCached"): [lambda: VIEW.end_of(None, KEY)],
    ("unlock", "ReceiptSpent"): [
        of_receipts(spent_twice),
        of_receipts(lambda receipts, receipt: receipts.spend(Receipt(9, receipt.key))),
        of_receipts(lambda receipts, receipt: receipts.spend(Receipt(receipt.receipt_id, TORN))),
    ],
    ("unlock_window", "ReceiptSpent"): [
        of_receipts(lambda receipts, receipt: receipts.handle_of(Receipt(9, receipt.key))),
    ],
    ("allocate", "BadArgument"): [
        lambda: check_allocate(Counts(full=-1)),
        of_ledger(lambda ledger, _: ledger.allocate(Counts(full=-1))),
        of_ledger(lambda ledger, _: ledger.allocate(Counts(mamba=1))),
        of_ledger(lambda ledger, _: ledger.allocate(Counts(full=1, swa=2))),
        of_ledger(lambda ledger, _: ledger.check_allocate(Counts(full=1, swa=2))),
    ],
    ("allocate", "OutOfSlots"): [
        of_ledger(lambda ledger, _: ledger.allocate(Counts(full=3))),
        of_ledger(lambda ledger, _: ledger.check_allocate(Counts(full=2, swa=2))),
    ],
    ("free", "BadArgument"): [
        of_ledger(lambda ledger, slots: ledger.free(Slots(slots.full + slots.full[:1]))),
        of_ledger(lambda ledger, slots: ledger.free(Slots(slots.full, mamba=(0,)))),
        of_ledger(lambda ledger, slots: ledger.check_pairs_together(Slots(slots.full))),
    ],
    ("free", "SlotNotHeld"): [of_ledger(lambda ledger, _: ledger.free(Slots((9,))))],
    ("insert", "BadArgument"): [
        *wrong_keys(),
        of_ledger(lambda ledger, slots: ledger.check_insert(KEY, 1, slots)),
        of_ledger(lambda ledger, slots: ledger.check_insert(KEY, 0, slots, 3)),
        of_ledger(lambda ledger, slots: ledger.check_insert(KEY, 0, Slots(slots.full))),
        of_ledger(lambda ledger, s: ledger.check_insert(KEY, 0, Slots(s.full[::-1], s.swa))),
        of_ledger(lambda ledger, s: ledger.check_insert(KEY, 0, Slots(s.full[:1] * 2, s.swa))),
    ],
    ("insert", "SlotNotHeld"): [
        of_ledger(lambda ledger, slots: ledger.check_insert(KEY, 0, Slots((8, 9), slots.swa))),
    ],
    ("insert", "PrefixNotCached"): [lambda: VIEW.indices_of(None, KEY)],
    ("evict", "BadArgument"): [lambda: check_evict(Counts(swa=-1))],
    ("evict_host", "BadArgument"): [lambda: check_evict(Counts(mamba=-1))],
    ("load_back", "BadArgument"): [
        *(partial(check_load_back, CONFIG, key) for key in WRONG_KEYS),
        lambda: check_load_back(CONFIG, KEY, -1),
    ],
    ("load_back", "PrefixNotCached"): [lambda: VIEW.end_of(None, KEY)],
    ("insert_host", "BadArgument"): [
        lambda: check_insert_host(CONFIG, TORN, 0, payload(2)),
        lambda: check_insert_host(NO_HOST, KEY, 0, payload(2)),
        lambda: check_insert_host(CONFIG, KEY, 3, payload(0)),
        lambda: check_insert_host(CONFIG, KEY, 0, payload(1)),
        lambda: check_insert_host(CONFIG, KEY, 1, payload(1, windows=2)),
        lambda: check_insert_host(CONFIG, KEY, 0, payload(2, size=3)),
        lambda: check_insert_host(CONFIG, KEY, 0, HostPayload((b"xx",) * 2, mamba=(b"xx",))),
    ],
    ("insert_host", "PrefixNotCached"): [lambda: VIEW.indices_of(None, KEY)],
    ("settle", "BadArgument"): [
        settled((4, True)),
        settled((1, True), (1, True)),
        settled((1, True), (1, False)),
        settled((2, True)),
        settled((3, True)),
    ],
    ("reset", "CacheBusy"): [
        of_receipts(lambda receipts, _: receipts.check_none_open()),
        of_receipts(copies_alone),
    ],
    ("write", "BadArgument"): [lambda: SlotMemory(CONFIG).write(FULL, 0, b"x")],
    ("write", "SlotNotHeld"): [of_ledger(lambda ledger, _: ledger.check_writable(FULL, 9))],
    ("read", "BadArgument"): [
        lambda: SlotMemory(CONFIG).read(FULL, GPU, 4),
        lambda: SlotMemory(CONFIG).read(FULL, CPU, 0),
    ],
}
"""By operation and error: calls of parts that are refused so."""
THE_CACHE_KNOWS = {
    ("insert", "TransferPending"),
    ("load_back", "TransferPending"),
    ("store", "BadArgument"),
    ("prefetch", "BadArgument"),
    ("end_prefetch", "BadArgument"),
}
"""Which loads and which orders of a store are in flight is in no record of an adapter."""


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_parts_refuse_the_row(row: tuple[str, str]) -> None:
    """Each call is refused with the error of its row."""
    for call in ROWS[row]:
        with pytest.raises(Exception, match=r".") as caught:
            call()
        assert type(caught.value).__name__ == row[1]


def test_every_row_is_here() -> None:
    """The parts refuse what the table has, but for what only the cache knows."""
    rows = {(operation, error) for operation, error, _ in cells()}
    assert set(ROWS) | THE_CACHE_KNOWS == rows
    assert not set(ROWS) & THE_CACHE_KNOWS


def test_page_for_authors_has_every_row() -> None:
    """The table of what an adapter must refuse names each operation with each of its errors."""
    listed = TABLES["a call | is refused with | by the part"]
    named = {
        (operation, error)
        for call, errors, _ in listed
        for operation in re.findall(r"`(\w+)`", call)
        for error in re.findall(r"`(\w+)`", errors)
    }
    assert {(operation, error) for operation, error, _ in cells()} <= named


def test_right_calls_are_served() -> None:
    """What the judge may ask for is refused by none of these checks."""
    for key in (Key(()), KEY):
        check_key(CONFIG, key)
        check_load_back(CONFIG, key, 0)
    check_key(CacheConfig(page_size=2, bigram=True), BIGRAMS)
    check_insert_host(CONFIG, KEY, 1, payload(1, windows=1))
    for named in ((), ((1, True),), ((2, False), (1, True)), ((3, False),)):
        settled(*named)()
    Receipts[str]().check_none_open()


def test_pairs_last_until_either_is_freed() -> None:
    """A full slot whose window slot is free is handed over alone, as after a slide."""
    ledger = SlotLedger.of_config(CONFIG)
    slots = ledger.allocate(Counts(2, 2, 0))
    assert ledger.full_slots_of(slots.swa) == slots.full
    ledger.check_pairs_together(slots)
    ledger.check_pairs_together(Slots(swa=slots.swa[:1]))
    ledger.free(Slots(swa=slots.swa[:1]))
    ledger.check_insert(KEY, 0, Slots(slots.full, slots.swa[1:]))
    ledger.check_pairs_together(Slots(slots.full[:1]))
    ledger.hand_over(Slots(slots.full, slots.swa[1:]))
    again = ledger.hold(Slots(slots.full, slots.swa[1:]))
    ledger.check_insert(KEY, 0, again)
