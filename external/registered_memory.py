"""Memory that a client of Mooncake knows, and moves bytes from and to without a copy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt
from attrs import define, field

from kvcanon.disk.parts import address_of
from kvcanon.external.failing import ExternalFailed

Bytes = npt.NDArray[np.uint8]

BLOCK_BYTES, KEPT_BYTES = 4 << 20, 32 << 20
"""The least block of memory for calls, and the largest that is used again."""
_LOG = logging.getLogger(__name__)


class Registrar(Protocol):
    """Registers memory; an answer is 0 where that went well."""

    def register_buffer(self, buffer_ptr: int, size: int, /) -> int:
        """Register memory."""

    def unregister_buffer(self, buffer_ptr: int, /) -> int:
        """Forget memory."""


@define(eq=False)
class RegisteredMemory:
    """The memory of pages, and blocks for calls, each of which one call has at a time."""

    client: Registrar
    _pages: dict[int, Bytes] = field(factory=dict)
    """By address."""
    _free: list[Bytes] = field(factory=list)
    """Blocks that no call has."""
    _calls: int = 0
    """Calls that have a block now."""
    _lock: threading.Lock = field(factory=threading.Lock)

    def add(self, memory: Bytes) -> None:
        """Register memory of pages. Raises: ExternalFailed."""
        self._register(memory)
        self._pages[address_of(memory.data)] = memory

    def has(self, parts: Sequence[memoryview]) -> bool:
        """Whether all parts of a page are in registered memory."""
        return all(
            any(
                begin <= address_of(part) <= begin + memory.nbytes - len(part)
                for begin, memory in self._pages.items()
            )
            for part in parts
        )

    @contextmanager
    def piece(self, size_bytes: int) -> Iterator[Bytes]:
        """Registered memory of this size, with undefined contents, until the end of the block.

        Raises: ExternalFailed.
        """
        block = self._taken(size_bytes)
        try:
            yield block[:size_bytes]
        finally:
            with self._lock:
                self._calls -= 1
                if block.nbytes <= KEPT_BYTES:
                    self._free.append(block)
                else:
                    self.client.unregister_buffer(address_of(block.data))

    def close(self) -> None:
        """Let the client forget all memory, unless a call that was given up still uses some."""
        with self._lock:
            if self._calls:
                _LOG.warning("Mooncake has not answered %d calls: memory stays known", self._calls)
                return
            for each in (*self._pages.values(), *self._free):
                self.client.unregister_buffer(address_of(each.data))
            self._pages.clear()
            self._free.clear()

    def _taken(self, size_bytes: int) -> Bytes:
        """A block for a call."""
        with self._lock:
            fitting = (at for at, block in enumerate(self._free) if block.nbytes >= size_bytes)
            at = next(fitting, None)
            if at is not None:
                self._calls += 1
                return self._free.pop(at)
        block = np.empty(max(size_bytes, BLOCK_BYTES), np.uint8)
        self._register(block)
        with self._lock:
            self._calls += 1
        return block

    def _register(self, memory: Bytes) -> None:
        code = self.client.register_buffer(address_of(memory.data), memory.nbytes)
        if code != 0:
            raise ExternalFailed(f"Mooncake does not register {memory.nbytes} bytes: code {code}")
