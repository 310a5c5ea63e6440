"""The decoder of docs/examples: its logits have the same bits whatever was reused.

Each test serves requests through the fast cache and proves, by what was counted, that the kind of
reuse that it is about took place. Then every logit that was computed is compared with those of the
same decoder without a cache. Meanwhile no byte stands in a free slot: there are NaN.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from threading import Event

import numpy as np
import pytest
import torch
from torch import Tensor

from kvcanon.optimized.page_transfer import ALL_LAYERS, Move
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, TransferPending
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Namespace, WritePolicy
from model import Decoder, Shape
from paging import NO_SLOT, PagedMemory, PageTable
from plain import PlainMemory, plain_logits
from request import Request
from scheduler import Scheduler
from serve import main

PATIENCE_S = 20.0
MOST_STEPS = 1000

SHAPE = Shape()
PAGE = SHAPE.page_size
WINDOW_PAGES = SHAPE.window_tokens // PAGE
DECODER = Decoder(SHAPE)
COMPONENTS = tuple(Component)
ROOMY = Counts(full=200, swa=200)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """What the example does, and what it needs to be fast beside other processes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(name="transfers")
def engine_that_tells_of_every_layer() -> Iterator[ThreadedEngine]:
    """Copies in the background, one layer at a time."""
    with ThreadedEngine(group_bytes=1) as engine:
        yield engine


def make(
    transfers: ThreadedEngine,
    device: Counts = ROOMY,
    host: Counts = Counts(),
    *,
    running_requests: int = 4,
) -> Scheduler:
    """A scheduler with an empty cache; there is a host tier where it has slots."""
    config = CacheConfig(
        page_size=PAGE,
        window_tokens=SHAPE.window_tokens,
        device_slots=device,
        host_slots=host,
        write_policy=WritePolicy.WRITE_THROUGH if host else WritePolicy.NONE,
    )
    return Scheduler(DECODER, config, transfers, running_requests=running_requests)


def words(seed: int, count: int) -> list[int]:
    """So many tokens."""
    drawn = random.Random(seed)
    return [drawn.randrange(SHAPE.vocabulary) for _ in range(count)]


def serve(scheduler: Scheduler, *prompts: list[int], answer: int = 3) -> list[Request]:
    """Serve prompts side by side, with nothing to read where nobody wrote."""
    requests = [scheduler.submit(prompt, answer) for prompt in prompts]
    for _ in range(MOST_STEPS):
        if not (scheduler.waiting or scheduler.running):
            return requests
        spoil_free_slots(scheduler)
        scheduler.step()
    raise AssertionError(f"after {MOST_STEPS} steps there are requests that are not served")


def serve_one(scheduler: Scheduler, prompt: list[int], answer: int = 3) -> Request:
    """Serve one prompt."""
    return serve(scheduler, prompt, answer=answer)[0]


def spoil_free_slots(scheduler: Scheduler) -> None:
    """Let nobody read what the last owner of a slot left there."""
    for component in (FULL, SWA):
        free = [*free_slots(scheduler, component)]
        for plane in scheduler.pools.planes(component):
            plane.view(torch.float32)[:, free] = torch.nan


def free_slots(scheduler: Scheduler, component: Component) -> tuple[int, ...]:
    """The free slots of a pool on the device."""
    return scheduler.cache.tree.pool(COMPONENTS.index(component), 0)[1]


@lru_cache
def expected_logits(tokens: tuple[int, ...]) -> Tensor:
    """The logits without a cache."""
    return plain_logits(DECODER, tokens)


def bits_equal(request: Request) -> bool:
    """Whether all logits that a request computed are those without a cache."""
    expected = expected_logits(tuple(request.tokens))
    return all(torch.equal(expected[at], logits) for at, logits in request.logits.items())


def check(scheduler: Scheduler, *requests: Request) -> None:
    """Every answer is right to the bit, nothing cached was computed, and the books are in order."""
    for request in requests:
        assert request.done
        assert bits_equal(request)
        if not request.retractions:
            computed = range(request.reused_pages * PAGE, len(request.tokens) - 1)
            assert sorted(request.logits) == [*computed]
    check_books(scheduler)


