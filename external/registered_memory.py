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
from kvcanon.external.records import HEADER_BYTES

Bytes = npt.NDArray[np.uint8]

HEADERS = 128
"""Headers of one block of memory, as a rule."""
_LOG = logging.getLogger(__name__)


class Registrar(Protocol):
    """Registers memory; an answer is 0 where that went well."""

    def register_buffer(self, buffer_ptr: int, size: int, /) -> int:
        """Register memory."""

    def unregister_buffer(self, buffer_ptr: int, /) -> int:
        """Forget memory."""


@define(eq=False)
class RegisteredMemory:
    """The memory of pages, and blocks of headers, each of which one call has at a time."""

    client: Registrar
    _pages: list[Bytes] = field(factory=list)
    _headers: list[Bytes] = field(factory=list)
    """Those that no call has: uint8[headers, HEADER_BYTES]."""
    _calls: int = 0
    """Calls that have headers now."""
    _lock: threading.Lock = field(factory=threading.Lock)

    def add(self, memory: Bytes) -> None:
        """Register memory of pages. Raises: ExternalFailed."""
        self._register(memory)
        self._pages.append(memory)

    def has(self, parts: Sequence[memoryview]) -> bool:
        """Whether all parts of a page are in registered memory."""
        return all(any(_contains(each, part) for each in self._pages) for part in parts)

    @contextmanager
    def headers(self, count: int) -> Iterator[Bytes]:
        """Registered memory for so many headers, until the end of the block."""
        with self._lock:
            fitting = (at for at, block in enumerate(self._headers) if len(block) >= count)
            at = next(fitting, None)
            block = None if at is None else self._headers.pop(at)
            self._calls += 1
        try:
            if block is None:
                block = np.zeros((max(count, HEADERS), HEADER_BYTES), np.uint8)
                self._register(block)
            yield block[:count]
        finally:
            with self._lock:
                self._calls -= 1
                if block is not None:
                    self._headers.append(block)

    def close(self) -> None:
        """Let the client forget all memory, unless a call that was given up still uses some."""
        with self._lock:
            if self._calls:
                _LOG.warning("Mooncake has not answered %d calls: memory stays known", self._calls)
                return
            for each in (*self._pages, *self._headers):
                self.client.unregister_buffer(each.ctypes.data)
            self._pages.clear()
            self._headers.clear()

    def _register(self, memory: Bytes) -> None:
        code = self.client.register_buffer(memory.ctypes.data, memory.nbytes)
        if code != 0:
            raise ExternalFailed(f"Mooncake does not register {memory.nbytes} bytes: code {code}")


def _contains(memory: Bytes, part: memoryview) -> bool:
    begin = memory.ctypes.data
    return bool(begin <= address_of(part) <= begin + memory.nbytes - len(part))
