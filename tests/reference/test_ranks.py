"""Ranks: a look shows what has arrived, and a settlement settles what all ranks agree on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from attrs import evolve

from kvcanon.optimized.cache import OptimizedCache
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheError, SpecViolation
from kvcanon.spec.transfer import Arrival, Completion, TransferStatus, arrived_on_all
from kvcanon.spec.types import CPU, FULL, GPU, Counts, TransferId, make_key
from scenes import Scene

THROUGH = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
BACK = evolve(THROUGH, write_policy="write_back")
DONE, FAILED, CANCELLED = TransferStatus.DONE, TransferStatus.FAILED, TransferStatus.CANCELLED
WAITING = Arrival.WAITING

Make = Callable[..., Cache]
each_cache = pytest.mark.parametrize("make", [ReferenceCache, OptimizedCache])


def new(make: Make, config: CacheConfig = THROUGH, **more: object) -> tuple[Cache, ManualEngine]:
    """A cache and its engine, whose copies end when the test says so."""
    engine = ManualEngine()
    return make(config, engine, **more), engine


def back_up(cache: Cache, *prompts: str) -> list[TransferId]:
    """Insert prompts; the backup of each, which builds on those before."""
    return [Scene(cache, ManualEngine()).put(prompt).backups[0] for prompt in prompts]


def three(cache: Cache) -> list[TransferId]:
    """Three backups; each builds on the one before."""
    return back_up(cache, "1", "12", "123")


@each_cache
def test_arrived_only_looks(make: Make) -> None:
    """It shows what can settle, in order, as often as it is asked, and changes nothing."""
    cache, engine = new(make)
    first, second, third = three(cache)
    assert cache.arrived() == ()
    engine.acknowledge(third)
    engine.acknowledge(first)
    before = cache.snapshot()
    # The third waits for the second.
    assert cache.arrived() == (Completion(first, ok=True),)
    assert cache.arrived() == (Completion(first, ok=True),)
    engine.fail(second)
    arrived = tuple(map(Completion, (first, second, third), (True, False, True)))
    assert cache.arrived() == arrived
    assert cache.snapshot() == before
    assert cache.poll().transfers == ((first, DONE), (second, FAILED), (third, CANCELLED))


@each_cache
def test_settle_settles_what_it_is_given(make: Make) -> None:
    """Only the named copies settle, with the outcomes that are named."""
    cache, engine = new(make)
    first, second, third = three(cache)
    for each in (first, second, third):
        engine.acknowledge(each)
    assert cache.settle(()).transfers == ()
    assert cache.settle([Completion(first, ok=True)]).transfers == ((first, DONE),)
    # It failed on another rank, and so did the copy that builds on it.
    named = [Completion(third, ok=True), Completion(second, ok=False)]
    assert cache.settle(named).transfers == ((second, FAILED), (third, CANCELLED))
    assert cache.arrived() == ()
    assert len(cache.free_slots(FULL, CPU)) == 7


WRONG: dict[str, Callable[[list[TransferId]], list[Completion]]] = {
    "is not in flight": lambda _: [Completion(999, ok=True)],
    "whose copy has not ended here": lambda ids: [Completion(ids[1], ok=True)],
    "before an earlier copy": lambda ids: [Completion(ids[2], ok=True)],
    "twice": lambda ids: [Completion(ids[0], ok=False)] * 2,
    "as done, and its copy failed here": lambda ids: [Completion(ids[0], ok=True)],
}


@each_cache
@pytest.mark.parametrize("words", WRONG)
def test_settle_refuses_what_cannot_settle(make: Make, words: str) -> None:
    """A wrong name is refused in one line that names the transfer, and nothing has changed."""
    cache, engine = new(make)
    ids = three(cache)
    engine.fail(ids[0])
    engine.acknowledge(ids[2])
    before = cache.snapshot()
    with pytest.raises(BadArgument, match=words) as refusal:
        cache.settle(WRONG[words](ids))
    assert "\n" not in str(refusal.value)
    assert cache.snapshot() == before
    assert cache.settle([Completion(ids[0], ok=False)]).transfers == ((ids[0], FAILED),)


def test_settle_takes_completions_alone() -> None:
    """What is no list of completions is refused in one line."""
    cache, _ = new(OptimizedCache)
    for wrong in (None, [None], [(1, True)], 3):
        with pytest.raises(BadArgument, match="completions: are not those of `arrived`"):
            cache.settle(wrong)  # type: ignore[arg-type]


def test_ranks_wait_for_the_copy_that_still_runs() -> None:
    """What failed on one rank settles when it has ended on all, as failed."""
    done, failed = Completion(1, ok=True), Completion(1, ok=False)
    later = Completion(2, ok=True)
    assert arrived_on_all([(failed, later), ()]) == ()
    assert arrived_on_all([(failed, later), (done,)]) == (failed,)
    assert arrived_on_all([(done, later), (done, later)]) == (done, later)
    assert arrived_on_all([]) == ()


@each_cache
def test_slots_of_a_failed_copy_stay_taken_until_all_ranks_are_done(make: Make) -> None:
    """Rank 0's copy has failed; its slot is not free before that of rank 1 has ended, too."""
    ranks = [new(make), new(make)]
    (one,) = {back_up(cache, "1")[0] for cache, _ in ranks}
    ranks[0][1].fail(one)
    for ended in (False, True):
        if ended:
            ranks[1][1].acknowledge(one)
        everywhere = arrived_on_all([cache.arrived() for cache, _ in ranks])
        settled = [cache.settle(everywhere).transfers for cache, _ in ranks]
        assert settled == [((one, FAILED),) if ended else ()] * 2
        free = [len(cache.free_slots(FULL, CPU)) for cache, _ in ranks]
        assert free == [8 if ended else 7] * 2


