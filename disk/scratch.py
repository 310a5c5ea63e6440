"""Aligned memory for the transfers, used again and again: fresh memory costs a fault a page."""

from __future__ import annotations

import mmap
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from kvcanon.disk.slab import BLOCK_BYTES

KEPT_BYTES = 16 << 20


@define(eq=False)
class Scratch:
    """Buffers that are used again: as many as threads have ever needed at once."""

    kept_bytes: int = KEPT_BYTES
    """The largest piece that is kept, and the least that is made."""
    free: list[mmap.mmap] = field(factory=list)
    lock: threading.Lock = field(factory=threading.Lock)

    @contextmanager
    def piece(self, size_bytes: int) -> Iterator[memoryview]:
        """Memory of this size, aligned to blocks, with undefined contents."""
        memory = self._taken(size_bytes)
        try:
            with memoryview(memory) as whole, whole[:size_bytes] as part:
                yield part
        finally:
            self._given_back(memory)

    def _taken(self, size_bytes: int) -> mmap.mmap:
        if size_bytes <= self.kept_bytes:
            with self.lock:
                if self.free:
                    return self.free.pop()
        return mmap.mmap(-1, max(BLOCK_BYTES, self.kept_bytes, size_bytes))

    def _given_back(self, memory: mmap.mmap) -> None:
        if len(memory) == self.kept_bytes:
            with self.lock:
                self.free.append(memory)
        else:
            memory.close()