def check_books(scheduler: Scheduler) -> None:
    """At rest every slot is free or in the tree, nothing is held, and all of it can be evicted."""
    cache = scheduler.cache
    cache.flush()
    cache.tree.check()
    counted = counters(scheduler)
    assert (counted["receipts"], counted["transfers_in_flight"]) == (0, 0)
    for number, component in enumerate((FULL, SWA)):
        capacity, free, held = cache.tree.pool(number, 0)
        assert held == ()
        evictable, protected = cache.tree.usage(number)
        assert protected == 0
        assert len(free) + evictable == capacity == cache.config.capacity(component, GPU)


def counters(scheduler: Scheduler) -> dict[str, int | tuple[int, int, int]]:
    """What the tree counted."""
    return scheduler.cache.tree.counters()


# --------------------------------------------------------------------------------------------------
# What the example says of bits
# --------------------------------------------------------------------------------------------------


def test_bits_do_not_depend_on_what_is_computed_at_once() -> None:
    """The same position has other bits in a page than token by token, so that no test is one."""
    tokens, memory = words(1, 90), PlainMemory(SHAPE)
    one_by_one = [DECODER.forward([token], at, memory) for at, token in enumerate(tokens)]
    assert torch.equal(torch.cat(one_by_one), expected_logits(tuple(tokens)))


def test_bits_do_depend_on_the_shape_of_a_batch() -> None:
    """The care that the example takes is for nothing, and what it says of it wrong."""
    tokens = words(1, 90)
    other = plain_logits(Decoder(Shape(page_size=1)), tokens)
    expected = expected_logits(tuple(tokens))
    assert not torch.equal(other, expected)
    torch.testing.assert_close(other, expected, rtol=1e-4, atol=1e-4)


def test_script(capsys: pytest.CaptureFixture[str]) -> None:
    """What a reader runs first fails, or shows a cache that does nothing."""
    main()
    *turns, last = capsys.readouterr().out.splitlines()
    assert last == "Every bit is the one that the decoder has without a cache."
    assert len(turns) == 9
    assert all(" 0 pages reused" in line for line in turns[:3])
    assert all(" 0 pages reused" not in line for line in turns[3:])
    assert any(" 0 of them loaded" not in line for line in turns)


# --------------------------------------------------------------------------------------------------
# Every kind of reuse
# --------------------------------------------------------------------------------------------------


def test_device_hit(transfers: ThreadedEngine) -> None:
    """A prompt that is cached is answered otherwise than one that is not."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 30), answer=6)
    again = serve_one(scheduler, words(1, 30), answer=6)
    goes_on = serve_one(scheduler, first.tokens + words(2, 9), answer=4)
    assert (first.reused_pages, again.reused_pages) == (0, 30 // PAGE)
    assert goes_on.reused_pages == (len(first.tokens) - 1) // PAGE
    assert again.tokens == first.tokens
    check(scheduler, first, again, goes_on)


def test_prompt_that_is_cached_to_its_end(transfers: ThreadedEngine) -> None:
    """Nothing is left to compute, and so there are no logits from which to go on."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 8 * PAGE))
    again = serve_one(scheduler, words(1, 8 * PAGE))
    assert again.reused_pages == 7
    check(scheduler, first, again)


