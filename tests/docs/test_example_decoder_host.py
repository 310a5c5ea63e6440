"""The decoder of docs/examples with a host tier, too few slots, other layouts, or a planted fault.

Pages that come back, or are computed again, have the same bits; and the tests of the bits see each
planted fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

import pytest
from torch import Tensor

from decoder_layouts import LAYOUTS, allocate_as
from example_decoder import (
    PAGE,
    PATIENCE_S,
    ROOMY,
    WINDOW_PAGES,
    bits_equal,
    check,
    check_books,
    counters,
    evict_all,
    free_slots,
    make,
    serve,
    serve_one,
    words,
)
from kvcanon.optimized.engine_tensors import TENSOR_LAYOUTS
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import OutOfSlots, TransferPending
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import SWA, Counts
from paging import NO_SLOT, PagedMemory, PageTable
from request import Request
from scheduler import Scheduler

pytestmark = pytest.mark.usefixtures("_one_thread")


def evicted(transfers: ThreadedEngine, answer: int = 3) -> tuple[Scheduler, Request]:
    """A request that was served, all of whose pages are on the host alone."""
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50), answer)
    evict_all(scheduler)
    return scheduler, first


def test_host_round_trip(transfers: ThreadedEngine) -> None:
    """Pages that were on the host meanwhile come back with the same bits."""
    scheduler, first = evicted(transfers, answer=6)
    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    pages = (len(first.tokens) - 1) // PAGE
    assert goes_on.reused_pages == goes_on.loaded_pages == pages
    assert goes_on.loaded_window_pages == WINDOW_PAGES
    assert counters(scheduler)["load_backs"] == 1
    check(scheduler, first, goes_on)


def test_part_on_the_host(transfers: ThreadedEngine) -> None:
    """Pages that stayed and pages that come back are read in their order."""
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    scheduler.cache.flush()
    scheduler.cache.evict(4)
    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert 0 < goes_on.loaded_pages < goes_on.reused_pages == (len(first.tokens) - 1) // PAGE
    check(scheduler, first, goes_on)


def test_only_window_data_on_the_host(transfers: ThreadedEngine) -> None:
    """A window that left alone is loaded alone."""
    scheduler = make(transfers, host=ROOMY)
    stem = words(1, 32)
    served = serve(scheduler, stem + words(2, 13), stem + words(3, 13))
    scheduler.cache.flush()
    swa_used = 200 - len(free_slots(scheduler, SWA))
    scheduler.cache.evict(0, swa_used - 2 * (WINDOW_PAGES + 1))
    goes_on = serve_one(scheduler, stem + words(4, 9))
    assert (goes_on.reused_pages, goes_on.loaded_pages) == (len(stem) // PAGE, 0)
    assert goes_on.loaded_window_pages == WINDOW_PAGES
    check(scheduler, *served, goes_on)


def test_compute_begins_before_the_load_has_ended(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request computes the first layer before the second is loaded, and waits for the second.

    The second layer of each component is copied only once the first was read.
    """
    scheduler, first = evicted(transfers, answer=6)
    happened, first_layer_read = list[tuple[str, int]](), Event()
    copy, read = scheduler.pools.copy, PagedMemory.read

    def copy_late(move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        if direction is Direction.LOAD_BACK:
            assert layers.start == 0 or first_layer_read.wait(PATIENCE_S)
            happened.append(("copy", layers.start))
        copy(move, direction, layers)

    def read_and_tell(self: PagedMemory, layer: int, start: int, end: int) -> tuple[Tensor, Tensor]:
        happened.append(("read", layer // 2))
        answer = read(self, layer, start, end)
        first_layer_read.set()
        return answer

    monkeypatch.setattr(scheduler.pools, "copy", copy_late)
    monkeypatch.setattr(PagedMemory, "read", read_and_tell)
    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert goes_on.loaded_pages == (len(first.tokens) - 1) // PAGE
    assert happened.index(("read", 0)) < happened.index(("copy", 1))
    assert happened.index(("copy", 1)) < happened.index(("read", 1))
    check(scheduler, first, goes_on)


def test_failed_load_is_computed(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed load a request computes the pages itself."""
    scheduler, first = evicted(transfers)
    copy = scheduler.pools.copy

    def fail_at_the_second_layer(
        move: Move, direction: Direction, layers: slice = ALL_LAYERS
    ) -> None:
        if direction is Direction.LOAD_BACK and layers.start == 1:
            raise OSError("the test lets this copy fail")
        copy(move, direction, layers)

    monkeypatch.setattr(scheduler.pools, "copy", fail_at_the_second_layer)
    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert counters(scheduler)["transfers_failed"] == 1
    assert (goes_on.retractions, goes_on.reused_pages, goes_on.loaded_pages) == (1, 0, 0)
    assert sorted(goes_on.logits) == [*range(len(goes_on.tokens) - 1)]
    check(scheduler, first, goes_on)


def test_pages_that_another_request_loads(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that computed what another loads waits for the load, then hands its pages over."""
    scheduler, first = evicted(transfers)
    copy, insert, refused = scheduler.pools.copy, scheduler.cache.insert, Event()

    def copy_after_a_refusal(move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        assert direction is Direction.BACKUP or refused.wait(PATIENCE_S)
        copy(move, direction, layers)

    def insert_and_tell(*slots: object, **rest: object) -> object:
        try:
            return insert(*slots, **rest)  # type: ignore[arg-type] # Whatever it was given.
        except TransferPending:
            refused.set()
            raise

    monkeypatch.setattr(scheduler.pools, "copy", copy_after_a_refusal)
    monkeypatch.setattr(scheduler.cache, "insert", insert_and_tell)
    computes = scheduler.submit(first.tokens + words(2, 7), 3)
    computes.may_load = False
    loads = scheduler.submit(first.tokens + words(3, 7), 3)
    scheduler.run()
    assert (computes.reused_pages, loads.loaded_pages) == (0, (len(first.tokens) - 1) // PAGE)
    assert refused.is_set()
    check(scheduler, first, computes, loads)


def test_request_waits_for_what_another_loads(transfers: ThreadedEngine) -> None:
    """A request that comes during a load waits for it, and reuses the loaded pages."""
    scheduler, first = evicted(transfers)
    served = serve(scheduler, *(first.tokens + words(seed, 7) for seed in (2, 3)))
    pages = (len(first.tokens) - 1) // PAGE
    assert [request.loaded_pages for request in served] == [pages, 0]
    assert [request.reused_pages for request in served] == [pages, pages]
    check(scheduler, first, *served)


def serve_turns(scheduler: Scheduler) -> list[Request]:
    """Three conversations of three turns, side by side."""
    conversations = [words(seed, 40) for seed in range(3)]
    served = list[Request]()
    for turn in range(3):
        requests = serve(scheduler, *conversations, answer=8)
        served += requests
        conversations = [each.tokens + words(turn, 10) for each in requests]
    return served


def test_eviction_under_pressure(transfers: ThreadedEngine) -> None:
    """With too few slots pages leave, and every bit is right."""
    scheduler = make(transfers, Counts(full=44, swa=20))
    served = serve_turns(scheduler)
    evicted = counters(scheduler)["evicted_device_slots"]
    assert isinstance(evicted, tuple)
    assert min(evicted[:2]) > 40
    assert any(request.retractions for request in served)
    assert any(request.reused_pages > 5 for request in served)
    check(scheduler, *served)


def test_page_tables_name_what_the_tree_has_paired(transfers: ThreadedEngine) -> None:
    """Each window slot of a page table is paired with the full slot of its page."""
    scheduler = make(transfers, Counts(full=44, swa=20))
    for seed in range(3):
        scheduler.submit(words(seed, 60), 20)
    named = 0
    while scheduler.waiting or scheduler.running:
        scheduler.step()
        pairs = scheduler.cache.tree.pairs()
        for request in scheduler.running:
            for full, swa in zip(request.table.full, request.table.swa, strict=True):
                assert swa in (NO_SLOT, pairs.get(full))
                named += swa != NO_SLOT
    assert named > 100


def test_eviction_to_the_host_under_pressure(transfers: ThreadedEngine) -> None:
    """Pages move between device and host while others are computed, and every bit is right."""
    scheduler = make(transfers, Counts(full=44, swa=20), ROOMY)
    served = serve_turns(scheduler)
    assert sum(request.loaded_pages for request in served) > 10
    assert all(request.reused_pages >= 7 for request in served[3:])
    check(scheduler, *served)


def test_room_that_a_copy_in_flight_holds(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request waits for slots that come free when a backup ends."""
    scheduler = make(transfers, Counts(full=8, swa=8), ROOMY)
    copy, flush, flushed = scheduler.pools.copy, scheduler.cache.flush, Event()

    def copy_after_the_flush(move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        assert flushed.wait(PATIENCE_S)
        copy(move, direction, layers)

    def flush_and_tell() -> list[tuple[int, TransferStatus]]:
        if scheduler.running:
            flushed.set()
        return flush()

    monkeypatch.setattr(scheduler.pools, "copy", copy_after_the_flush)
    monkeypatch.setattr(scheduler.cache, "flush", flush_and_tell)
    short, long = scheduler.submit(words(1, 12), 1), scheduler.submit(words(2, 12), 20)
    scheduler.run()
    assert flushed.is_set()
    assert long.retractions == 0
    check(scheduler, short, long)


def test_request_that_is_too_large_gives_all_back(transfers: ThreadedEngine) -> None:
    """A request that cannot be served gives all of its slots back."""
    scheduler = make(transfers, Counts(full=10, swa=10))
    scheduler.submit(words(1, 60), 3)
    with pytest.raises(OutOfSlots, match="full on GPU"):
        scheduler.run()
    check_books(scheduler)
    check(scheduler, serve_one(scheduler, words(2, 20)))


DEVICE, HOST = Counts(full=200, swa=200), Counts(full=300, swa=300)


def test_every_named_layout_is_served() -> None:
    """There is a case for each name."""
    assert {name.split(",")[0] for name in LAYOUTS} == set(TENSOR_LAYOUTS)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_bits_do_not_depend_on_the_layout(name: str, transfers: ThreadedEngine) -> None:
    """Device hits, and pages that come back from the host, give the bits of a plain decoder."""
    scheduler = make(transfers, DEVICE, HOST, allocated=allocate_as(name))
    stem = words(1, 26)
    served = serve(scheduler, stem + words(2, 7), stem + words(3, 12))
    again = serve_one(scheduler, served[0].tokens + words(4, 5))
    assert again.reused_pages == (len(served[0].tokens) - 1) // PAGE
    evict_all(scheduler)
    loaded = serve_one(scheduler, again.tokens + words(5, 6))
    assert loaded.loaded_pages == loaded.reused_pages == (len(again.tokens) - 1) // PAGE
    check(scheduler, *served, again, loaded)


Patch = pytest.MonkeyPatch


def exchange_full_slots(patch: Patch, scheduler: Scheduler) -> None:
    """Two pages of a match have each other's slots."""
    begin_with = PageTable.begin_with

    def exchanged(self: PageTable, full: Sequence[int], swa: Sequence[int]) -> None:
        begin_with(self, [*full[:-2], *full[:-3:-1]], swa)

    patch.setattr(PageTable, "begin_with", exchanged)


def exchange_window_slots(patch: Patch, scheduler: Scheduler) -> None:
    """Window slots are given to the pages from behind."""
    begin_with = PageTable.begin_with

    def exchanged(self: PageTable, full: Sequence[int], swa: Sequence[int]) -> None:
        begin_with(self, full, swa[::-1])

    patch.setattr(PageTable, "begin_with", exchanged)


def keep_own_slots(patch: Patch, scheduler: Scheduler) -> None:
    """After an insert a request goes on with the slots that it handed over."""
    begin_with = PageTable.begin_with

    def only_new(self: PageTable, full: Sequence[int], swa: Sequence[int]) -> None:
        if not self.full:
            begin_with(self, full, swa)

    patch.setattr(PageTable, "begin_with", only_new)


def wait_for_no_layer(patch: Patch, scheduler: Scheduler) -> None:
    """Pages that are on their way are read, and the copies come late."""
    settling, copy, settle = Event(), scheduler.pools.copy, scheduler._settle

    def copy_late(move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        assert direction is Direction.BACKUP or settling.wait(PATIENCE_S)
        copy(move, direction, layers)

    def settle_and_tell(transfer_id: int) -> None:
        settling.set()
        settle(transfer_id)

    patch.setattr(PagedMemory, "open_layer", lambda self, layer: None)
    patch.setattr(scheduler.pools, "copy", copy_late)
    patch.setattr(scheduler, "_settle", settle_and_tell)


def copy_backwards(patch: Patch, scheduler: Scheduler) -> None:
    """A page comes back as another one."""
    copy = scheduler.pools.copy

    def backwards(move: Move, direction: Direction, layers: slice = ALL_LAYERS) -> None:
        targets = move.targets if direction is Direction.BACKUP else move.targets[::-1]
        copy(Move(move.component, move.sources, targets), direction, layers)

    patch.setattr(scheduler.pools, "copy", backwards)


def serve_with_every_reuse(scheduler: Scheduler) -> list[Request]:
    """Requests that share pages at once, decode beyond a window, and come back from the host."""
    stem = words(1, 18)
    served = serve(scheduler, *(stem + words(seed, 9) for seed in (2, 3)), answer=14)
    served.append(serve_one(scheduler, stem + words(4, 9)))
    evict_all(scheduler)
    served.append(serve_one(scheduler, served[0].tokens + words(5, 6)))
    assert served[3].loaded_pages
    return served


def test_no_fault_is_seen_where_there_is_none(transfers: ThreadedEngine) -> None:
    """Without a planted fault all bits are right."""
    scheduler = make(transfers, host=ROOMY)
    check(scheduler, *serve_with_every_reuse(scheduler))


@pytest.mark.parametrize(
    "plant",
    [
        exchange_full_slots,
        exchange_window_slots,
        keep_own_slots,
        wait_for_no_layer,
        copy_backwards,
    ],
)
def test_fault_is_seen(
    transfers: ThreadedEngine,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Patch, Scheduler], None],
) -> None:
    """A planted fault makes some bits wrong."""
    scheduler = make(transfers, host=ROOMY)
    plant(monkeypatch, scheduler)
    assert not all(map(bits_equal, serve_with_every_reuse(scheduler)))


def test_window_that_is_passed_too_early_is_missed(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that needs a window slot given back too early raises, and reads nothing."""
    pass_window = Scheduler._pass_window

    def early(self: Scheduler, request: Request) -> None:
        request.computed_tokens += PAGE
        pass_window(self, request)
        request.computed_tokens -= PAGE

    monkeypatch.setattr(Scheduler, "_pass_window", early)
    with pytest.raises(LookupError, match="have swa slots"):
        serve_one(make(transfers), words(1, 20), answer=20)
