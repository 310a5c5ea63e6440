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
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from attrs import define, field

from kvcanon.live.endpoints import BadEndpoint, check_endpoint
from kvcanon.live.frames import Source

_NAME = re.compile(r"dns://(?P<host>[^:/]+):(?P<port>\d+)(?:/(?P<replay>\d+))?")
MOST_FILE_BYTES = 1 << 20


class NotFound(OSError):
    """A file or a name that cannot be read now; it may be there later."""


@define
class Discovery:
    """Where publishers are found, and how often it is read; in a thread, since DNS can be slow."""

    place: str
    every_s: float = 10.0
    problem: str | None = None
    """Why it could not be read the last time, if it could not."""
    _due: float = 0.0
    _thread: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(1, "discovery"))
    _reading: Future[list[Source]] | None = None

    def look(self) -> list[Source] | None:
        """The publishers that are there now; None where nothing new is known."""
        if self._reading is None:
            if time.monotonic() >= self._due:
                self._due = time.monotonic() + self.every_s
                self._reading = self._thread.submit(find_sources, self.place)
            return None
        if not self._reading.done():
            return None
        read, self._reading = self._reading, None
        try:
            found = read.result()
        except OSError as error:
            self.problem = str(error)
            return None
        self.problem = None
        return found

    def close(self) -> None:
        """Stop looking."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def find_sources(place: str) -> list[Source]:
    """The publishers that a file lists or a name has. Raises: BadEndpoint, NotFound."""
    if place.startswith("dns://"):
        return _by_name(place)
    path = Path(place)
    try:
        with path.open(encoding="utf-8") as file:
            lines = file.read(MOST_FILE_BYTES).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"{place} cannot be read: {error}") from error
    return [_of_line(line, place) for line in lines if line.strip() and line.strip()[0] != "#"]


def _of_line(line: str, place: str) -> Source:
    parts = line.split()
    if len(parts) > 2:  # An endpoint, and that of its replays.
        raise BadEndpoint(f"{place}: {line!r} is no endpoint and endpoint of replays")
    for endpoint in parts:
        check_endpoint(endpoint)
    return Source(parts[0], parts[1] if len(parts) > 1 else None)


def _by_name(place: str) -> list[Source]:
    found = _NAME.fullmatch(place)
    if found is None:
        raise BadEndpoint(f"{place!r} has no port; give one such as dns://vllm-headless:5557/5558")
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
