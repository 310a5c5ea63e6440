"""How long a cache may take: in processor time that it uses, or in time in which it only waits.

A clock on the wall measures the machine, too: beside other programs a sound cache may get a tenth
of a processor. So the time that counts is the cache's own. It is *silent* if an action has used the
processor for longer than the limit, or if it waited (for a lock, a thread, a sleep) for WAITING
times as long. What is ready to run and gets no processor does neither.

Where the system does not say what a process does (`/proc` of Linux), all time counts as waiting,
except that Python code measures its own processor time everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from math import inf
from pathlib import Path
from time import monotonic, thread_time

from attrs import frozen

from kvcanon.conformance.errors import UsageError

ACTION_SECONDS = 20.0
"""An action with all law checks takes about a thousandth of this on a small cache."""
VARIABLE = "KVCANON_ACTION_SECONDS"
"""The variable of the environment that sets another limit, for slow caches."""
WAITING_TIMES = 10.0
"""How many times longer it may wait than compute: what it waits for may run on a busy machine."""
MOST_LOOK_SECONDS = 1.0
"""The most that one look adds to the time of waiting: the machine may have stood still."""


def usual_seconds() -> float:
    """The limit of the environment, or else ACTION_SECONDS. Raises: UsageError: it is invalid."""
    given = os.environ.get(VARIABLE)
    if given is None:
        return ACTION_SECONDS
    try:
        seconds = float(given)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"{VARIABLE} is {given!r}; give seconds, as {ACTION_SECONDS:g}")
    return seconds


class Passed(StrEnum):
    """Which limit was passed."""

    PROCESSOR = "of processor time"
    WAITING = "in which it waited"


@frozen
class Allowance:
    """The limits of one action."""

    usual: float
    """The seconds that VARIABLE sets."""
    times: float = 1.0
    """How many times as long it may compute."""
    waiting_times: float = WAITING_TIMES
    """How many times as long it may wait."""
    most: float = inf
    """The most seconds of processor time, for what is known to pass the limit."""
    most_waiting: float = inf
    """The most seconds of waiting."""

    @property
    def processor(self) -> float:
        """Seconds of processor time."""
        return min(self.usual * self.times, self.most)

    @property
    def waiting(self) -> float:
        """Seconds in which it only waits."""
        return min(self.usual * self.waiting_times, self.most_waiting)

    def text(self, passed: Passed) -> str:
        """That a limit was passed, with the variable that sets it."""
        given, times = self.processor, self.times
        if passed is Passed.WAITING:
            given, times = self.waiting, self.waiting_times
        known = self.usual * times
        how = f"{VARIABLE} sets it" if times == 1 else f"{times:g} times {VARIABLE}"
        short = f"; this shorter case was given {given:g} s" if given < known else ""
        return f"no answer within {known:g} s {passed} ({how}{short})"


# What a process does, as others see it.


@frozen
class Reading:
    """What some threads have done so far, and what they do now."""

    processor: float
    """Seconds."""
    ready: bool
    """Whether one of them runs or waits for a processor or a disk, so that the machine is slow."""


_TICK = 1 / os.sysconf("SC_CLK_TCK")
_READY = frozenset("RD")


def read_thread(pid: int) -> Reading | None:
    """What the main thread of a process does; None if the system does not say."""
    return _read(Path(f"/proc/{pid}/task/{pid}/stat"))


def read_family(pid: int) -> Reading | None:
    """What a process and all that it started do; None if the system does not say."""
    tasks = [task for each in family_of(pid) for task in _listed(Path(f"/proc/{each}/task"))]
    readings = [reading for task in tasks if (reading := _read(task / "stat")) is not None]
    if not readings:
        return None
    processor = sum(each.processor for each in readings)
    return Reading(processor, any(each.ready for each in readings))


def family_of(pid: int) -> list[int]:
    """A process and all that it started, as the system lists them."""
    return [pid, *_descendants(pid)]


def _read(stat: Path) -> Reading | None:
    try:
        fields = stat.read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return Reading((int(fields[11]) + int(fields[12])) * _TICK, fields[0].decode() in _READY)


def _descendants(pid: int) -> Iterator[int]:
    for task in _listed(Path(f"/proc/{pid}/task")):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _descendants(child)


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


class TimeTaken:
    """The time that one action has taken, by looks from outside; it begins at the first look."""

    def __init__(self, reading: Reading | None) -> None:
        self._first = self._last = reading
        self._looked = monotonic()
        self.waited = 0.0
        """Seconds in which it only waited."""

    @property
    def processor(self) -> float:
        """Seconds of processor time."""
        if self._first is None or self._last is None:
            return 0.0
        return self._last.processor - self._first.processor

    def look(self, reading: Reading | None) -> None:
        """Take what it does now for what it has done since the last look."""
        now = monotonic()
        elapsed, self._looked = min(now - self._looked, MOST_LOOK_SECONDS), now
        if reading is None or not reading.ready:
            before = self.processor
            self._last = reading or self._last
            self.waited += max(0.0, elapsed - (self.processor - before))
        self._first, self._last = self._first or reading, reading or self._last

    def passed(self, allowed: Allowance, grace: float = 0.0) -> Passed | None:
        """The limit that was passed, with some seconds of grace."""
        if self.processor >= allowed.processor + grace:
            return Passed.PROCESSOR
        return Passed.WAITING if self.waited >= allowed.waiting + grace else None


# What a thread does, as it sees itself.


class OwnTime:
    """The time that this thread has taken since it began."""

    def __init__(self) -> None:
        self._wall, self._used = monotonic(), thread_time()

    @property
    def processor(self) -> float:
        """Seconds of processor time."""
        return thread_time() - self._used

    @property
    def elapsed(self) -> float:
        """Seconds by the clock."""
        return monotonic() - self._wall


class OwnWait:
    """The time in which this thread only waited since this was made; it takes a look at files."""

    def __init__(self) -> None:
        self._time, self._queued = OwnTime(), _queued_seconds()

    @property
    def seconds(self) -> float:
        """Seconds that are neither of processor time nor of waiting for a processor."""
        queued = _queued_seconds() - self._queued
        return self._time.elapsed - self._time.processor - queued


def _queued_seconds() -> float:
    """How long this thread has waited for a processor in its life; 0 if the system does not say."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
