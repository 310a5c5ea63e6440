"""Records of 128 bytes, each with its own CRC: what the journal is made of.

The record of a page is written twice, with equal bytes: in the journal, and at the end of the
page's slot. Where records contradict each other, the one with the highest generation is right.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
from attrs import frozen

RECORD_BYTES = 128
MAGIC = b"kv"
NAME_BYTES = 32
NO_NAME = bytes(NAME_BYTES)
_CRC_BYTES = 4
_BODY = struct.Struct("<2sBBQQQ16s16s32s32s")
_FIELDS = np.dtype(
    [
        ("crc", "<u4"),
        ("magic", "V2"),
        ("kind", "u1"),
        ("pool", "u1"),
        ("generation", "<u8"),
        ("block", "<u8"),
        ("length", "<u8"),
        ("fingerprint", "V16"),
        ("checksum", "V16"),
        ("name", "V32"),
        ("parent", "V32"),
    ]
)
_CHECKSUM_AT = _CRC_BYTES + struct.calcsize("<2sBBQQQ16s")
_CHECKSUM_BYTES = 16

Records = npt.NDArray[Any]
"""Records as an array with the fields of `DiskRecord`, and their CRCs."""


class RecordKind(IntEnum):
    """What a record says."""

    PAGE = 1
    """A page is in the slot that begins at `block`, with `length` bytes."""
    GONE = 2
    """A page was removed, evicted, or found damaged."""
    SEGMENT = 3
    """The segment that begins at `block` has slots of `length` blocks."""
    HEADER = 4
    """The first record of a journal: `length` records were written with it, `block` has the blocks
    of a segment, and `pool` is 1 after a close."""


_KINDS = frozenset(RecordKind)


@frozen
class DiskRecord:
    """One record."""

    kind: RecordKind
    generation: int
    """Counts up with each record of a store."""
    fingerprint: bytes
    block: int = 0
    length: int = 0
    pool: int = 0
    checksum: bytes = bytes(16)
    name: bytes = NO_NAME
    parent: bytes = NO_NAME
    """The name of the page before it in its prompt; zeros for none."""

    def packed(self, checksum: bytes | None = None) -> bytes:
        """The record in 128 bytes, perhaps with a checksum that was made later."""
        body = _BODY.pack(
            MAGIC,
            self.kind,
            self.pool,
            self.generation,
            self.block,
            self.length,
            self.fingerprint,
            self.checksum if checksum is None else checksum,
            self.name,
            self.parent,
        )
        return crc32(body).to_bytes(_CRC_BYTES, "little") + body


def unpacked(packed: bytes | memoryview) -> DiskRecord | None:
    """The record in 128 bytes; None if its CRC is wrong, or it is no record."""
    if len(packed) != RECORD_BYTES:
        return None
    body = packed[_CRC_BYTES:]
    if crc32(body).to_bytes(_CRC_BYTES, "little") != packed[:_CRC_BYTES]:
        return None
    magic, kind, pool, generation, block, length, fingerprint, checksum, name, parent = (
        _BODY.unpack(body)
    )
    if magic != MAGIC or kind not in _KINDS:
        return None
    return DiskRecord(
        RecordKind(kind), generation, fingerprint, block, length, pool, checksum, name, parent
    )


def checksum_in(packed: bytes) -> bytes:
    """The checksum in a record that is known to be whole."""
    return packed[_CHECKSUM_AT : _CHECKSUM_AT + _CHECKSUM_BYTES]


def whole_records(data: bytes | memoryview) -> tuple[Records, int]:
    """The records of a journal that are whole, in their order, and how many are not."""
    count = len(data) // RECORD_BYTES
    view = memoryview(data)[: count * RECORD_BYTES]
    found: Records = np.frombuffer(view, _FIELDS)
    made = [
        crc32(view[at + _CRC_BYTES : at + RECORD_BYTES])
        for at in range(0, count * RECORD_BYTES, RECORD_BYTES)
    ]
    magic = np.frombuffer(MAGIC, "V2")[0]
    good = (found["crc"] == np.array(made, dtype="<u4")) & (found["magic"] == magic)
    torn = len(data) % RECORD_BYTES != 0
    return found[good], count - int(good.sum()) + torn


def packed_records(records: Records) -> list[bytes]:
    """Each record of an array in 128 bytes."""
    data = records.tobytes()
    return [data[at : at + RECORD_BYTES] for at in range(0, len(data), RECORD_BYTES)]
