"""Faults planted in the decoder of docs/examples: the tests of its bits see each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event

import pytest

from example_decoder import (
    PAGE,
    PATIENCE_S,
    ROOMY,
    bits_equal,
    check,
    evict_all,
    make,
    serve,
    serve_one,
    words,
)
from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.transfer import Direction
from paging import PagedMemory, PageTable
from request import Request
from scheduler import Scheduler

pytestmark = pytest.mark.usefixtures("_one_thread")


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