# Agreement.


@each_cache
@pytest.mark.parametrize(
    ("others", "status"), [(Arrival.DONE, DONE), (Arrival.FAILED, FAILED), (WAITING, None)]
)
def test_polls_settle_what_all_ranks_have(
    make: Make, others: Arrival, status: TransferStatus | None
) -> None:
    """A poll asks the other ranks about each copy in flight, and takes the least."""
    asked: list[list[int]] = []

    def agree(arrivals: Sequence[int]) -> list[int]:
        asked.append([int(each) for each in arrivals])
        return [min(each, others) for each in arrivals]

    cache, engine = new(make, agree=agree)
    cache.poll()
    assert asked == []  # With no copy in flight there is nothing to agree on.
    first = three(cache)[0]
    engine.acknowledge(first)
    assert cache.poll().transfers == (() if status is None else ((first, status),))
    assert asked == [[2, 0, 0]]
    cache.arrived()
    cache.match(make_key([1], 1))
    assert len(asked) == 1
    if status is None:
        with pytest.raises(SpecViolation, match="is in flight on another rank; all ranks must"):
            cache.flush()


@each_cache
@pytest.mark.parametrize("elsewhere", [Arrival.DONE, Arrival.FAILED])
def test_evictions_that_wait_settle_what_all_ranks_have(make: Make, elsewhere: Arrival) -> None:
    """Under write_back a victim whose copy failed on another rank is gone here, too."""
    asked: list[int] = []

    def agree(arrivals: Sequence[int]) -> list[int]:
        asked.extend(map(int, arrivals))
        return [min(each, elsewhere) for each in arrivals]

    cache, _ = new(make, BACK, agree=agree)
    Scene(cache, ManualEngine()).put("12")
    assert cache.evict(Counts(2)).freed == Counts(2)
    assert asked == [2]
    there = 2 if elsewhere is Arrival.DONE else 0
    assert cache.match(make_key([1, 2], 1)).prefix_pages == there
    assert len(cache.free_slots(FULL, CPU)) == 8 - there
    assert len(cache.free_slots(FULL, GPU)) == 8


@each_cache
@pytest.mark.parametrize("answer", [[], [2, 2], [3], [-1], [2]])
def test_answers_of_agree_are_checked(make: Make, answer: list[int]) -> None:
    """More than was asked, or more than has arrived here, is a bug of the engine."""
    cache, engine = new(make, agree=lambda _: answer)
    (first,) = back_up(cache, "1")
    engine.fail(first)
    with pytest.raises(SpecViolation, match="return the least of all ranks for each number"):
        cache.poll()


@each_cache
def test_an_agreement_that_breaks_off_settles_nothing(make: Make) -> None:
    """What `agree` raises comes through; the copies can settle afterwards."""
    broken = [True]

    def agree(arrivals: Sequence[int]) -> Sequence[int]:
        if broken.pop():
            broken.append(False)
            raise TimeoutError("rank 2 did not come")
        return arrivals

    cache, engine = new(make, agree=agree)
    (first,) = back_up(cache, "1")
    engine.acknowledge(first)
    before = cache.snapshot()
    with pytest.raises(TimeoutError, match="rank 2"):
        cache.poll()
    assert cache.snapshot() == before
    broken[:] = [False]
    assert cache.poll().transfers == ((first, DONE),)


@each_cache
def test_ranks_decide_alike_under_pressure(make: Make) -> None:
    """Copies end at once on one rank and a call later on the other: without agreement they part."""

    def run(*, gathers: bool) -> list[list[object]]:
        config = evolve(THROUGH, device_slots=Counts(4), host_slots=Counts(3))
        ranks = [new(make, config) for _ in range(2)]
        said: list[list[object]] = [[], []]
        for turn in range(12):
            for _, engine in ranks:
                late = engine is ranks[1][1]
                for each in engine.open_transfer_ids[: -1 if late else None]:
                    engine.acknowledge(each)
            everywhere = arrived_on_all([cache.arrived() for cache, _ in ranks])
            for (cache, _), log in zip(ranks, said, strict=True):
                cache.settle(everywhere) if gathers else cache.poll()
                log.append(step_of(cache, [turn % 5, turn % 5 + 10]))
        return said

    one, other = run(gathers=True)
    assert one == other
    one, other = run(gathers=False)
    assert one != other


def step_of(cache: Cache, tokens: list[int]) -> object:
    """One request; returns all that it was answered."""
    key = make_key(tokens, 1)
    found = cache.match(key)
    missing = len(key) - found.device_pages
    evicted = cache.evict(Counts(max(0, missing - len(cache.free_slots(FULL, GPU)))))
    try:
        slots = cache.allocate(Counts(missing))
        return found, evicted, slots, cache.insert(key, found.device_pages, slots)
    except CacheError as refusal:
        return found, evicted, type(refusal)
