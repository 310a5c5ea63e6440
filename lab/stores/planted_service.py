"""Faults about calls: laws STORE-15 to STORE-20, and STORE-27."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import TypeVar

from kvcanon.lab.stores.fault import breaks
from kvcanon.reference.stores.file_store import FileStore
from kvcanon.reference.stores.memory_store import DEADLINE_SECONDS, MemoryServer, MemoryStore
from kvcanon.spec.stores.pages import PageKey

Value = TypeVar("Value")


def _address(buffer: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@breaks("STORE-15")
class WritesWholeLines(FileStore):
    """A get writes a cache line more than the page has."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        length = super().get_one(key, buffer)
        if length is not None:
            ctypes.memset(_address(buffer) + len(buffer), 0, 8)
        return length


@breaks("STORE-15")
class WritesBefore(MemoryStore):
    """A get writes a header before the page."""

    def fill(self, buffer: memoryview, content: bytes | None) -> int | None:
        length = super().fill(buffer, content)
        if length is not None:
            ctypes.memset(_address(buffer) - 8, 1, 8)
        return length


@breaks("STORE-16")
class ServerWrites(MemoryStore):
    """The server writes into the buffers of a get, whenever it comes to it."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        missed: list[int | None] = [None] * len(pages)
        return self.ask(
            lambda: [self.fill(buffer, self.read(key)) for key, buffer in pages], missed
        )


@breaks("STORE-16")
class ClearsLater(MemoryStore):
    """A get that was given up clears its buffers, after the server has answered."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        found = super().get(pages)
        if None in found:
            threading.Thread(target=self.clear, args=(pages,), daemon=True).start()
        return found

    def clear(self, pages: Sequence[tuple[PageKey, memoryview]]) -> None:
        """Clear all buffers."""
        if not self.server.running.is_set():
            self.server.running.wait()
            for _, buffer in pages:
                buffer[:] = b"\xff" * len(buffer)


@breaks("STORE-17")
class NoDeadline(MemoryStore):
    """A call waits until the server answers."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        answers: SimpleQueue[Value] = SimpleQueue()
        self.serve(work, answers)
        return answers.get()


@breaks("STORE-17")
class TriesAgain(MemoryStore):
    """A call that was not answered is tried again, 15 times."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        if time.monotonic() >= self.alone_until:
            for _ in range(14):
                answers: SimpleQueue[Value] = SimpleQueue()
                threading.Thread(target=self.serve, args=(work, answers), daemon=True).start()
                try:
                    return answers.get(timeout=DEADLINE_SECONDS)
                except Empty:
                    continue
        return super().ask(work, otherwise)


@breaks("STORE-18")
class NoBreaker(MemoryStore):
    """A store that does not answer is asked again at each call."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        self.alone_until = 0.0
        return super().ask(work, otherwise)


@breaks("STORE-18")
class ShortPause(MemoryStore):
    """A store that does not answer is left alone for a thousandth of a second."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        value = super().ask(work, otherwise)
        self.alone_until = min(self.alone_until, time.monotonic() + 0.001)
        if self.alone_until > time.monotonic():
            time.sleep(0.002)
        return value


@breaks("STORE-19")
class LeftForEver(MemoryStore):
    """A store that did not answer once is never asked again."""

    def ask(self, work: Callable[[], Value], otherwise: Value) -> Value:
        value = super().ask(work, otherwise)
        if self.alone_until:
            self.alone_until = time.monotonic() + 1e6
        return value


@breaks("STORE-19")
class MissesAreKept(MemoryStore):
    """A page that could not be had from a stopped server is a miss for ever."""

    @property
    def missed(self) -> set[PageKey]:
        """The pages that could not be had."""
        missed: set[PageKey] = vars(self).setdefault("pages", set())
        return missed

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        if not self.server.running.is_set():
            self.missed.update(key for key, _ in pages)
        found = super().get(pages)
        return [
            None if key in self.missed else length
            for (key, _), length in zip(pages, found, strict=True)
        ]


@breaks("STORE-20")
class OneVictim(MemoryServer):
    """A put evicts one page at most, whatever room it takes."""

    def make_room(self, more: int, kept: set[bytes | None]) -> bool:
        if self.capacity_bytes is not None and self.used_bytes + more > self.capacity_bytes:
            victim = self.victim(kept)
            if victim is not None:
                self.drop(victim)
        return True


@breaks("STORE-20")
class CountsNewPagesOnly(MemoryServer):
    """A second pool of a page that is there counts for nothing."""

    def put(self, name: bytes, parent: bytes | None, pool: str, content: bytes) -> bool:
        before, there = self.used_bytes, name in self.pages
        done = super().put(name, parent, pool, content)
        if there:
            self.used_bytes = min(before, self.used_bytes)
        return done


@breaks("STORE-27")
class RaisesAtDamage(FileStore):
    """A get of a damaged page raises."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        had = self.file_of(key).exists()
        length = super().get_one(key, buffer)
        if had and not self.file_of(key).exists():
            raise OSError("short read")
        return length


@breaks("STORE-27")
class RaisesOnAFullDisk(FileStore):
    """A put that the disk does not take raises."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        if not super().put_one(key, content):
            raise OSError("no space left on device")
        return True
