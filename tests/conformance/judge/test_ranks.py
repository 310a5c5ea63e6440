"""Ranks that are judged: one cache for the client, several behind it, compared after each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import RANKS, Action, Case, case_from_json, case_to_json
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.blocks import NumberedCases
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge.judges import JudgeConfig, make_judged
from kvcanon.conformance.judge.ranks import Lockstep, RankCopies, make_ranks
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache, WaitControl
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.report.script import script_of
from kvcanon.conformance.vectors import read_vectors
from kvcanon.lab.mutants.planted.ranks import ranks_settle_what_ended_here
from kvcanon.lab.variants.override import overriding
from kvcanon.lab.variants.wrapped_rules import Original, around
from kvcanon.optimized.cache import OptimizedCache
from kvcanon.reference import ManualEngine, ReferenceCache, departures, evict, transfer
from kvcanon.reference.state import State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, EngineRaised
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import Counts, make_key

THROUGH = CacheConfig(
    device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through", events=True
)
CASE = Case(
    THROUGH,
    (
        *(Action(name, n, n, 3) for n in range(3) for name in ("serve", "copy", "poll")),
        Action("copy", 0, 3),
        Action("flush"),
    ),
    ranks=RANKS,
)
FAULTY = Adapter("faulty", overriding(ranks_settle_what_ended_here))


def without_agree(config: CacheConfig, engine: ManualEngine | None = None) -> ReferenceCache:
    """A factory of caches that are no ranks."""
    return ReferenceCache(config, engine)


@pytest.mark.parametrize("make", [ReferenceCache, OptimizedCache])
def test_sound_ranks_are_alike(make: type) -> None:
    """Ranks that agree hold the law, and their copies end at other times."""
    found, tallies = play(CASE, [Adapter("sound", make)])
    assert found == []
    laws = tallies["sound"].laws
    # All laws are checked of the first rank, and those of ranks of all.
    assert laws["ASYNC-11"] > 0
    assert laws["ASYNC-12"] > 0
    assert laws["RES-5"] > 0


def test_ranks_that_settle_alone_are_found() -> None:
    """A fault that no single cache shows breaks ASYNC-11 on ranks, and nothing else."""
    case = next(each.case for each in read_vectors() if each.vector_id == "ASYNC-11-a")
    (finding,) = play(case, [FAULTY])[0]
    assert finding.broken == ("ASYNC-11",)
    assert "rank 1" in finding.words
    assert play(evolve(case, ranks=1), [FAULTY])[0] == []


def test_script_of_a_failure_makes_ranks() -> None:
    """The script of a failure plays its case on as many ranks."""
    finding = _any_finding()
    assert '    "ranks": 3,\n' in script_of(finding, JudgeConfig())
    single = evolve(finding, case=evolve(CASE, ranks=1))
    assert "ranks" not in script_of(single, JudgeConfig()).split("CASE")[1]


def _any_finding() -> Finding:
    text = "rank 1 answers otherwise"
    return Finding("mine", Grounds.LAW, "ASYNC-11", ("ASYNC-11",), text, text, CASE, 0, 1)


def test_case_keeps_its_ranks() -> None:
    """The number of ranks is part of a case, and left out where it is one."""
    assert case_from_json(case_to_json(CASE)) == CASE
    assert "ranks" not in case_to_json(evolve(CASE, ranks=1))
    for wrong in (0, 17, True, "3"):
        with pytest.raises(BadArgument, match="give 1 to 16"):
            case_from_json({**case_to_json(CASE), "ranks": wrong})


def test_ranks_are_of_the_walkers_cases() -> None:
    """The cases of ranks are those that are drawn for one cache."""
    cases = NumberedCases(Trial(REFERENCE, JudgeConfig(ranks=RANKS)), seed=5)
    for number in range(4):
        same = draw_case((5 << 40) + number, REFERENCE.offer, on_ranks=True)
        assert evolve(cases.case(number), rank_apart=False) == evolve(same, ranks=RANKS)


@pytest.mark.parametrize(
    ("adapter", "config", "judges"),
    [
        (Adapter("alone", without_agree), THROUGH, JudgeConfig()),
        (REFERENCE, CacheConfig(device_slots=Counts(8)), JudgeConfig()),
        (REFERENCE, THROUGH, JudgeConfig(black_box=True)),
    ],
    ids=["no agree", "no host tier", "from outside"],
)
def test_what_makes_no_ranks_is_not_offered(
    adapter: Adapter, config: CacheConfig, judges: JudgeConfig
) -> None:
    """Such a case is counted as not offered, and is no finding."""
    finding, tally = Trial(adapter, judges).play(evolve(CASE, config=config))
    assert finding is None
    assert (tally.unoffered, tally.steps) == (1, 0)


def test_factory_that_offers_ranks_needs_their_methods() -> None:
    """A cache whose factory takes `agree` has `arrived` and `settle`."""

    class Half:
        config = THROUGH
        match = lock = unlock = allocate = free = insert = print

    def make(config: CacheConfig, engine: object, agree: object = None) -> Half:
        del config, engine, agree
        return Half()

    (finding,) = [Trial(Adapter("half", make)).play(evolve(CASE, ranks=1))[0]]  # type: ignore[arg-type]
    assert finding is not None
    assert "which lacks arrived, settle" in finding.text


def test_copies_end_on_each_rank_at_another_time() -> None:
    """One that is acknowledged ends on all ranks, one that fails fails on one of them."""
    subject = make_ranks(REFERENCE, THROUGH, RANKS)
    copies = subject.copies
    assert isinstance(copies, RankCopies)
    for tokens in ([1], [2], [3], [4]):
        key = make_key(tokens, 1)
        subject.cache.insert(key, 0, subject.cache.allocate(Counts(1)))
    first, second, third, _ = copies.open_transfer_ids
    copies.acknowledge(first)
    copies.fail(second)
    assert copies.open_transfer_ids[:1] == [third]
    ends: list[list[dict[int, bool]]] = []
    for _ in range(6):
        subject.cache.match(make_key([9], 1))
        ends.append([dict(engine.ended) for engine in copies.engines])
    assert len({str(each) for each in ends[0]}) > 1  # They do not end at once.
    assert all(each[first] for each in ends[-1])
    assert sorted(each[second] for each in ends[-1]) == [False, True, True]
    assert copies.ended == {first: True, second: False}


# Engines that raise.


@around(departures.undo_departures, evict)
def broken_off_calls_settle_alone(undo: Original[None], state: State) -> None:
    """A call that the engine broke off settles what has ended on its own rank before it raises."""
    undo(state)
    transfer.settle_these(state, transfer.arrived(state))


@pytest.mark.parametrize("make", [ReferenceCache, OptimizedCache])
def test_ranks_stay_alike_if_every_engine_raises(make: MakeCache) -> None:
    """Evictions that the engine breaks off on all ranks leave them alike, whatever has ended."""
    laws = _break_off_an_eviction(Adapter("sound", make))
    assert laws["ASYNC-11"] > 0
    assert laws["ASYNC-16"] == 1


def test_ranks_that_settle_alone_where_the_engine_raises_are_found() -> None:
    """What a rank settles in a call that was broken off, others did not: ASYNC-11 finds that."""
    with pytest.raises(ViolationError, match="ASYNC-11") as found:
        _break_off_an_eviction(Adapter("faulty", overriding(broken_off_calls_settle_alone)))
    assert "ASYNC-11" in {each.law.law_id for each in found.value.violations}


def _break_off_an_eviction(adapter: Adapter) -> Mapping[str, int]:
    """Break an eviction off while a load has ended on some ranks. Returns the laws exercised."""
    config = evolve(THROUGH, write_policy="write_back")
    subject, judge = make_judged(adapter, config, JudgeConfig(ranks=RANKS))
    copies = subject.copies
    assert isinstance(copies, RankCopies)
    assert isinstance(copies, WaitControl)
    loaded, other = make_key([1], 1), make_key([2], 1)
    judge.insert_host(loaded, 0, HostPayload((bytes(config.slot_bytes),)))
    judge.load_back(loaded)
    judge.insert(other, 0, judge.allocate(Counts(1)))
    copies.acknowledge(copies.open_transfer_ids[0])
    copies.next_wait("broken_off")
    with pytest.raises(EngineRaised):
        judge.evict(Counts(8))
    judge.flush()
    assert copies.wait_end == "done"
    return judge.laws_exercised


# Lockstep.


def test_lockstep_hands_out_the_least() -> None:
    """Every rank gets the least of all, in each of several agreements."""
    lockstep = Lockstep(3)

    def call(rank: int) -> list[Sequence[int]]:
        agree = lockstep.agree_of(rank)
        return [agree([rank, 2 - rank]), agree([2]), agree([])]

    said = lockstep.call([lambda rank=rank: call(rank) for rank in range(3)])  # type: ignore[misc]
    assert said == [[[0, 0], [2], []]] * 3


def test_ranks_that_nobody_agrees_with_get_their_own_answer() -> None:
    """A rank that agrees while another has ended, or on other copies, goes on; a law finds it."""
    lockstep = Lockstep(2)
    agree, other = lockstep.agree_of(0), lockstep.agree_of(1)
    assert lockstep.call([lambda: agree([2]), list]) == [[2], []]
    assert lockstep.call([lambda: agree([2]), lambda: other([2, 1])]) == [[2], [2, 1]]
    assert agree([2]) == [2]
    assert lockstep.agreed == [[1, 1, 1], [2]]


def test_lockstep_raises_what_a_rank_raised() -> None:
    """An exception of a rank comes out, and the other rank does not wait for ever."""
    lockstep = Lockstep(2)

    def fails() -> Sequence[int]:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        lockstep.call([lambda: lockstep.agree_of(0)([2]), fails])
    with pytest.raises(KeyError, match="here"):
        lockstep.call([fails, list])
