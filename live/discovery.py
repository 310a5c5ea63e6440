"""Finds publishers, again and again: in a file, or by a name of DNS.

A file has a publisher a line: its endpoint and, where it serves replays, that of its replays. Lines
that begin with # are left out. A name, as `dns://vllm-headless:5557`, stands for all addresses that
it has, as those of the pods of a headless service; `dns://vllm-headless:5557/5558` gives the port
of replays, too.
"""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from threading import Thread

from attrs import define

from kvcanon.live.endpoints import MOST_PORT, MOST_SHOWN, BadEndpoint, check_endpoint
from kvcanon.live.frames import Source
from kvcanon.live.input_files import in_utf_8

_NAME = re.compile(r"dns://(?P<host>[^:/\[\]]+):(?P<port>[0-9]{1,5})(?:/(?P<replay>[0-9]{1,5}))?")
MOST_FILE_BYTES = 1 << 20
SLOW_S = 5.0
"""After so long without an answer a place is said to give none."""


class NotFound(OSError):
    """A file or a name that cannot be read now; it may be there later."""


@define
class Discovery:
    """Where publishers are found, and how often it is read.

    Each time in a thread of its own that nothing waits for at the end, since DNS and files of other
    machines can be slow, or never answer.
    """

    place: str
    every_s: float = 10.0
    problem: str | None = None
    """Why it could not be read the last time, if it could not."""
    answered: bool = False
    """Whether it was read, or refused, at least once."""
    _due: float = 0.0
    _asked: float = 0.0
    _reading: Future[list[Source]] | None = None

    def look(self) -> list[Source] | None:
        """The publishers that are there now; None where nothing new is known."""
        if self._reading is None:
            if time.monotonic() >= self._due:
                self._asked = time.monotonic()
                self._due = self._asked + self.every_s
                self._reading = Future()
                Thread(target=_read, args=(self.place, self._reading), daemon=True).start()
            return None
        if not self._reading.done():
            waited_s = time.monotonic() - self._asked
            if waited_s > SLOW_S:
                self.problem = f"{self.place} has not answered for {waited_s:.0f} s"
            return None
        read, self._reading = self._reading, None
        self.answered = True
        try:
            found = read.result()
        except OSError as error:
            self.problem = str(error)
            return None
        self.problem = None
        return found


def _read(place: str, reading: Future[list[Source]]) -> None:
    try:
        reading.set_result(find_sources(place))
    except BaseException as error:  # noqa: BLE001  # It is raised where the result is taken.
        reading.set_exception(error)


def find_sources(place: str) -> list[Source]:
    """The publishers that a file lists or a name has. Raises: BadEndpoint, NotFound."""
    if place.startswith("dns://"):
        return _by_name(place)
    path = Path(place)
    if path.exists() and not path.is_file():
        # A pipe would wait for somebody who writes.
        raise NotFound(f"{place!r} is no file; name one that lists publishers")
    try:
        with path.open("rb") as file:
            lines = in_utf_8(file.read(MOST_FILE_BYTES)).decode().splitlines()
    except (OSError, ValueError) as error:
        raise NotFound(f"{place} cannot be read: {error}") from error
    return [_of_line(line, place) for line in lines if line.strip() and line.strip()[0] != "#"]


def _of_line(line: str, place: str) -> Source:
    parts = line.split()
    if len(parts) > 2:  # An endpoint, and that of its replays.
        raise BadEndpoint(f"{place}: {line!r} is no endpoint and endpoint of replays")
    for endpoint in parts:
        check_endpoint(endpoint)
    return Source(parts[0], parts[1] if len(parts) > 1 else None)


def check_place(place: str) -> None:
    """Refuse what can never be read, and look up no name for it. Raises: BadEndpoint."""
    if place.startswith("dns://"):
        _named(place)
        return
    with suppress(NotFound):
        find_sources(place)


def _named(place: str) -> re.Match[str]:
    """The parts of a name with its ports. Raises: BadEndpoint."""
    found = _NAME.fullmatch(place)
    if found is None:
        raise BadEndpoint(
            f"{place[:MOST_SHOWN]!r} is no name with a port; give one such as dns://vllm-headless:5557/5558"
        )
    for port in (found["port"], found["replay"]):
        if port is not None and not 0 < int(port) <= MOST_PORT:
            raise BadEndpoint(f"{place!r} names port {port}; ports are 1 to {MOST_PORT}")
    return found


def _by_name(place: str) -> list[Source]:
    found = _named(place)
    try:
        known = socket.getaddrinfo(found["host"], int(found["port"]), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotFound(f"{found['host']} has no address now: {error}") from error
    addresses = sorted({str(each[4][0]) for each in known})
    return [
        Source(
            _endpoint(address, found["port"]),
            None if found["replay"] is None else _endpoint(address, found["replay"]),
        )
        for address in addresses
    ]


def _endpoint(address: str, port: str) -> str:
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"
