"""Values and keys of pages in an external store.

The header in front of a page has the fingerprint of the identity, the page's name, the length and
the xxh3_128 of its bytes. It is made again from what was read, and compared whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kvcanon.disk.parts import checksum_of, copy_into, total_bytes

NAME_BYTES = 32
_HEADER = Struct("<8s16s32sQ16s")
_FORMAT = b"kvcanon1"
"""Stands first. A version that lays values out otherwise has another, and reads none of these."""
HEADER_BYTES = _HEADER.size


def header_of(fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bytes:
    """The header of a page, with the checksum of its bytes."""
    return _HEADER.pack(_FORMAT, fingerprint, name, total_bytes(parts), checksum_of(parts))


def key_of(fingerprint: bytes, name: bytes) -> str:
    """The key of a page, as text that an operator can read."""
    return f"kvcanon:{fingerprint.hex()}:{name.hex()}"


def place(value: bytes, fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bool:
    """Copy a page from its value into its parts; False if the value is not that page, whole."""
    page = memoryview(value)[HEADER_BYTES:]
    if len(page) != total_bytes(parts) or value[:HEADER_BYTES] != header_of(
        fingerprint, name, (page,)
    ):
        return False
    copy_into(parts, page)
    return True


def is_proved(header: bytes, fingerprint: bytes, name: bytes, parts: Sequence[memoryview]) -> bool:
    """Whether parts that were read hold the page of this name, as its header says."""
    return header == header_of(fingerprint, name, parts)
