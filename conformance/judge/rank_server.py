"""A rank in a process of its own: what runs there.

The process is a fresh interpreter with another seed of Python's hashes. It makes one cache after
the other, each with an engine, and makes the calls that the judge sends. Where the cache agrees
with the other ranks, or a copy ends, it asks the judge.
"""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from random import Random
from typing import Any

from attrs import Factory, frozen

from kvcanon.conformance.errors import describe_exception
from kvcanon.conformance.judge.rank_engine import RankEngine
from kvcanon.conformance.protocol.adapter import MakeCache
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.workers.ending import end_with
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import TransferId

SIZES_BYTES, OF_EACH_SIZE, OVERHEAD_BYTES = range(64, 513, 16), 512, 40
"""The objects that scatter memory: their sizes, how many of each, and what is no content."""
READY = b"ready"
"""What the process says first."""


@frozen
class Status:
    """The engine of a rank, as the judge sees it after each call."""

    open_transfer_ids: tuple[TransferId, ...] = ()
    ended: Mapping[TransferId, bool] = Factory(dict)
    waits: tuple[TransferId, ...] = ()


class NoFactory(Exception):
    """The factory cannot be found in another process, or what its cache shows cannot be sent."""


@frozen
class FactoryPlace:
    """Where another process finds a factory: by the name of its adapter, or as a pickled one."""

    name: str
    pickled: bytes | None

    def find(self) -> MakeCache:
        """Find the factory. Raises: what its import raises."""
        if self.pickled is None:
            return load_adapter(self.name).make
        make: MakeCache = pickle.loads(self.pickled)  # noqa: S301  # Our own parent pickled it.
        return make


class RankServer:
    """The cache of one rank, and its connection to the judge."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cache: Any = None
        self._kept: list[bytes] = []
        """What lies between the objects of the cache."""
        self._engine = RankEngine(lambda *_: False)

    def serve(self) -> None:
        """Make calls until the judge closes the connection."""
        while True:
            try:
                name, args, kwargs = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # As above.
            except EOFError:
                return
            answer = _pickled(partial(getattr(self, name), *args, **kwargs))
            engine = self._engine
            status = Status(engine.open_transfer_ids, dict(engine.ended), tuple(engine.waits))
            self._connection.send_bytes(pickle.dumps(("answers", answer, status)))

    def make(self, factory: FactoryPlace, config: CacheConfig) -> None:
        """Make the cache, in place of the last. Raises: NoFactory."""
        self._engine = RankEngine(partial(self._ask, "fails"))
        try:
            make = factory.find()
        except Exception as error:
            raise NoFactory(describe_exception(error)) from error
        self._kept = scattered_memory()
        self._cache = make(config, engine=self._engine, agree=partial(self._ask, "agree"))
        try:
            pickle.dumps(self._cache.snapshot())
        except Exception as error:
            raise NoFactory(describe_exception(error)) from error

    def operate(self, name: str, *args: object, **kwargs: object) -> object:
        """Make an operation of the cache."""
        self._engine.begin()
        return self.look(name, *args, **kwargs)

    def look(self, name: str, *args: object, **kwargs: object) -> object:
        """Make a call of the cache that is no operation."""
        return getattr(self._cache, name)(*args, **kwargs)

    def engine(self, name: str, *args: object) -> object:
        """Decide on a copy."""
        return getattr(self._engine, name)(*args)

    def _ask(self, name: str, *about: Sequence[int] | TransferId) -> Any:  # noqa: ANN401  # The judge answers.
        """Ask the judge in the middle of a call. Raises: what it says."""
        self._connection.send_bytes(pickle.dumps(("asks", name, about)))
        served, value = pickle.loads(self._connection.recv_bytes())  # noqa: S301  # As above.
        if not served:
            raise value
        return value


def scattered_memory() -> list[bytes]:
    """Scatter free memory, so that new objects lie in no order, as after days of serving.

    Returns the objects between the gaps; keep them. What is ordered by addresses then has another
    order than on the other ranks, whose memory is new.
    """
    taken = [bytes(size - OVERHEAD_BYTES) for size in SIZES_BYTES for _ in range(OF_EACH_SIZE)]
    Random(0).shuffle(taken)
    kept = [taken.pop() for _ in range(len(taken) // 2)]
    while taken:
        taken.pop()  # One by one, each gives its memory back.
    return kept


def _pickled(do: Callable[[], object]) -> bytes:
    """Do it, and pickle a pair: whether it returned, and its result or what it raised."""
    try:
        return pickle.dumps((True, do()))
    except BaseException as error:  # noqa: BLE001  # A cache may raise anything.
        try:
            pickled = pickle.dumps((False, error))
            pickle.loads(pickled)  # noqa: S301  # It may need more arguments than it kept.
        except Exception:  # noqa: BLE001  # Whatever it raises, it cannot be sent.
            return pickle.dumps((False, RuntimeError(describe_exception(error))))
        return pickled


def serve(connection_fd: int, parent: int) -> None:
    """Serve the calls of a rank until the judge closes the connection or ends."""
    end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # The judge's stdout has reports.
    connection = Connection(connection_fd)
    connection.send_bytes(READY)
    RankServer(connection).serve()
    os._exit(0)
