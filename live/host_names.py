"""Looks up host names in threads of its own.

ZeroMQ looks a name up in the thread that moves the bytes of all sockets. One name without an
answer, as that of a pod that is gone, would hold up every other publisher, and the watch's end.
"""

from __future__ import annotations

import re
import socket
import time
from queue import Empty, SimpleQueue
from threading import Thread

from attrs import define, field

MOST_LOOKUPS = 64
"""At once; each may take as long as the system waits for its name servers."""
LOOKED_UP_AGAIN_S = 10.0
"""After an answer, while nobody is connected by it: a pod that starts again has another address."""
_NAMED = re.compile(r"tcp://(?P<host>[A-Za-z0-9._-]*[A-Za-z_-][A-Za-z0-9._-]*):(?P<port>\d+)")


@define
class _Known:
    """What is known of a name."""

    address: str | None = None
    is_asked: bool = False
    answered: float = 0.0


@define
class HostNames:
    """The addresses of host names, as far as they are known by now."""

    _known: dict[str, _Known] = field(factory=dict)
    _asked: SimpleQueue[str] = field(factory=SimpleQueue)
    _answers: SimpleQueue[tuple[str, str | None]] = field(factory=SimpleQueue)
    _threads: int = 0
    waiting: int = 0
    """Names whose answer has not come."""

    def resolved(self, endpoint: str) -> str | None:
        """The endpoint by its address; None while that is not known, and then it is looked up.

        An endpoint without a name is returned as it is.
        """
        named = _NAMED.fullmatch(endpoint)
        if named is None:
            return endpoint
        known = self._known.setdefault(named["host"], _Known())
        if known.address is None:
            self._ask(named["host"], known)
            return None
        return f"tcp://{known.address}:{named['port']}"

    def look_again(self, endpoint: str) -> None:
        """Look the name of an endpoint up once more, if it has one and the answer is old."""
        named = _NAMED.fullmatch(endpoint)
        if named is not None:
            self._ask(named["host"], self._known.setdefault(named["host"], _Known()))

    def forget(self, endpoint: str) -> None:
        """Know nothing of a name any more."""
        named = _NAMED.fullmatch(endpoint)
        if named is not None:
            self._known.pop(named["host"], None)

    def take_answers(self) -> bool:
        """Take the answers that have come, and say whether an address is another now."""
        changed = False
        while True:
            try:
                host, address = self._answers.get_nowait()
            except Empty:
                return changed
            self.waiting -= 1
            known = self._known.get(host)
            if known is None:
                continue
            known.is_asked, known.answered = False, time.monotonic()
            # A name server that is out of order for a while takes no address away.
            if address is not None and address != known.address:
                known.address = address
                changed = True

    def close(self) -> None:
        """End the threads that wait; those that look a name up end after it."""
        for _ in range(self._threads):
            self._asked.put("")

    def _ask(self, host: str, known: _Known) -> None:
        is_new = not known.answered or time.monotonic() - known.answered > LOOKED_UP_AGAIN_S
        if known.is_asked or not is_new:
            return
        known.is_asked = True
        self.waiting += 1
        self._asked.put(host)
        if self._threads < min(self.waiting, MOST_LOOKUPS):
            self._threads += 1
            Thread(
                target=_look_up,
                args=(self._asked, self._answers),
                name="kvcanon-names",
                daemon=True,
            ).start()


def _look_up(asked: SimpleQueue[str], answers: SimpleQueue[tuple[str, str | None]]) -> None:
    while host := asked.get():
        answers.put((host, address_of(host)))


def address_of(host: str) -> str | None:
    """The address of a name as endpoints have it, of version 4 if there is one, or None."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    addresses = [str(each[4][0]) for each in found if each[0] == socket.AF_INET]
    addresses += [f"[{each[4][0]}]" for each in found if each[0] == socket.AF_INET6]
    return addresses[0] if addresses else None
