"""The store: every block is played once, and no finding is lost if a machine fails."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from attrs import evolve
from fakeredis import FakeRedis, FakeServer
from hypothesis.database import DirectoryBasedExampleDatabase

from few_cases import plan_of
from kvcanon.conformance.check import blocks
from kvcanon.conformance.check.blocks import BlocksReport, play_cases
from kvcanon.conformance.check.plan import CachePlan
from kvcanon.conformance.check.stage import OUT_OF_TIME
from kvcanon.conformance.check.store import (
    CLAIM_SECONDS,
    DirectoryStore,
    RedisStore,
    ResultStore,
    open_examples,
    open_store,
    report_from_json,
    report_to_json,
    share_blocks,
    stored_as,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import workers

PLAN = plan_of("faulty:Leaky")
LEAKY = evolve(PLAN, effort=evolve(PLAN.effort, block=8)).of("faulty:Leaky")
NEVER = float("inf")


def played(block: int, cases: int = 8) -> BlocksReport:
    """The report of a block."""
    return play_cases(LEAKY, range(block * cases, (block + 1) * cases), NEVER)


@pytest.fixture(params=["directory", "redis"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], ResultStore]:
    """A function that opens the same store again, as several machines do."""
    server = FakeServer()

    def open_one() -> ResultStore:
        if request.param == "directory":
            return DirectoryStore(tmp_path / "store")
        return RedisStore(FakeRedis(server=server), "store")

    return open_one


def test_a_report_survives_the_store() -> None:
    """A stored report is read back unchanged."""
    report = played(0)
    assert report.found
    again = report_from_json(report_to_json(report))
    assert again.tally == report.tally
    assert again.found == {
        fingerprint: evolve(found, earlier=True) for fingerprint, found in report.found.items()
    }


def test_a_claimed_block_is_not_claimed_again(opened: Callable[[], ResultStore]) -> None:
    """A claimed block is not claimed again."""
    one, other = opened(), opened()
    claims = [one.claim(), other.claim(), one.claim(), other.claim()]
    assert claims == [0, 1, 2, 3]


def test_what_is_done_is_not_done_again(opened: Callable[[], ResultStore]) -> None:
    """A finished block is not claimed again."""
    first = opened()
    for _ in range(3):
        first.complete(first.claim(), BlocksReport())
    assert opened().claim() == 3


def test_a_released_block_is_claimed_next(opened: Callable[[], ResultStore]) -> None:
    """A released block is claimed next."""
    one, other = opened(), opened()
    one.claim()
    one.claim()
    one.release(0)
    assert other.claim() == 0


def test_a_claim_that_nobody_completes_is_void_after_a_while(
    opened: Callable[[], ResultStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim expires."""
    one, other = opened(), opened()
    one.claim()
    assert other.claim() == 1
    if isinstance(one, DirectoryStore):
        long_ago = time.time() - CLAIM_SECONDS - 1
        os.utime(tmp_path / "store" / "claims" / f"{0:09}", (long_ago, long_ago))
    else:
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + CLAIM_SECONDS + 1)
    assert other.claim() == 0


def test_reports_come_in_the_order_of_their_blocks(opened: Callable[[], ResultStore]) -> None:
    """Reports come in the order of their blocks."""
    store = opened()
    blocks = list(islice(iter(store.claim, None), 12))
    for block in reversed(blocks):
        report = BlocksReport()
        report.tally.cases = block
        store.complete(block, report)
    assert [report.tally.cases for report in opened().reports()] == blocks


def test_several_who_share_a_store_find_what_one_finds(opened: Callable[[], ResultStore]) -> None:
    """Several processes with one store find what one process finds."""
    whole = BlocksReport()
    for block in range(4):
        whole.add(played(block))
    one, other = opened(), opened()
    for store in (one, other, other, one):
        block = store.claim()
        store.complete(block, played(block))
    shared = BlocksReport()
    for report in opened().reports():
        shared.add(report)
    assert shared.tally == whole.tally
    assert [(found.case_number, found.times) for found in shared.found.values()] == [
        (found.case_number, found.times) for found in whole.found.values()
    ]


