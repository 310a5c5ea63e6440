"""Pages in memory: the parts that a page is put together from, without copying them.

An engine's host pool may have a page in one piece or in many, as keys and values of each layer. A
page on the disk is its parts, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash
from attrs import field, frozen


def _bytes_of(parts: Sequence[memoryview]) -> tuple[memoryview, ...]:
    return tuple(each.cast("B") for each in parts if each.nbytes)


@frozen(eq=False)
class PagePut:
    """A page to put."""

    name: bytes
    """32 bytes."""
    parts: tuple[memoryview, ...] = field(converter=_bytes_of)
    parent: bytes | None = None
    """The name of the page before it in its prompt; None for the first, or if it is not known."""
    pool: int = 0
    """The number of the pool, from 0 on, for pages with several."""


@frozen(eq=False)
class PageGet:
    """A page to get."""

    name: bytes
    parts: tuple[memoryview, ...] = field(converter=_bytes_of)
    """Where its bytes go, one part after another."""
    pool: int = 0


def total_bytes(parts: Sequence[memoryview]) -> int:
    """How many bytes parts have together."""
    return len(parts[0]) if len(parts) == 1 else sum(map(len, parts))


def checksum_of(parts: Sequence[memoryview]) -> bytes:
    """The xxh3_128 of parts, in 16 bytes."""
    if len(parts) == 1:
        return xxhash.xxh3_128_digest(parts[0])
    state = xxhash.xxh3_128()
    for part in parts:
        state.update(part)
    return state.digest()


def are_aligned(parts: Sequence[memoryview], memory_bytes: int, length_bytes: int) -> bool:
    """Whether the addresses and the lengths of all parts are multiples of these."""
    return all(
        len(part) % length_bytes == 0 and address_of(part) % memory_bytes == 0 for part in parts
    )


def address_of(part: memoryview) -> int:
    """Where a part is in memory."""
    address: int = np.frombuffer(part, np.uint8).__array_interface__["data"][0]
    return address


def first_bytes(parts: Sequence[memoryview], length: int) -> list[memoryview]:
    """The parts, or pieces of them, that the first `length` bytes of a page go into."""
    found, left = [], length
    for part in parts:
        if left <= 0:
            break
        found.append(part[:left])
        left -= len(found[-1])
    return found


def copy_into(parts: Sequence[memoryview], data: memoryview) -> None:
    """Copy a page into its parts."""
    at = 0
    for part in parts:
        part[:] = data[at : at + len(part)]
        at += len(part)


def copy_from(parts: Sequence[memoryview], data: memoryview) -> None:
    """Copy the parts of a page into memory in one piece."""
    at = 0
    for part in parts:
        data[at : at + len(part)] = part
        at += len(part)
