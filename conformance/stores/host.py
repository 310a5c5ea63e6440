"""The judge's side of a store, in the process that has it open.

It makes the buffers of a get with memory around them that nobody may write to, keeps them after the
get has returned, and can tell later whether they were written to. It interrupts a put at a call
that is counted, not at a time, so that the same case is interrupted at the same place.
"""

from __future__ import annotations

import builtins
import os
import resource
import signal
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType

from attrs import define, field, frozen

from kvcanon.conformance.errors import describe_exception
from kvcanon.conformance.stores.adapter import StoreGround
from kvcanon.spec.stores.calls import (
    Answered,
    ExistsCall,
    Failed,
    GetCall,
    LookCall,
    Looked,
    OpenCall,
    PageRead,
    PutCall,
    RemoveCall,
    RunCall,
    StoreCall,
)
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import StoreIdentity

GUARD = b"\xa5" * 64
"""Memory between buffers."""
KEPT_GETS = 16
"""How many gets are looked at again."""
LOOKS_AFTER_SECONDS = 0.02
"""How long a look waits for what is still under way."""


@frozen
class Interrupt:
    """What to do to a put while it runs."""

    signal: int = 0
    """Sent to the own process at a call; 0 for none."""
    at_call: int = 0
    """The number of the call, among those of functions in C that leave Python."""
    most_bytes: int | None = None
    """The largest size of a file meanwhile."""


NO_INTERRUPT = Interrupt()


@define(eq=False)
class StoreHost:
    """An open store with the buffers of its last gets."""

    ground: StoreGround
    capacity_bytes: int | None
    store: PageStore | None = None
    gets: deque[tuple[bytearray, bytes]] = field(factory=lambda: deque(maxlen=KEPT_GETS))
    """The memory of the last gets, and what was in it when they returned."""

    def perform(
        self, call: StoreCall, identity: StoreIdentity, interrupt: Interrupt = NO_INTERRUPT
    ) -> tuple[Answered | Failed, float]:
        """Make a call; returns its answer and how long it took, in seconds."""
        begin = time.perf_counter()
        try:
            with interrupted(interrupt):
                answer = self._make(call, identity)
        except Exception as error:  # noqa: BLE001  # A store may raise anything.
            return Failed(f"raised {describe_exception(error)}"), time.perf_counter() - begin
        return answer, time.perf_counter() - begin

    def close(self) -> Answered | Failed:
        """Close the store."""
        store, self.store = self.store, None
        try:
            if store is not None:
                store.close()
        except Exception as error:  # noqa: BLE001
            return Failed(f"raised {describe_exception(error)}")
        return Answered(None)

    def _make(self, call: StoreCall, identity: StoreIdentity) -> Answered:  # noqa: PLR0911
        if isinstance(call, OpenCall):
            self.store = self.ground.open(identity, self.capacity_bytes)
            return Answered(None)
        if isinstance(call, LookCall):
            return Answered(Looked(tuple(self._late_writes()), self.ground.used_bytes()))
        assert self.store is not None  # noqa: S101  # The judge opens it first.
        if isinstance(call, PutCall):
            return Answered(_as_tuple(self.store.put(list(call.pages))))
        if isinstance(call, GetCall):
            return self._get(self.store, call)
        if isinstance(call, ExistsCall):
            return Answered(_as_tuple(self.store.exists(list(call.keys))))
        if isinstance(call, RunCall):
            return Answered(self.store.leading_run(list(call.keys)))
        assert isinstance(call, RemoveCall)  # noqa: S101  # There are no others.
        self.store.remove(list(call.keys))
        return Answered(None)

    def _get(self, store: PageStore, call: GetCall) -> Answered:
        """Get pages into buffers with guards around them."""
        memory = bytearray(GUARD)
        places: list[int] = []
        for size in call.sizes:
            places.append(len(memory))
            memory += bytes(size) + GUARD
        view = memoryview(memory)
        buffers = [view[at : at + size] for at, size in zip(places, call.sizes, strict=True)]
        value = _as_tuple(store.get(list(zip(call.keys, buffers, strict=True))))
        after = bytes(memory)
        self.gets.append((memory, after))
        if not isinstance(value, tuple) or len(value) != len(call.keys):
            return Answered(value)
        reads = tuple(
            PageRead(length, after[at : at + min(size, length)])
            if isinstance(length, int) and not isinstance(length, bool)
            else PageRead(None, b"")
            if length is None
            else length
            for length, at, size in zip(value, places, call.sizes, strict=True)
        )
        return Answered(reads, _strayed(after, places, call.sizes))

    def _late_writes(self) -> Iterator[str]:
        """What changed in the memory of earlier gets."""
        time.sleep(LOOKS_AFTER_SECONDS)
        for number, (memory, after) in enumerate(reversed(self.gets)):
            if bytes(memory) != after:
                at = next(
                    at
                    for at, (one, two) in enumerate(zip(memory, after, strict=True))
                    if one != two
                )
                ago = "the last get" if number == 0 else f"the get {number} gets ago"
                yield f"the memory of {ago} was written to at byte {at - len(GUARD)}, later"


