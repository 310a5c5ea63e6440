"""The decoder of docs/examples with too few slots: evicted pages are computed or loaded again."""

from __future__ import annotations

from threading import Event

import pytest

from example_decoder import (
    PATIENCE_S,
    ROOMY,
    check,
    check_books,
    counters,
    make,
    serve,
    serve_one,
    words,
)
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import Counts
from paging import NO_SLOT
from request import Request
from scheduler import Scheduler

pytestmark = pytest.mark.usefixtures("_one_thread")


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
