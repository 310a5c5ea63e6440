"""Whether a process is late is read from its note while the process writes it."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import mmap
from time import monotonic

import pytest

from kvcanon.conformance.workers import allowance
from kvcanon.conformance.workers.allowance import Allowance, Passed, Reading
from kvcanon.conformance.workers.ending import Watch
from kvcanon.conformance.workers.notes import SIZE, Note, limit_in


@pytest.fixture
def memory() -> Iterator[mmap]:
    """The memory of a note."""
    with mmap(-1, SIZE) as shared:
        yield shared


@contextmanager
def beginning_and_ending(memory: mmap) -> Iterator[None]:
    """A process that begins and ends actions without a pause."""
    pid = os.fork()
    if pid == 0:
        note = Note(memory)
        while True:
            note.limit(Allowance(20.0))
            note.limit(None)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Looked:
    """A process as its watch sees it, and the clock of the watch."""

    def __init__(self, memory: mmap, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.reading: Reading | None = Reading(7.0, ready=False)
        self.note = Note(memory)
        patch.setattr(allowance, "monotonic", lambda: self.now)
        self._watch = Watch(memory, 1, lambda _: self.reading)

    def after(self, seconds: float, used: float | None, *, ready: bool) -> Passed | None:
        """What the watch says after a look in each second, in which so much processor was used."""
        passed = None
        for _ in range(round(seconds)):
            self.now += 1.0
            if used is not None and self.reading is not None:
                self.reading = Reading(self.reading.processor + used / seconds, ready)
            passed = self._watch.look()
        return passed


@pytest.fixture
def looked(memory: mmap, monkeypatch: pytest.MonkeyPatch) -> Looked:
    """A process that began an action with a limit of 4 seconds."""
    process = Looked(memory, monkeypatch)
    process.note.limit(Allowance(4.0))
    assert process.after(1, 0, ready=True) is None
    return process


def test_a_process_that_computes_for_too_long_is_late(looked: Looked) -> None:
    """Processor time over the limit, and a grace for Python to find out by itself."""
    assert looked.after(4, 4.9, ready=True) is None
    assert looked.after(1, 0.2, ready=True) is Passed.PROCESSOR


def test_a_process_that_waits_for_too_long_is_late(looked: Looked) -> None:
    """What neither computes nor is ready to is late after ten times the limit."""
    assert looked.after(40, 0.4, ready=False) is None
    assert looked.after(2, 0, ready=False) is Passed.WAITING


def test_a_process_that_gets_no_processor_is_not_late(looked: Looked) -> None:
    """A tenth of a processor, or less, is not the cache's fault; nor is a slow disk."""
    assert looked.after(1000, 3.9, ready=True) is None


def test_a_machine_that_stood_still_makes_nobody_late(looked: Looked) -> None:
    """Between two looks a second counts at most, also if an hour went by."""
    looked.now += 3600
    assert looked.after(1, 0, ready=False) is None


def test_without_a_word_of_the_system_all_time_is_waiting(looked: Looked) -> None:
    """Where nothing is known of a process, it is late after ten times the limit."""
    looked.reading = None
    assert looked.after(40, None, ready=False) is None
    assert looked.after(2, None, ready=False) is Passed.WAITING


def test_each_action_has_its_own_limit(looked: Looked) -> None:
    """The time of an action that ended is not that of the next."""
    assert looked.after(4, 4.9, ready=True) is None
    looked.note.limit(Allowance(4.0))
    assert looked.after(4, 4.9, ready=True) is None
    looked.note.limit(None)
    assert looked.after(9, 9, ready=True) is None


def test_imports_renew_a_limit_but_not_for_ever(
    memory: mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each import begins the limit anew, until all of them took ten times as long."""
    used = 0.0
    monkeypatch.setattr(allowance, "thread_time", lambda: used)
    note = Note(memory)
    note.limit(Allowance(4.0))
    renewed = set()
    for _ in range(100):
        used += 1.0
        note.renew()
        renewed.add(limit_in(memory)[0])
    assert len(renewed) == 39
    assert note.over


def test_a_limit_is_read_as_it_was_set(memory: mmap) -> None:
    """The parent knows every limit, also a shorter one, so that it can name it."""
    note, allowed = Note(memory), Allowance(20.0, 5.0, most=2.0)
    assert limit_in(memory) == (0, None)
    note.limit(allowed)
    assert limit_in(memory) == (1, allowed)


def test_a_note_that_nobody_wrote_has_no_limit(memory: mmap) -> None:
    """A note that is read while it is written may have a number and no limit yet."""
    memory[:8] = struct.pack("=Q", 3)
    assert Watch(memory, 1).look() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_no_process_is_late_because_it_writes_its_note(memory: mmap) -> None:
    """Whatever the parent reads in between, it is a limit that was set."""
    with beginning_and_ending(memory):
        watch, end = Watch(memory, os.getpid()), monotonic() + 1.0
        while limit_in(memory)[0] == 0:
            assert monotonic() < end, "the other process does not begin"
        while monotonic() < end:
            assert limit_in(memory)[1] in (None, Allowance(20.0))
            assert watch.look() is None