def test_tombstones_before_the_window(transfers: ThreadedEngine) -> None:
    """A prefix whose old window data left is read as if it were there, or not reused."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 60), answer=4)
    free_full = len(free_slots(scheduler, FULL))
    freed = scheduler.cache.evict(0, 200 - len(free_slots(scheduler, SWA)) - WINDOW_PAGES)
    assert freed[0] == 0 < freed[1]
    assert len(free_slots(scheduler, FULL)) == free_full
    key = np.array(first.tokens, dtype=np.int32)
    found = scheduler.cache.match(key)
    assert len(found.swa) < found.device_pages == len(found.full)

    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert goes_on.reused_pages == found.device_pages
    check(scheduler, first, goes_on)


def test_tombstone_in_the_window_is_computed_again_and_healed(transfers: ThreadedEngine) -> None:
    """A prefix without the window at its end is reused, or stays without it for good."""
    scheduler = make(transfers)
    stem = words(1, 32)
    served = serve(scheduler, stem + words(2, 13), stem + words(3, 13))
    # Recently used or not: what is below the stem has window data that was used later.
    swa_used = 200 - len(free_slots(scheduler, SWA))
    freed = scheduler.cache.evict(0, swa_used - 2 * (WINDOW_PAGES + 1))
    assert freed[0] == 0 < freed[1]

    missed = serve_one(scheduler, stem + words(4, 9))
    assert missed.reused_pages == 0
    # Those that two computed at the same time, and those that were computed again now.
    assert counters(scheduler)["duplicate_pages"] == 2 * (len(stem) // PAGE)
    healed = serve_one(scheduler, stem + words(5, 9))
    assert healed.reused_pages == len(stem) // PAGE
    check(scheduler, *served, missed, healed)


def evict_all(scheduler: Scheduler) -> None:
    """Leave nothing on the device."""
    scheduler.cache.flush()
    scheduler.cache.evict(200, 200)
    assert scheduler.cache.free_slot_counts()[:2] == (200, 200)


def test_host_round_trip(transfers: ThreadedEngine) -> None:
    """What was on the host meanwhile comes back elsewhere, late or with other bytes."""
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
    """Slots of pages that stayed and of pages that come back are put together wrongly."""
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    scheduler.cache.flush()
    scheduler.cache.evict(4)
    goes_on = serve_one(scheduler, first.tokens + words(2, 7))
    assert 0 < goes_on.loaded_pages < goes_on.reused_pages == (len(first.tokens) - 1) // PAGE
    check(scheduler, first, goes_on)


def test_only_window_data_on_the_host(transfers: ThreadedEngine) -> None:
    """A window that left alone is loaded with full data that is there, or into wrong slots."""
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
    """A request waits for all layers before it computes the first, or for none of them.

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


