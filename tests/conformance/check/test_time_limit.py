"""The time limit ends actions that never end, and leaves others alone."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import pytest

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.check import time_limit
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.time_limit import LIMIT, within
from kvcanon.conformance.errors import CacheSilent
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Key


def walk_in_a_ring() -> None:
    """Loop forever, and ignore exceptions."""
    while True:
        try:
            for _ in range(1000):
                pass
        except Exception:  # noqa: BLE001, S112  # Like careless code.
            continue


def test_what_never_ends_is_ended() -> None:
    """An endless loop is ended."""
    with pytest.raises(CacheSilent):
        within(0.05, walk_in_a_ring)


def test_an_interruption_that_is_lost_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interruption repeats if Python ignores the first."""
    monkeypatch.setattr(time_limit, "AGAIN_SECONDS", 0.05)

    def deaf_at_first() -> None:
        with suppress(CacheSilent):
            walk_in_a_ring()
        walk_in_a_ring()

    with pytest.raises(CacheSilent):
        within(0.05, deaf_at_first)


def test_the_clock_is_left_as_it_was() -> None:
    """The timer and the signal handler are restored."""
    before = signal.getsignal(signal.SIGALRM)
    within(5, lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_other_threads_take_their_time() -> None:
    """Other threads have no time limit."""
    done: list[int] = []
    thread = threading.Thread(target=lambda: within(5, lambda: done.append(1)))
    thread.start()
    thread.join()
    assert done == [1]


def test_cache_that_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache that hangs is a finding."""

    class Ring(ReferenceCache):
        def match(self, key: Key) -> Matched:
            walk_in_a_ring()
            return super().match(key)

    monkeypatch.setattr(LIMIT, "shorter", 0.05)
    found, _ = play(Case(CacheConfig(), (Action("serve"),)), [Adapter("ring", Ring)])
    assert [finding.is_silence for finding in found] == [True]
