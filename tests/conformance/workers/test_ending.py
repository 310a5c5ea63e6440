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

from kvcanon.conformance.workers import ending
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
            note.limit(20.0)
            note.limit(None)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_that_missed_its_limit_twice_is_late(
    memory: mmap, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is late some time after its limit, and not at the first look: it may have stood still."""
    now = monotonic()
    monkeypatch.setattr(ending, "monotonic", lambda: now)
    Note(memory).limit(4.0)
    due, _ = limit_in(memory)
    watch = Watch(memory)
    looks = []
    for after in (-1.0, 0.9, 1.1, 1.5, 1.7):
        now = due + after
        looks.append(watch.late)
    assert looks == [False, False, False, False, True]
    Note(memory).limit(None)
    assert not watch.late


def test_a_limit_without_its_moment_is_not_missed(memory: mmap) -> None:
    """A note that is read while it is written may have a limit and no moment yet."""
    memory[:16] = struct.pack("=dd", 0.0, 20.0)
    assert not Watch(memory).late


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_no_process_is_late_because_it_writes_its_note(memory: mmap) -> None:
    """Whatever the parent reads in between, it is a limit that was set."""
    with beginning_and_ending(memory):
        watch, end = Watch(memory), monotonic() + 1.0
        while limit_in(memory)[0] == 0.0:
            assert monotonic() < end, "the other process does not begin"
        while monotonic() < end:
            moment, _ = limit_in(memory)
            assert abs(moment - monotonic()) < 60
            assert not watch.late
