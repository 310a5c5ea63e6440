"""A machine that has no time for a store is not taken for a store that is slow."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
from attrs import define

from kvcanon.conformance.stores.case import GetPages, PutPages, StopServer, StoreCase
from kvcanon.conformance.stores.check import StoreStanding, check_store, ground_of
from kvcanon.conformance.stores.machine_time import MachineWatch, machine_watch
from kvcanon.conformance.stores.plain_stores import MEMORY, memory_adapter
from kvcanon.conformance.stores.play import CALM_TRIES, play_case
from kvcanon.conformance.stores.report import doubts_line
from kvcanon.reference.stores import MemoryStore
from kvcanon.reference.stores.memory_store import DEADLINE_SECONDS, Value
from kvcanon.spec.stores.pages import PageKey

PAGES = StoreCase((PutPages(), GetPages()))
STOPPED = StoreCase((PutPages(), StopServer(), GetPages()))


class Losing(MemoryStore):
    """Says yes to every put, and forgets the page; takes more than half of its deadline for it."""

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        time.sleep(0.6 * DEADLINE_SECONDS)
        return super().put(pages)

    def put_one(self, key: PageKey, content: bytes) -> bool:
        return True


class Slow(MemoryStore):
    """Waits for a stopped server for as long as it takes many calls to give up."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        answer = super().ask(work, otherwise)
        if not self.server.running.is_set():
            time.sleep(15 * DEADLINE_SECONDS)
        return answer


LOSING, SLOW = memory_adapter("losing", Losing), memory_adapter("slow", Slow)


@define
class Late:
    """A machine that is late by the same in each call, for so many looks."""

    seconds: float
    looks: int = 1_000_000
    late: float = 0.0

    def late_seconds(self) -> float:
        self.looks -= 1
        self.late += self.seconds if self.looks > 0 else 0.0
        return self.late


def broken(case: StoreCase, adapter: object, machine: Late) -> tuple[set[str], set[str]]:
    """The laws that a store breaks, and those that are doubted."""
    with ground_of(adapter) as ground:  # type: ignore[arg-type]
        played = play_case(adapter, ground, case, lambda: machine)  # type: ignore[arg-type]
    return (
        {each.law.law_id for each in played.broken},
        {each.law.law_id for each in played.doubted},
    )


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries are short here."""
    monkeypatch.setattr("kvcanon.conformance.stores.play.CALM_SECONDS", 0.001)


def test_a_store_that_loses_pages_is_accused_on_a_machine_with_time() -> None:
    """A machine that is late by a little is a fair judge."""
    assert broken(PAGES, LOSING, Late(DEADLINE_SECONDS / 20)) == ({"STORE-10"}, set())


def test_a_store_is_doubted_while_the_machine_is_late() -> None:
    """Whether pages are lost by the store or by a deadline that was missed, nobody can tell."""
    assert broken(PAGES, LOSING, Late(DEADLINE_SECONDS)) == (set(), {"STORE-10"})


def test_a_store_that_answers_soon_is_judged_on_a_late_machine() -> None:
    """It has given up nothing, whatever the machine did."""

    class Soon(Losing):
        def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
            return MemoryStore.put(self, pages)

    soon = memory_adapter("soon", Soon)
    assert broken(PAGES, soon, Late(DEADLINE_SECONDS)) == ({"STORE-10"}, set())


def test_a_case_is_played_again_until_the_machine_has_time() -> None:
    """What a store does once the machine is not late any more counts."""
    assert broken(PAGES, LOSING, Late(DEADLINE_SECONDS, looks=8)) == ({"STORE-10"}, set())


def test_a_slow_store_is_found_on_a_late_machine() -> None:
    """It waits for much longer than the machine was late."""
    assert broken(STOPPED, SLOW, Late(0.0))[0] == {"STORE-17"}
    assert "STORE-17" in broken(STOPPED, SLOW, Late(DEADLINE_SECONDS))[0]


def test_a_store_is_not_slow_by_as_much_as_the_machine_was_late() -> None:
    """The time of a call counts without the time in which nothing ran."""
    assert broken(STOPPED, SLOW, Late(16 * DEADLINE_SECONDS)) == (set(), set())


def test_a_doubted_law_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so in a line, and such a law counts as not exercised."""
    late = Late(DEADLINE_SECONDS)
    monkeypatch.setattr(
        "kvcanon.conformance.stores.check.play_case",
        lambda adapter, ground, case: play_case(adapter, ground, case, lambda: late),
    )
    monkeypatch.setattr(
        "kvcanon.conformance.stores.check.cases_of", lambda *_: [("this case", PAGES)]
    )
    report = check_store(LOSING)
    assert report.doubted == {"STORE-10": 1}
    assert report.standings["STORE-10"] is StoreStanding.NOT_EXERCISED
    assert not report.findings
    assert doubts_line(report).startswith(
        "Not counted, since this machine was too late to judge a deadline: STORE-10 (1 case)."
    )