def _strayed(memory: bytes, places: list[int], sizes: tuple[int, ...]) -> str:
    """Where memory between buffers was written to, in words."""
    if memory[: len(GUARD)] != GUARD:
        return "before its first buffer"
    for number, (at, size) in enumerate(zip(places, sizes, strict=True)):
        if memory[at + size : at + size + len(GUARD)] != GUARD:
            return f"behind the {size} bytes of buffer {number}"
    return ""


def _as_tuple(value: object) -> object:
    """An answer for each page as a tuple; anything else as it is."""
    return tuple(value) if isinstance(value, list | tuple) else value


@contextmanager
def interrupted(interrupt: Interrupt) -> Iterator[None]:
    """Interrupt the call in the block."""
    if interrupt.most_bytes is not None:
        with small_files(interrupt.most_bytes):
            yield
    elif interrupt.signal:
        with _at_call(interrupt.at_call, lambda: os.kill(os.getpid(), interrupt.signal)):
            yield
    else:
        yield


@contextmanager
def small_files(most_bytes: int) -> Iterator[None]:
    """Let no file grow beyond a size: a write that would is cut short, and the next fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def _at_call(number: int, do: Callable[[], None]) -> Iterator[None]:
    """Do something at a call that leaves Python, counted over all threads that begin inside."""
    left = [number]

    def count(frame: object, event: str, function: object) -> None:  # noqa: ARG001  # As called.
        if event == "c_call" and _leaves_python(function):
            left[0] -= 1
            if left[0] == 0:
                do()

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        yield
    finally:
        left[0] = 0  # A thread that began inside may outlive it, and goes on counting.
        sys.setprofile(None)
        threading.setprofile(None)


PURE = frozenset(
    {"builtins", "sys", "time", "math", "itertools", "array", "re", "_thread", "threading"}
    | {"_abc", "_collections", "_functools", "_hashlib", "_operator", "_random", "_sha2", "_sre"}
    | {"_sha256", "_struct", "_weakref", "_codecs", "_contextvars", "_queue", "_warnings"}
)
"""Modules whose functions touch nothing outside of the process."""
BUILT_IN = frozenset(
    each for each in [*vars(builtins).values(), *vars(types).values()] if isinstance(each, type)
)
"""Python's own types."""


def _leaves_python(function: object) -> bool:
    """Whether a function in C may write to a file or call the system, or is of a native library."""
    owner = getattr(function, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        kind = owner if isinstance(owner, type) else type(owner)
        # A type of a native library may say that it is of `builtins`.
        return kind not in BUILT_IN and (
            kind.__module__ not in PURE or kind.__module__ == "builtins"
        )
    return getattr(function, "__module__", None) not in PURE
