"""Caches that end or block the process in which they run, each in its own way, by name."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import Key, Slots

LONG = 3
"""Prompts of more pages than this are deadly."""


class Unforeseen(BaseException):
    """No `Exception`, and of a class of the cache's own."""


def leave() -> None:
    """End as a careless program does."""
    sys.exit(0)


def leave_at_once() -> None:
    """End without a word, as if all were well."""
    os._exit(0)


def leave_with_nine() -> None:
    """End without a word."""
    os._exit(9)


def abort() -> None:
    """End as a failed assertion in native code does."""
    os.write(2, b"cache.cpp:7: assertion `refs > 0' failed\n")
    os.abort()


def read_at_zero() -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


def kill_itself() -> None:
    """Be killed, as for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    """Raise what Ctrl-C raises."""
    raise KeyboardInterrupt


def raise_unforeseen() -> None:
    """Raise what no `except Exception` catches."""
    raise Unforeseen("not foreseen")


def recurse() -> None:
    """Call without end."""
    recurse()


def exhaust() -> None:
    """Ask for more memory than there is."""
    raise MemoryError


def loop() -> None:
    """Loop in Python, and let no exception out."""
    while True:
        try:
            while True:
                pass
        except BaseException:  # noqa: BLE001, S112  # That is the fault.
            continue


def wait_for_ever() -> None:
    """Wait for a lock that nobody releases."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hold_the_interpreter() -> None:
    """Wait in native code that holds the GIL: no handler of Python runs, and no thread."""
    mutex = ctypes.create_string_buffer(256)
    lock = ctypes.PyDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


WAYS: dict[str, Callable[[], None]] = {
    each.__name__: each
    for each in (
        leave,
        leave_at_once,
        leave_with_nine,
        abort,
        read_at_zero,
        kill_itself,
        interrupt,
        raise_unforeseen,
        recurse,
        exhaust,
        loop,
        wait_for_ever,
        hold_the_interpreter,
    )
}


def _in_match(die: Callable[[], None]) -> type[ReferenceCache]:
    class DeadlyMatch(ReferenceCache):
        def match(self, key: Key) -> Matched:
            if len(key) > LONG:
                die()
            return super().match(key)

    return DeadlyMatch


def _in_free(die: Callable[[], None]) -> type[ReferenceCache]:
    class DeadlyFree(ReferenceCache):
        def free(self, slots: Slots) -> None:
            if len(slots.full) > LONG:
                die()
            super().free(slots)

    return DeadlyFree


def _in_some_factories(die: Callable[[], None]) -> Callable[[CacheConfig], ReferenceCache]:
    def make(config: CacheConfig) -> ReferenceCache:
        if config.page_size == 1 and config.window_tokens is None and config.mamba:
            die()
        return ReferenceCache(config)

    return make


def _in_every_factory(die: Callable[[], None]) -> Callable[[CacheConfig], ReferenceCache]:
    def make(config: CacheConfig) -> ReferenceCache:
        die()
        return ReferenceCache(config)

    return make


for _name, _die in WAYS.items():
    more = {
        f"match_{_name}": _in_match(_die),
        f"free_{_name}": _in_free(_die),
        f"made_{_name}": _in_some_factories(_die),
        f"unmade_{_name}": _in_every_factory(_die),
    }
    globals().update(more)


class HashedCache(ReferenceCache):
    """Forgets slots that the hash of a string picks, which differs from process to process."""

    def free(self, slots: Slots) -> None:
        if hash(f"x{slots.full}") % 7:
            super().free(slots)
