"""A rank in a process of its own, as the judge sees it.

The last rank of a case has another seed of Python's hashes than the others: what a cache chooses by
the order of a set of strings is then another thing there, as in production. The process starts with
the first case that has ranks, and makes the caches of all later ones.

There is none where this process was started without a seed, since what it finds would not show
again, and for a factory that another process cannot find, such as a closure.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from time import monotonic
from typing import Any

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.rank_server import FactoryPlace, NoFactory, Status
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.workers.hash_seeds import SEEDS, environment, own_seed
from kvcanon.conformance.workers.notes import NOTE
from kvcanon.conformance.workers.workers import python_command
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import Component, Slot, TransferId

START_SECONDS, LOOKS_EVERY_SECONDS = 120.0, 0.25
"""How long the process may take to start, and how often it is looked for meanwhile."""

BOOT = (
    "import sys; sys.path[:] = {path!r}; "
    "from kvcanon.conformance.judge.rank_server import serve; serve({connection}, {parent})"
)


class RankDied(Exception):
    """The process of a rank ended in a call."""


Ask = Callable[..., object]
"""Answers what a rank asks in the middle of a call."""


class RankProcess:
    """The process, and the connection to it."""

    def __init__(self, hash_seed: int) -> None:
        self.hash_seed = hash_seed
        self.owner = os.getpid()
        self.status = Status()
        self.asked: dict[str, Ask] = {}
        """Answers `agree`, and whether a copy fails."""
        self._within = False
        """Whether a call has not returned, or never will."""
        self._connection, theirs = Pipe()
        boot = BOOT.format(path=[*sys.path], connection=theirs.fileno(), parent=self.owner)
        process = subprocess.Popen(  # noqa: S603  # Our own interpreter and module.
            python_command(boot),
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env=environment(hash_seed),
        )
        theirs.close()
        self._end = weakref.finalize(self, _end, process, self._connection, self.owner)

    @property
    def usable(self) -> bool:
        """Whether it can take a call, from this process."""
        return self._end.alive and not self._within and self.owner == os.getpid()

    def wait(self) -> bool:
        """Wait until it has started. Returns whether it has."""
        until = monotonic() + START_SECONDS
        while not self._connection.poll(LOOKS_EVERY_SECONDS):
            NOTE.renew()  # Its imports are not the cache's time.
            if monotonic() > until:
                self.end()
                return False
        try:
            self._connection.recv_bytes()
        except EOFError:
            self.end()
            return False
        return True

    def end(self) -> None:
        """End it."""
        self._end()

    def call(self, name: str, /, *args: object, **kwargs: object) -> Any:  # noqa: ANN401  # The answer of any call.
        """Make a call there. Raises: what it raised; RankDied."""
        self._within = True
        try:
            self._connection.send_bytes(pickle.dumps((name, args, kwargs)))
            answer = self._answer()
        except (EOFError, OSError):
            self.end()
            raise RankDied(
                f"the process of the last rank, with another hash seed ({self.hash_seed}), ended"
            ) from None
        self._within = False
        served, value = pickle.loads(answer)  # noqa: S301  # Our own child pickled it.
        if served:
            return value
        raise value

    def _answer(self) -> bytes:
        while True:
            kind, *said = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # As above.
            if kind == "answers":
                answer, self.status = said
                return bytes(answer)
            name, about = said
            try:
                reply = True, self.asked[name](*about)
            except Exception as error:  # noqa: BLE001  # It is raised in the call.
                reply = False, error
            self._connection.send_bytes(pickle.dumps(reply))


def _end(process: subprocess.Popen[bytes], connection: Connection, owner: int) -> None:
    connection.close()
    if owner == os.getpid():
        process.kill()
        process.wait()


class RankApart:
    """The cache of a rank in another process."""

    def __init__(self, process: RankProcess) -> None:
        self._process = process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """An operation of the cache."""
        return partial(self._process.call, "operate", name)

    def arrived(self) -> tuple[Completion, ...]:
        """The transfers that can settle."""
        found: tuple[Completion, ...] = self._process.call("look", "arrived")
        return found

    def snapshot(self) -> Snapshot:
        """The whole state."""
        state: Snapshot = self._process.call("look", "snapshot")
        return state

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot."""
        self._process.call("look", "write", component, slot, data)


class EngineApart:
    """The engine of a rank in another process."""

    def __init__(self, process: RankProcess) -> None:
        self._process = process

    @property
    def open_transfer_ids(self) -> tuple[TransferId, ...]:
        """The ids of the open orders."""
        return self._process.status.open_transfer_ids

    @property
    def ended(self) -> Mapping[TransferId, bool]:
        """How each order ended."""
        return self._process.status.ended

    @property
    def waits(self) -> Sequence[TransferId]:
        """The orders that the cache waited for in the last operation."""
        return self._process.status.waits

    def begin(self) -> None:
        """Begin an operation; the process does so by itself."""

    def perform(self, transfer_id: TransferId) -> None:
        """Copy the bytes now."""
        self._process.call("engine", "perform", transfer_id)

    def next_wait(self, end: str) -> None:
        """Say how the next wait for an order of the operation ends."""
        self._process.call("engine", "next_wait", end)

    def end(self, transfer_id: TransferId) -> None:
        """Let an order end, unless it has ended."""
        self._process.call("engine", "end", transfer_id)


class _Keeper:
    """Keeps the process of this one, and remembers which factories it does not find."""

    def __init__(self) -> None:
        self._running: RankProcess | None = None
        self._unknown: set[FactoryPlace] = set()
        self._never_starts = False

    def make(self, factory: FactoryPlace, config: CacheConfig) -> RankProcess | None:
        """The process with an empty cache; None if there can be none. Raises: as the factory."""
        process = None if factory in self._unknown else self._usable()
        if process is None:
            return None
        try:
            process.call("make", factory, config)
        except NoFactory:
            self._unknown.add(factory)
            return None
        return process

    def _usable(self) -> RankProcess | None:
        """The process, started if there is none that takes a call."""
        seed = own_seed()
        if seed is None or self._never_starts:
            return None
        if self._running is None or not self._running.usable:
            if self._running is not None:
                self._running.end()
            self._running = RankProcess((seed + 1) % SEEDS)
            self._never_starts = not self._running.wait()
        return None if self._never_starts else self._running


_KEEPER = _Keeper()


def start_apart(adapter: Adapter, config: CacheConfig) -> RankProcess | None:
    """The process of a rank with an empty cache of this adapter; None if there can be none.

    Raises: what the factory raises there.
    """
    factory = _factory_of(adapter)
    return None if factory is None else _KEEPER.make(factory, config)


def _factory_of(adapter: Adapter) -> FactoryPlace | None:
    """Where another process finds a factory; None if it cannot."""
    try:
        return FactoryPlace(adapter.name, pickle.dumps(adapter.make))
    except Exception:  # noqa: BLE001  # A factory may be anything.
        try:
            found = load_adapter(adapter.name).make
        except UsageError:
            return None
        return FactoryPlace(adapter.name, None) if found is adapter.make else None