def test_a_check_goes_on_where_it_was_cut_short(opened: Callable[[], ResultStore]) -> None:
    """A second run continues with the next blocks, and includes earlier results."""
    sound = evolve(PLAN, effort=evolve(PLAN.effort, block=4)).of("reference")

    def run(blocks: int) -> BlocksReport:
        moment = time.monotonic() + 3600
        done = []

        def stop(block: int, _report: BlocksReport) -> None:
            done.append(block)
            if len(done) == blocks:
                raise KeyboardInterrupt

        with workers(1) as by, pytest.raises(KeyboardInterrupt):
            share_blocks(sound, opened(), by, moment, stop)
        total = BlocksReport()
        for report in opened().reports():
            total.add(report)
        return total

    assert run(3).tally.cases == 12
    assert run(2).tally.cases == 20
    assert opened().claim() == 5


def test_a_block_that_the_time_cut_is_not_done(opened: Callable[[], ResultStore]) -> None:
    """A block that was cut short is not stored as finished."""
    with workers(1) as by:
        late = time.monotonic() - 1
        report, why = share_blocks(LEAKY, opened(), by, late, lambda _block, _report: None)
    assert why == OUT_OF_TIME
    assert report.tally.cases == 0
    assert not list(opened().reports())
    assert opened().claim() == 0


def test_what_this_run_found_need_not_show_again(
    opened: Callable[[], ResultStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding of this run is kept even if it does not show again."""
    monkeypatch.setattr(blocks, "FINDINGS_ENOUGH", 3)
    with workers(1) as by:
        report, _ = share_blocks(LEAKY, opened(), by, NEVER, lambda _block, _report: None)
    assert report.found
    assert not any(found.earlier for found in report.found.values())


def stored(cache: CachePlan, location: object) -> CachePlan:
    """The plan of a cache with a store."""
    return evolve(cache, plan=evolve(cache.plan, store=str(location)))


def test_each_check_has_a_place_of_its_own(tmp_path: Path) -> None:
    """Checks with another seed, cache, laws or way of judging have separate stores."""
    plan = stored(LEAKY, tmp_path).plan
    judges = plan.judges
    others = [
        evolve(plan, seed=1).of(LEAKY.name),
        plan.of("faulty:Short"),
        evolve(plan, against="reference").of(LEAKY.name),
        *(
            evolve(plan, judges=each).of(LEAKY.name)
            for each in (
                evolve(judges, laws=("TREE-1",)),
                evolve(judges, black_box=True),
                evolve(judges, known=("TREE-1",)),
                evolve(judges, ranks=3),
            )
        ),
    ]
    ours = plan.of(LEAKY.name)
    names = {stored_as(each, 8) for each in (ours, *others)} | {stored_as(ours, 9)}
    assert len(names) == len(others) + 2
    assert all((tmp_path / name).parent == tmp_path for name in names)
    store = open_store(ours)
    store.complete(store.claim(), BlocksReport())
    # More processes or another time limit are no other check.
    longer = evolve(plan, jobs=7, effort=evolve(plan.effort, seconds=9.0)).of(LEAKY.name)
    assert open_store(longer).claim() == 1
    assert open_store(others[0]).claim() == 0


def test_hypothesis_keeps_its_examples_there_too(tmp_path: Path) -> None:
    """The store also keeps the examples of Hypothesis."""
    ours = stored(LEAKY, tmp_path)
    database = open_examples(ours)
    assert isinstance(database, DirectoryBasedExampleDatabase)
    database.save(b"key", b"example")
    assert set(open_examples(ours).fetch(b"key")) == {b"example"}
    other = evolve(ours, plan=evolve(ours.plan, seed=1))
    assert not set(open_examples(other).fetch(b"key"))


def test_a_redis_that_does_not_answer_is_a_usage_error() -> None:
    """A Redis that does not answer raises a UsageError."""
    with pytest.raises(UsageError, match=r"no Redis answers at redis://127\.0\.0\.1:1"):
        open_store(stored(LEAKY, "redis://127.0.0.1:1"))