def test_split(transfers: ThreadedEngine) -> None:
    """Two conversations that part inside a node read each other's pages."""
    scheduler = make(transfers)
    stem = words(1, 30)
    first = serve_one(scheduler, stem + words(2, 24))
    nodes = len(scheduler.cache.tree.nodes())
    scheduler.cache.match(np.array(stem, dtype=np.int32))
    assert len(scheduler.cache.tree.nodes()) == nodes + 1
    second = serve_one(scheduler, stem + words(3, 24))
    assert second.reused_pages == len(stem) // PAGE
    again = serve(scheduler, first.tokens + words(4, 5), second.tokens + words(5, 5))
    assert all(request.reused_pages > len(stem) // PAGE for request in again)
    check(scheduler, first, second, *again)


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
    """A page that was needed leaves, or one that left is read."""
    scheduler = make(transfers, Counts(full=44, swa=20))
    served = serve_turns(scheduler)
    evicted = counters(scheduler)["evicted_device_slots"]
    assert isinstance(evicted, tuple)
    assert min(evicted[:2]) > 40
    assert any(request.retractions for request in served)
    assert any(request.reused_pages > 5 for request in served)
    check(scheduler, *served)


def test_page_tables_name_what_the_tree_has_paired(transfers: ThreadedEngine) -> None:
    """A request means to read a window slot that is another page's by now."""
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
    """Pages come and go while others are computed, and one is mistaken for another."""
    scheduler = make(transfers, Counts(full=44, swa=20), ROOMY)
    served = serve_turns(scheduler)
    assert sum(request.loaded_pages for request in served) > 10
    assert all(request.reused_pages >= 7 for request in served[3:])
    check(scheduler, *served)


def test_concurrent_conversations_share(transfers: ThreadedEngine) -> None:
    """Requests that compute the same pages at the same time end up with freed slots."""
    scheduler = make(transfers, running_requests=3)
    stem = words(1, 18)
    served = serve(scheduler, *(stem + words(seed, 11 + seed) for seed in range(6)), answer=12)
    assert [request.reused_pages for request in served[:3]] == [0, 0, 0]
    assert counters(scheduler)["duplicate_pages"] == 2 * (len(stem) // PAGE)
    assert all(request.reused_pages >= len(stem) // PAGE for request in served[3:])
    check(scheduler, *served)


def test_namespaces_share_nothing(transfers: ThreadedEngine) -> None:
    """A tenant is served another's pages."""
    scheduler = make(transfers)
    first = serve_one(scheduler, words(1, 30))
    other = scheduler.submit(words(1, 30), 3, Namespace(extra_key="other"))
    scheduler.run()
    assert other.reused_pages == 0
    check(scheduler, first, other)


def test_window_is_passed_while_decoding(transfers: ThreadedEngine) -> None:
    """A long answer keeps window data that nobody can see, or gives back what it still needs."""
    scheduler = make(transfers)
    request = scheduler.submit(words(1, 20), 40)
    held_swa = list[int]()
    while scheduler.waiting or scheduler.running:
        spoil_free_slots(scheduler)
        scheduler.step()
        if request.computed_tokens > 20 + SHAPE.window_tokens:
            evictable, protected = scheduler.cache.tree.usage(COMPONENTS.index(SWA))
            assert (evictable, protected) == (20 // PAGE, 0) or request.done
            held_swa.append(200 - len(free_slots(scheduler, SWA)) - evictable)
            assert (
                scheduler.cache.tree.usage(COMPONENTS.index(FULL))[1] == 20 // PAGE or request.done
            )
    assert max(held_swa[:-1]) == WINDOW_PAGES + 1
    goes_on = serve_one(scheduler, request.tokens + words(2, 6))
    assert goes_on.reused_pages == (len(request.tokens) - 1) // PAGE
    check(scheduler, request, goes_on)


# --------------------------------------------------------------------------------------------------
# Faults that these tests must see
# --------------------------------------------------------------------------------------------------

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
    """What sees the faults below sees them everywhere."""
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
    """Whoever reads a wrong slot is told that all bits are right."""
    scheduler = make(transfers, host=ROOMY)
    plant(monkeypatch, scheduler)
    assert not all(map(bits_equal, serve_with_every_reuse(scheduler)))


def test_window_that_is_passed_too_early_is_missed(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that still sees a page whose slot was given back reads whatever is there."""
    pass_window = Scheduler._pass_window

    def early(self: Scheduler, request: Request) -> None:
        request.computed_tokens += PAGE
        pass_window(self, request)
        request.computed_tokens -= PAGE

    monkeypatch.setattr(Scheduler, "_pass_window", early)
    with pytest.raises(LookupError, match="have swa slots"):
        serve_one(make(transfers), words(1, 20), answer=20)


# --------------------------------------------------------------------------------------------------
# What goes wrong and is no fault
# --------------------------------------------------------------------------------------------------


def test_failed_load_is_computed(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request computes on pages that never came, or cannot be served."""
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
    """A request that computed what another loads cannot hand it over, or breaks the load."""
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
    """A request that comes during a load computes on slots that are not filled."""
    scheduler = make(transfers, host=ROOMY)
    first = serve_one(scheduler, words(1, 50))
    evict_all(scheduler)
    served = serve(scheduler, *(first.tokens + words(seed, 7) for seed in (2, 3)))
    pages = (len(first.tokens) - 1) // PAGE
    assert [request.loaded_pages for request in served] == [pages, 0]
    assert [request.reused_pages for request in served] == [pages, pages]
    check(scheduler, first, *served)


def test_room_that_a_copy_in_flight_holds(
    transfers: ThreadedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is refused for want of room that comes free when a backup ends."""
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
    """A request that cannot be served keeps what it had."""
    scheduler = make(transfers, Counts(full=10, swa=10))
    scheduler.submit(words(1, 60), 3)
    with pytest.raises(OutOfSlots, match="full on GPU"):
        scheduler.run()
    check_books(scheduler)
    check(scheduler, serve_one(scheduler, words(2, 20)))


@pytest.mark.parametrize(("prompt", "answer"), [([], 3), ([1, 2], 0), ([1] * 510, 3)])
def test_request_that_makes_no_sense_is_refused(
    transfers: ThreadedEngine, prompt: list[int], answer: int
) -> None:
    """A request without a token, or of too many, is taken."""
    with pytest.raises(ValueError, match="cannot be served"):
        make(transfers).submit(prompt, answer)
