"""Values and keys of pages in an external store.

The header in front of a page has the fingerprint of the identity, the page's name, the length and
the xxh3_128 of its bytes. It is made again from what was read, and compared whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import xxhash
from attrs import define, field

from kvcanon.disk.parts import checksum_of, copy_into, total_bytes

NAME_BYTES = 32
_HEADER = Struct("<8s16s32sQ16s")
_FORMAT = b"kvcanon1"
"""Stands first. A version that lays values out otherwise has another, and reads none of these."""
HEADER_BYTES = _HEADER.size
_CHECKSUM_AT = HEADER_BYTES - 16


def header_of(fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bytes:
    """The header of a page, with the checksum of its bytes."""
    return _header(fingerprint, name, total_bytes(parts), checksum_of(parts))


def key_of(fingerprint: bytes, name: bytes) -> str:
    """The key of a page, as text that an operator can read."""
    return f"kvcanon:{fingerprint.hex()}:{name.hex()}"


def place(value: memoryview, fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bool:
    """Copy a page from its value into its parts; False if the value is not that page, whole."""
    page = value[HEADER_BYTES:]
    if len(page) != total_bytes(parts) or value[:HEADER_BYTES] != header_of(
        fingerprint, name, (page,)
    ):
        return False
    copy_into(parts, page)
    return True


def is_proved(header: bytes, fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bool:
    """Whether parts that were read hold the page of this name, as its header says."""
    return header == header_of(fingerprint, name, parts)


@define(eq=False)
class ProofOfPage:
    """The proof of a page whose bytes come piece by piece, after its header."""

    fingerprint: bytes
    name: bytes
    length: int
    _sum: xxhash.xxh3_128 = field(factory=xxhash.xxh3_128)

    def begins(self, header: bytes) -> bool:
        """Whether a header is one of this page, whatever its bytes are."""
        return header[:_CHECKSUM_AT] == self._header()[:_CHECKSUM_AT]

    def add(self, piece: memoryview) -> None:
        """The next bytes of the page."""
        self._sum.update(piece)

    def is_of(self, header: bytes) -> bool:
        """Whether the bytes that came are those of the page with this header."""
        return header == self._header()

    def _header(self) -> bytes:
        return _header(self.fingerprint, self.name, self.length, self._sum.digest())


def _header(fingerprint: bytes, name: bytes, length: int, checksum: bytes) -> bytes:
    return _HEADER.pack(_FORMAT, fingerprint, name, length, checksum)
