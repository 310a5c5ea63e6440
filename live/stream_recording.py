"""Recordings of streams: every frame as it arrived, in a compact file.

The format, version 1, all numbers little endian:

    file    8 bytes "KVSTRM01", then a header, then blocks until the end
    header  u32 length, then JSON: {"sources": [{"endpoint": ..., "replay_endpoint": ...}, ...]}
    block   u32 length of what follows the checksum, u32 length when inflated, u32 CRC-32 of the
            inflated bytes, then frames, deflated by zlib
    frame   u8 source, u8 flags, u16 length of the topic, u32 length of the payload, u64 sequence
            number, u64 microseconds since 1970, then the topic and the payload
    flags   1 given by a replay, 2 of another publisher than before, 4 no frame: the payload says
            what was wrong, as text

A recording that was cut off in the middle of a block is read up to there.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import BinaryIO, Self

from attrs import asdict, frozen

from kvcanon.live.frames import Arrived, BrokenFrame, Frame, Source

MAGIC = b"KVSTRM01"

REPLAYED, ANEW, BROKEN = 1, 2, 4

_BLOCK = struct.Struct("<III")
_FRAME = struct.Struct("<BBHIQQ")
_LENGTH = struct.Struct("<I")
_BLOCK_BYTES = 1 << 20
_MOST_BLOCK_BYTES = 1 << 30
_MICRO = 1_000_000
_LEVEL = 1


class BadRecording(ValueError):
    """A file that is no recording, or a damaged one."""


class StreamRecorder:
    """Writes frames to a file, block by block; `close` writes what waits. Raises: OSError."""

    def __init__(self, path: Path, sources: Sequence[Source]) -> None:
        self._file = path.open("wb")
        encoded = json.dumps({"sources": [asdict(each) for each in sources]}).encode()
        self._file.write(MAGIC + _LENGTH.pack(len(encoded)) + encoded)
        self._waiting = bytearray()

    def write(self, arrived: Arrived) -> None:
        """Add a frame; it is on disk when its block is full, or flushed."""
        if isinstance(arrived, Frame):
            flags = REPLAYED * arrived.replayed | ANEW * arrived.anew
            topic, payload, sequence = arrived.topic, arrived.payload, arrived.sequence
        else:
            flags, topic, payload, sequence = BROKEN, b"", arrived.problem.encode(), 0
        at = int(arrived.received * _MICRO)
        self._waiting += _FRAME.pack(arrived.source, flags, len(topic), len(payload), sequence, at)
        self._waiting += topic
        self._waiting += payload
        if len(self._waiting) >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a block of its own."""
        with self._named_errors():
            if self._waiting:
                waiting, self._waiting = self._waiting, bytearray()
                deflated = zlib.compress(waiting, _LEVEL)
                block = _BLOCK.pack(len(deflated), len(waiting), zlib.crc32(waiting))
                self._file.write(block + deflated)
            self._file.flush()

    def close(self) -> None:
        """Write what waits, and close the file."""
        if not self._file.closed:
            with self._named_errors(), closing(self._file):
                self.flush()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Let errors of writing say which file it is."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, self._file.name) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


@frozen
class RecordedBlock:
    """Where a block is in its file."""

    offset: int
    deflated: int
    inflated: int
    checksum: int


@frozen
class Recording:
    """A recording, of which blocks are read when they are needed."""

    path: Path
    sources: tuple[Source, ...]
    blocks: tuple[RecordedBlock, ...]
    cut_off: int
    """Bytes at the end that are no whole block."""

    def frames(self) -> Iterator[Arrived]:
        """All frames, in the order in which they arrived. Raises: BadRecording."""
        with self.path.open("rb") as file:
            for block in self.blocks:
                yield from self._frames_of(_inflate(self.path, file, block))

    def frames_backwards(self) -> Iterator[Arrived]:
        """All frames, the last first. Raises: BadRecording."""
        with self.path.open("rb") as file:
            for block in reversed(self.blocks):
                yield from reversed(list(self._frames_of(_inflate(self.path, file, block))))

    def _frames_of(self, block: bytes) -> Iterator[Arrived]:
        at = 0
        while at < len(block):
            try:
                source, flags, topic_bytes, payload_bytes, sequence, micros = _FRAME.unpack_from(
                    block, at
                )
            except struct.error as error:
                raise BadRecording(f"{self.path} has a frame that is cut off") from error
            if source >= len(self.sources):
                raise BadRecording(
                    f"{self.path} has a frame of publisher {source}, which it does not name"
                )
            at += _FRAME.size
            topic = block[at : at + topic_bytes]
            at += topic_bytes
            payload = block[at : at + payload_bytes]
            at += payload_bytes
            received = micros / _MICRO
            if flags & BROKEN:
                yield BrokenFrame(source, payload.decode(errors="replace"), received)
            else:
                yield Frame(
                    source,
                    topic,
                    sequence,
                    payload,
                    received,
                    replayed=bool(flags & REPLAYED),
                    anew=bool(flags & ANEW),
                )


def open_recording(path: Path) -> Recording:
    """Read the header of a recording, and find its blocks. Raises: BadRecording."""
    try:
        with path.open("rb") as file:
            return _open(path, file, path.stat().st_size)
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}") from error


def _open(path: Path, file: BinaryIO, size: int) -> Recording:
    if file.read(len(MAGIC)) != MAGIC:
        raise BadRecording(f"{path} is no recording; `kvcanon watch --record` writes one")
    length = file.read(_LENGTH.size)
    header = file.read(_LENGTH.unpack(length)[0]) if len(length) == _LENGTH.size else b""
    try:
        sources = tuple(
            Source(str(each["endpoint"]), each["replay_endpoint"])
            for each in json.loads(header)["sources"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise BadRecording(f"{path} has a damaged header; record the stream again") from error
    blocks, at = [], file.tell()
    while at + _BLOCK.size <= size:
        block = RecordedBlock(at + _BLOCK.size, *_BLOCK.unpack(file.read(_BLOCK.size)))
        if block.inflated > _MOST_BLOCK_BYTES or block.offset + block.deflated > size:
            break
        blocks.append(block)
        at = file.seek(block.offset + block.deflated)
    return Recording(path, sources, tuple(blocks), size - at)


def _inflate(path: Path, file: BinaryIO, block: RecordedBlock) -> bytes:
    file.seek(block.offset)
    try:
        inflated = zlib.decompress(file.read(block.deflated), bufsize=block.inflated)
    except zlib.error as error:
        raise BadRecording(f"{path} is damaged at byte {block.offset}: {error}") from error
    if len(inflated) != block.inflated or zlib.crc32(inflated) != block.checksum:
        raise BadRecording(f"{path} is damaged at byte {block.offset}: its checksum differs")
    return inflated
