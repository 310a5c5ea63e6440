"""Forks: does one thing in a copy of this process, which the thing may end or block.

A fork takes milliseconds, where a new interpreter takes half a second: so a case that ends its
process is reduced with hundreds of plays. The copy has this thread alone. Fork before a cache is
made, as a library that has threads or a device may not work in the copy.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
from collections.abc import Callable
from contextlib import closing
from mmap import mmap
from multiprocessing.connection import Connection, Pipe
from typing import Any, NoReturn, TypeVar

from kvcanon.conformance.workers.allowance import Passed
from kvcanon.conformance.workers.ending import (
    MOST_OUTPUT,
    ProcessDied,
    Watch,
    Words,
    end_group,
    end_late,
    end_soon,
    end_with,
    ending_of,
)
from kvcanon.conformance.workers.notes import NOTE, SIZE
from kvcanon.conformance.workers.worker import answer_of

LOOKS_EVERY_SECONDS = 0.05

Result = TypeVar("Result")
Tell = Callable[[object], None]
"""Sends a value to the parent at once, so that it outlives the copy."""


def in_fork(do: Callable[[Tell], Result], heard: Callable[[Any], None] = lambda _: None) -> Result:
    """Do something in a copy of this process; `heard` gets each value that the copy sends.

    The result, or what was raised, must be picklable. Raises: ProcessDied: the copy ended before it
    had a result; and whatever `do` raises.
    """
    memory = mmap(-1, SIZE)
    hears, tells = Pipe(duplex=False)
    with closing(Words()) as words:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _be_the_copy(do, memory, tells, words, parent)
        tells.close()
        copy = _Copy(pid, hears, memory, words)
        try:
            served, value = copy.listen(heard)
        finally:
            copy.end()
    if not served:
        raise value
    result: Result = value
    return result


def _be_the_copy(
    do: Callable[[Tell], object], memory: mmap, tells: Connection, words: Words, parent: int
) -> NoReturn:
    """Run the function, send its result or its error to the parent, and end the process."""
    try:
        end_with(parent)
        os.setsid()
        os.dup2(words.file.fileno(), 2)
        faulthandler.enable(file=2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        NOTE.share(memory)
        me = os.getpid()

        def tell(value: object) -> None:
            tells.send_bytes(pickle.dumps((None, value)))

        answer = answer_of(lambda: do(tell))
        if os.getpid() == me:
            tells.send_bytes(answer)
    finally:
        os._exit(0)


class _Copy:
    """The copy, as the parent sees it."""

    def __init__(self, pid: int, hears: Connection, memory: mmap, words: Words) -> None:
        self._pid, self._hears, self._memory, self._words = pid, hears, memory, words
        self._watch = Watch(memory, pid)
        self._code: int | None = None

    def listen(self, heard: Callable[[Any], None]) -> tuple[bool, Any]:
        """Read all that it sends, and return its result. Raises: ProcessDied."""
        passed: Passed | None = None
        while True:
            over = passed is not None or self._ended()
            try:
                while self._hears.poll(0 if over else LOOKS_EVERY_SECONDS):
                    kind, value = pickle.loads(self._hears.recv_bytes())  # noqa: S301
                    if kind is not None:
                        return kind, value
                    heard(value)
            except EOFError:
                # Only its end closes the pipe, unless the cache does.
                end_soon(self._pid, self._ended)
                over = True
            if over:
                raise self._died(passed)
            self._words.drop(MOST_OUTPUT)
            passed = self._watch.look()
            if passed is not None:
                end_late(self._pid, self._ended)

    def end(self) -> None:
        """Kill it, and what it started."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
            self._wait()
        end_group(self._pid)
        self._hears.close()
        self._memory.close()

    def _ended(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is not None

    def _wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def _died(self, passed: Passed | None) -> ProcessDied:
        words = self._words.last()
        return ProcessDied(ending_of(self._wait(), self._memory, words, passed))
