"""The time limit ends actions that never end, and leaves others alone, also on a busy machine."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep, thread_time

import pytest

import busy
from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check import time_limit
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.time_limit import LIMIT, within
from kvcanon.conformance.errors import CacheSilent
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.workers.allowance import VARIABLE, Allowance
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Counts, Key

BLACK_BOX = JudgeConfig(black_box=True)


def walk_in_a_ring() -> None:
    """Loop forever, and ignore exceptions."""
    while True:
        try:
            for _ in range(1000):
                pass
        except Exception:  # noqa: BLE001, S112  # Like careless code.
            continue


def compute(seconds: float) -> None:
    """Use the processor for some time."""
    end = thread_time() + seconds
    while thread_time() < end:
        pass


def nap_for_ever() -> None:
    """Sleep again and again: nearly no processor time is used."""
    while True:
        sleep(0.001)


def wait_for_a_thread() -> None:
    """Wait for a thread that never ends."""
    over = threading.Event()
    thread = threading.Thread(target=lambda: over.wait(20), daemon=True)
    thread.start()
    try:
        thread.join()
    finally:
        over.set()


def test_what_never_ends_is_ended() -> None:
    """An endless loop is ended; the message names the limit and the variable that moves it."""
    with pytest.raises(CacheSilent) as silence:
        within(Allowance(0.05), walk_in_a_ring)
    words = "no answer within 0.05 s of processor time (KVCANON_ACTION_SECONDS sets it)"
    assert str(silence.value) == words


@pytest.mark.parametrize("wait", [lambda: sleep(30), nap_for_ever, wait_for_a_thread])
def test_what_waits_for_ever_is_ended(wait: Callable[[], None]) -> None:
    """What uses no processor time is ended after ten times the limit, with words that say so."""
    began = monotonic()
    with pytest.raises(CacheSilent, match=r"within 1 s in which it waited \(10 times KVCANON_"):
        within(Allowance(0.1), wait)
    assert 1.0 <= monotonic() - began < 20


def test_a_shorter_limit_names_the_one_that_is_known() -> None:
    """A case that is played with a shorter limit says so, and names the limit that is set."""
    with LIMIT.at_most(0.05, 0.1), pytest.raises(CacheSilent) as silence:
        within(LIMIT.action, walk_in_a_ring)
    assert str(silence.value) == (
        "no answer within 20 s of processor time (KVCANON_ACTION_SECONDS sets it; this shorter "
        "case was given 0.05 s)"
    )


def test_an_interruption_that_is_lost_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interruption repeats if Python ignores the first."""
    monkeypatch.setattr(time_limit, "AGAIN_SECONDS", 0.05)

    def deaf_at_first() -> None:
        with suppress(CacheSilent):
            walk_in_a_ring()
        walk_in_a_ring()

    with pytest.raises(CacheSilent):
        within(Allowance(0.05), deaf_at_first)


@contextmanager
def slow_collections(seconds: float) -> Iterator[None]:
    """Let each collection of garbage compute for some time."""

    def slowly(_phase: str, _info: dict[str, int]) -> None:
        compute(seconds)

    gc.callbacks.append(slowly)
    try:
        yield
    finally:
        gc.callbacks.remove(slowly)


def test_an_interruption_in_a_collection_of_garbage_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python drops what is raised in a callback of its collector; the limit stays."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    def collect_and_walk() -> None:
        with slow_collections(0.2):
            gc.collect()
        walk_in_a_ring()

    with pytest.raises(CacheSilent):
        within(Allowance(0.1), collect_and_walk)


def test_the_clock_is_left_as_it_was() -> None:
    """The timer and the signal handler are restored."""
    before = signal.getsignal(signal.SIGALRM)
    within(Allowance(5), lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_the_clock_is_restored_after_a_late_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption that comes when the action has just ended leaves no timer behind."""
    looks: list[time_limit._Looks] = []

    class Late(time_limit._Looks):
        def __init__(self, allowed: Allowance) -> None:
            looks.append(self)
            super().__init__(allowed)

        def __setattr__(self, name: str, value: object) -> None:
            if name == "over" and value is True and not self.over:
                object.__setattr__(self, name, value)
                raise CacheSilent("late")
            object.__setattr__(self, name, value)

    monkeypatch.setattr(time_limit, "_Looks", Late)
    with pytest.raises(CacheSilent, match="late"):
        within(Allowance(5), lambda: None)
    assert looks
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_other_threads_take_their_time() -> None:
    """Other threads have no time limit."""
    done: list[int] = []
    thread = threading.Thread(target=lambda: within(Allowance(5), lambda: done.append(1)))
    thread.start()
    thread.join()
    assert done == [1]


def test_a_busy_machine_takes_nothing_from_the_limit() -> None:
    """What gets a small share of one processor is given its limit all the same."""
    began = monotonic()
    with busy.one_processor(beside=4):
        within(Allowance(0.5), lambda: compute(0.35))
    assert monotonic() - began > 0.6, "the machine was not busy"


class Slow(ReferenceCache):
    """Computes in each match for as long as is asked for."""

    seconds = 0.0

    def match(self, key: Key) -> Matched:
        """Match slowly."""
        compute(self.seconds)
        return super().match(key)


@pytest.mark.parametrize(
    ("slots", "seconds", "silent", "left"),
    [(300, 0.04, False, True), (300, 60, True, False), (20, 0.04, False, False)],
)
def test_a_large_case_that_takes_long_is_left(
    slots: int, seconds: float, silent: bool, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted and no finding if no single call passed the limit; a small case goes on."""
    monkeypatch.setenv(VARIABLE, "0.3")
    monkeypatch.setattr(Slow, "seconds", seconds)
    config = CacheConfig(device_slots=Counts(full=slots))
    case = Case(config, (Action("serve"),) * 12)
    found, tallies = play(case, [Adapter("slow", Slow)], BLACK_BOX)
    assert [finding.is_silence for finding in found] == [True] * silent
    assert tallies["slow"].too_slow == left


def test_cache_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that hangs is a finding."""

    class Ring(ReferenceCache):
        def match(self, key: Key) -> Matched:
            walk_in_a_ring()
            return super().match(key)

    monkeypatch.setattr(LIMIT, "shorter", (0.05, 1.0))
    found, _ = play(Case(CacheConfig(), (Action("serve"),)), [Adapter("ring", Ring)])
    assert [finding.is_silence for finding in found] == [True]