def test_the_watch_ends_with_its_process() -> None:
    """Nothing is left of it after a check."""
    program = (
        "from kvcanon.conformance.stores.machine_time import machine_watch\n"
        "print(machine_watch().process.pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_the_watch_knows_that_it_was_stopped() -> None:
    """What does not run is late, already while it stands still."""
    watch = MachineWatch.start()
    try:
        before = watch.late_seconds()
        os.kill(watch.process.pid, 19)
        time.sleep(0.3)
        assert watch.late_seconds() - before > 0.2
        os.kill(watch.process.pid, 18)
        time.sleep(0.1)
        assert watch.late_seconds() - before > 0.2
    finally:
        watch.end()


def test_a_process_has_one_watch() -> None:
    """It is started once."""
    assert machine_watch() is machine_watch()


def _burn(until: float) -> None:
    while time.monotonic() < until:
        pass


@contextmanager
def busy(seconds: float) -> Iterator[None]:
    """Every core has more to do than it can, at a higher priority than a process that is nice."""
    until = time.monotonic() + seconds
    burning = [
        multiprocessing.get_context("fork").Process(target=_burn, args=(until,), daemon=True)
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    for each in burning:
        each.start()
    try:
        yield
    finally:
        for each in burning:
            each.kill()
            each.join()


NICE = """
import os
os.nice(19)
from kvcanon.conformance.stores import play
from kvcanon.conformance.stores.case import GetPages, PutPages, StoreCase
from kvcanon.conformance.stores.check import ground_of
from kvcanon.conformance.stores.plain_stores import MEMORY
print("begins", flush=True)
play.CALM_TRIES = 1
case = StoreCase((PutPages(count=8), GetPages(count=8)) * 12)
with ground_of(MEMORY) as ground:
    played = play.play_case(MEMORY, ground, case)
print(sorted({each.law.law_id for each in played.broken}))
print(sorted({each.law.law_id for each in played.doubted}))
"""


@pytest.mark.nightly
def test_a_sound_store_is_not_accused_on_a_starved_machine() -> None:
    """It gets a twentieth of a processor or less, and misses deadlines that it would keep."""
    with subprocess.Popen(
        [sys.executable, "-c", NICE], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        with busy(40.0):
            broken_laws, _ = process.communicate()[0].splitlines()
    assert broken_laws == "[]"


def test_a_machine_that_is_late_for_good_ends_a_check() -> None:
    """A case is played so many times, and no more."""
    machine, plays = Late(DEADLINE_SECONDS), 0

    class Counted(Losing):
        def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
            nonlocal plays
            plays += 1
            return super().put(pages)

    assert broken(PAGES, memory_adapter("counted", Counted), machine) == (set(), {"STORE-10"})
    assert plays == CALM_TRIES


def test_stores_without_a_deadline_start_no_watch() -> None:
    """Nothing of them depends on the clock."""

    def refuse() -> Late:
        raise AssertionError

    from kvcanon.conformance.stores.plain_stores import FILES  # noqa: PLC0415

    with ground_of(FILES) as ground:
        assert play_case(FILES, ground, PAGES, refuse).broken == []
    with ground_of(MEMORY) as ground, pytest.raises(AssertionError):
        play_case(MEMORY, ground, PAGES, refuse)
