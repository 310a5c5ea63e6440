"""The decoder of docs/examples with a host tier: pages that come back have the same bits."""

from __future__ import annotations

from threading import Event

import pytest
from torch import Tensor

from example_decoder import (
    PAGE,
    PATIENCE_S,
    ROOMY,
    WINDOW_PAGES,
    check,
    counters,
    evict_all,
    free_slots,
    make,
    serve,
    serve_one,
    words,
)
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import TransferPending
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import SWA
from paging import PagedMemory

pytestmark = pytest.mark.usefixtures("_one_thread")


def test_host_round_trip(transfers: ThreadedEngine) -> None:
    """Pages that were on the host meanwhile come back with the same bits."""
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50), answer=6)
    evict_all(scheduler)
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
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50), answer=6)
    evict_all(scheduler)
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
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    evict_all(scheduler)
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
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    evict_all(scheduler)
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
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    evict_all(scheduler)
    served = serve(scheduler, *(first.tokens + words(seed, 7) for seed in (2, 3)))
    pages = (len(first.tokens) - 1) // PAGE
    assert [request.loaded_pages for request in served] == [pages, 0]
    assert [request.reused_pages for request in served] == [pages, pages]
    check(scheduler, first, *served)
