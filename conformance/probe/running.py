"""A request whose reply is generated while others are sent."""

from __future__ import annotations

import threading
import time

from attrs import define, field

from kvcanon.conformance.probe.talk import EngineApi, Leaves, ProbeReply, ProbeRequest


@define(eq=False)
class RunningRequest:
    """A request whose reply another thread reads."""

    api: EngineApi
    request: ProbeRequest
    real: ProbeRequest
    """The request as it is sent."""
    leaves: Leaves
    """Whether its client leaves; it leaves after `leave`, too."""
    began: float = field(factory=time.time)
    """Seconds since 1970."""
    generated: int = 0
    _reply: ProbeReply | None = None
    _problem: Exception | None = None
    _begun: threading.Event = field(factory=threading.Event)
    _left: bool = False
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Send it, and return once its first token came. Raises: ServerProblem."""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._problem is not None:
            raise self._problem

    @property
    def goes_on(self) -> bool:
        """Whether tokens are still to come."""
        ended = self._reply is not None or self._problem is not None
        return not ended and self.generated < self.request.count

    def wait(self) -> ProbeReply:
        """The reply, once it has ended. Raises: ServerProblem."""
        if self._thread is not None:
            self._thread.join()
        if self._problem is not None:
            raise self._problem
        if self._reply is None:
            raise RuntimeError("the request was not started")
        return self._reply

    def leave(self) -> None:
        """Let the client leave at the next token, and wait until it has."""
        self._left = True
        if self._thread is not None:
            self._thread.join()

    def _read(self) -> None:
        try:
            self._reply = self.api.generate(self.real, self._leaves)
        except Exception as error:  # noqa: BLE001  # It is raised where the reply is waited for.
            self._problem = error
        finally:
            self._begun.set()

    def _leaves(self, count: int) -> bool:
        self.generated = count
        if count:
            self._begun.set()
        return self._left or self.leaves(count)
