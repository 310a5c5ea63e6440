"""Where a store runs: in a thread of this process, or in a process of its own that may be killed.

A store that outlives its process is judged in processes of their own, copies of this one: a copy
takes milliseconds, and what the adapter imported is there. One that does not is judged here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import NoReturn, Protocol

from attrs import define, field

from kvcanon.conformance.stores.adapter import StoreGround
from kvcanon.conformance.stores.host import NO_INTERRUPT, Interrupt, StoreHost
from kvcanon.conformance.workers.ending import end_with
from kvcanon.spec.stores.calls import Answered, Failed, StoreCall
from kvcanon.spec.stores.pages import StoreIdentity

LOOKS_EVERY_SECONDS = 0.002
LATE_SECONDS = 40.0
"""How long a call that was given up is waited for, after the store goes on."""

Answer = tuple[Answered | Failed, float]


class Host(Protocol):
    """An open store, somewhere."""

    def call(
        self,
        call: StoreCall,
        identity: StoreIdentity,
        wait_seconds: float,
        interrupt: Interrupt = NO_INTERRUPT,
    ) -> Answer | None:
        """Make a call; None if an interrupt has stopped the process in it."""

    def proceed(self, wait_seconds: float) -> Answer:
        """Let a stopped process go on, or wait for a call that was given up; its answer."""

    def end(self) -> None:
        """Close the store, and end what it runs in."""


def _silent(seconds: float) -> Answer:
    return Failed(f"did not answer in {seconds:.1f} s", silent=True), seconds


@define(eq=False)
class LocalHost:
    """A store in this process; each call runs in a thread, so that the judge need not wait."""

    host: StoreHost
    thread: threading.Thread | None = None
    answers: list[Answer] = field(factory=list)

    def call(
        self,
        call: StoreCall,
        identity: StoreIdentity,
        wait_seconds: float,
        interrupt: Interrupt = NO_INTERRUPT,
    ) -> Answer | None:
        """Make a call."""
        self.answers = []
        into = self.answers

        def work() -> None:
            into.append(self.host.perform(call, identity, interrupt))

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()
        return self.proceed(wait_seconds)

    def proceed(self, wait_seconds: float) -> Answer:
        """Wait for the answer."""
        assert self.thread is not None  # noqa: S101  # A call was made.
        self.thread.join(wait_seconds)
        return self.answers[0] if self.answers else _silent(wait_seconds)

    def end(self) -> None:
        """Close the store."""
        self.host.close()


@define(eq=False)
class ProcessHost:
    """A store in a copy of this process."""

    pid: int
    pipe: Connection
    ended: int | None = None
    """The exit code or minus the signal that ended it; None while it runs."""

    @classmethod
    def start(cls, ground: StoreGround, capacity_bytes: int | None) -> ProcessHost:
        """Copy this process."""
        ours, theirs = Pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            _serve(StoreHost(ground, capacity_bytes), theirs, parent)
        theirs.close()
        return cls(pid, ours)

    def call(
        self,
        call: StoreCall,
        identity: StoreIdentity,
        wait_seconds: float,
        interrupt: Interrupt = NO_INTERRUPT,
    ) -> Answer | None:
        """Make a call."""
        if self.ended is not None:
            return Failed(self._ending()), 0.0
        with suppress(OSError):  # If it has ended, the answer says so.
            self.pipe.send((call, identity, interrupt))
        return self._hear(wait_seconds, killed=interrupt.signal == signal.SIGKILL)

    def proceed(self, wait_seconds: float) -> Answer:
        """Let it go on, and return its answer."""
        os.kill(self.pid, signal.SIGCONT)
        answer = self._hear(wait_seconds)
        return answer if answer is not None else _silent(wait_seconds)

    def end(self) -> None:
        """Close the store and end the process; kill it, if it does not end."""
        if self.ended is None:
            try:
                self.pipe.send(None)
                self.pipe.poll(LATE_SECONDS)
            except OSError:
                pass
            self._look()
        if self.ended is None:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
            self.ended = os.waitstatus_to_exitcode(status)
        self.pipe.close()

    def _hear(self, wait_seconds: float, *, killed: bool = False) -> Answer | None:
        until = time.monotonic() + wait_seconds
        while True:
            try:
                if self.pipe.poll(LOOKS_EVERY_SECONDS):
                    answer: Answer = self.pipe.recv()
                    return answer
            except (EOFError, OSError):
                self._look(wait=True)
            if self._look():
                return None
            if self.ended is not None:
                return Failed(self._ending(), killed=killed and self.ended == -signal.SIGKILL), 0.0
            if time.monotonic() > until:
                return _silent(wait_seconds)

    def _look(self, *, wait: bool = False) -> bool:
        """Note whether the process has ended; returns whether it is stopped."""
        if self.ended is not None:
            return False
        pid, status = os.waitpid(self.pid, os.WUNTRACED | (0 if wait else os.WNOHANG))
        if pid and os.WIFSTOPPED(status):
            return True
        if pid:
            self.ended = os.waitstatus_to_exitcode(status)
        return False

    def _ending(self) -> str:
        code = self.ended or 0
        return f"ended its process ({signal.Signals(-code).name if code < 0 else f'exit {code}'})"


def _serve(host: StoreHost, pipe: Connection, parent: int) -> NoReturn:
    """Make the calls that come through the pipe, until it ends."""
    try:
        end_with(parent)
        while (request := pipe.recv()) is not None:
            call, identity, interrupt = request
            pipe.send(host.perform(call, identity, interrupt))
        host.close()
        pipe.send(None)
    except (EOFError, OSError):
        pass
    finally:
        os._exit(0)
