"""How a process ends: with its parent, or before it should, and what it left behind.

When a parent ends, however it ends, its processes are killed. On Linux the system does this
(`PR_SET_PDEATHSIG`), so that also a process in a native loop ends. It is the *thread* that started
the process whose end counts. Elsewhere a thread looks at the parent once in a second; a process
that never lets another thread run then stays.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from ctypes import CDLL
from mmap import mmap
from tempfile import TemporaryFile
from time import monotonic, sleep
from typing import IO

from attrs import frozen

from kvcanon.conformance.workers.allowance import Passed, Reading, TimeTaken, read_thread
from kvcanon.conformance.workers.notes import Noted, limit_in, read_note

PR_SET_PDEATHSIG = 1
"""From `linux/prctl.h`."""
LOOKS_EVERY_SECONDS = 1.0

# Looked up once: after a fork nothing should be imported or allocated that another thread may lock.
_PRCTL = CDLL(None).prctl if sys.platform == "linux" else None


def end_with(parent: int) -> None:
    """Let this process end when its parent does, which is given by its id.

    A parent that has ended already ends the process at once.
    """
    if _PRCTL is not None:
        _PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    _end_without(parent)


def tied() -> Callable[[], None] | None:
    """What `subprocess.Popen` takes as `preexec_fn`, so that a program ends with this process.

    None where the system cannot do it: a program then ends when it reads the end of its input.
    """
    if _PRCTL is None:
        return None
    parent, prctl = os.getpid(), _PRCTL

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _end_without(parent)

    return tie


def _end_without(parent: int) -> None:
    """End at once if the parent ended before it could be watched."""
    if os.getppid() != parent:
        os._exit(1)


def _watch(parent: int) -> None:
    while True:
        sleep(LOOKS_EVERY_SECONDS)
        _end_without(parent)


SILENT = "CacheSilent"
"""The name of an end by the time limit, in native code as in Python."""

GRACE_SHARE, MOST_GRACE_SECONDS = 0.25, 2.0
"""How much longer than its limit a process may take: in Python it finds out by itself."""
STACKS_SECONDS = 1.5
"""How long a process may take to write its stacks when it is ended."""
END_SECONDS = 0.5
"""How long a process that closed its connection may take to end."""
MOST_WORDS = 1 << 14
"""Bytes of the last words of a process that are kept."""
MOST_OUTPUT = 1 << 26
"""Bytes of stderr after which the earlier ones are dropped: a cache may write without end."""


_THREAD = re.compile(r"(?<=[Tt])hread 0x[0-9a-f]+")


@frozen
class Ending:
    """The end of a process."""

    name: str
    """A signal such as SIGSEGV, an exit code such as "exit code 9", or SILENT."""
    noted: Noted
    words: str
    """The end of what it wrote to stderr, with the stacks of all threads if Python knew them."""
    passed: Passed | None = None
    """The limit that it passed, if it was ended for that."""

    @property
    def text(self) -> str:
        """The end in words, for "the cache ..."."""
        if self.passed is not None and self.noted.allowed is not None:
            return self.noted.allowed.text(self.passed)
        return f"ended its process with {self.name}"


class ProcessDied(Exception):
    """A process ended, or was ended because it was late, before it gave its answer."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.text)
        self.ending = ending


class Words:
    """What a process writes to stderr, in a file without a name."""

    def __init__(self) -> None:
        self.file: IO[bytes] = TemporaryFile("a+b", buffering=0)  # noqa: SIM115  # See `close`.

    def close(self) -> None:
        """Give the file back."""
        self.file.close()

    def last(self, most: int = MOST_WORDS) -> bytes:
        """The last bytes that the process wrote."""
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), most, max(0, size - most))

    def drop(self, more_than: int = 0) -> None:
        """Empty the file if it has more than this many bytes."""
        if os.fstat(self.file.fileno()).st_size > more_than:
            self.file.truncate(0)


class Watch:
    """Looks whether a process is late, by its note and by what its main thread does."""

    def __init__(
        self, memory: mmap, pid: int, read: Callable[[int], Reading | None] = read_thread
    ) -> None:
        self._memory, self._pid, self._read = memory, pid, read
        self._number = 0
        self._taken = TimeTaken(None)

    def look(self) -> Passed | None:
        """The limit that it has passed since its action was first looked at."""
        number, allowed = limit_in(self._memory)
        if allowed is None:
            return None
        reading = self._read(self._pid)
        if number != self._number:
            self._number, self._taken = number, TimeTaken(reading)
            return None
        self._taken.look(reading)
        least = min(allowed.processor, allowed.waiting)
        grace = min(MOST_GRACE_SECONDS, least * GRACE_SHARE)
        return self._taken.passed(allowed, grace)


def end_late(pid: int, ended: Callable[[], bool]) -> None:
    """End a process that is late. It writes the stacks of its threads first, if it can."""
    _send(pid, signal.SIGABRT)
    end_soon(pid, ended, STACKS_SECONDS)


def end_soon(pid: int, ended: Callable[[], bool], seconds: float = END_SECONDS) -> None:
    """Wait for the end of a process that most likely ends by itself, and then kill it."""
    until = monotonic() + seconds
    while not ended() and monotonic() < until:
        sleep(0.02)
    _send(pid, signal.SIGKILL)


def end_group(pid: int) -> None:
    """Kill a process that leads its group, and all that it started there."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def ending_of(code: int, memory: mmap, words: bytes, passed: Passed | None) -> Ending:
    """The end of a process with this exit code, negative for a signal, or for passing a limit."""
    noted = read_note(memory)
    if passed is not None:
        words = words.replace(
            b"Fatal Python error: Aborted", b"All threads at the end of the time:"
        )
    return Ending(exit_name(code) if passed is None else SILENT, noted, _last(words), passed)


def exit_name(code: int) -> str:
    """The name of an exit code, or of the signal if it is negative."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def _last(words: bytes) -> str:
    """The last words; stacks without the numbers of threads, which differ each time."""
    said = words.decode(errors="replace").strip()
    return _THREAD.sub("hread", said)


def _send(pid: int, what: signal.Signals) -> None:
    try:
        os.kill(pid, what)
    except ProcessLookupError:
        return
