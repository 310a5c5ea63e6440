"""Recordings of streams: every frame as it arrived, in a compact file.

The format, version 2, all numbers little endian:

    file    8 bytes "KVSTRM02", then blocks until the end; the first block names publishers
    block   u32 kind, u32 length of what follows the checksum, u32 length when inflated, u32 CRC-32
            of the inflated bytes, then frames (kind 0) or publishers (kind 1), deflated by zlib
    frame   u16 source, u8 flags, u8 nothing, u16 length of the topic, u32 length of the payload,
            u64 sequence number, u64 microseconds since 1970, then the topic and the payload
    flags   1 given by a replay, 2 of another publisher than before, 4 no frame: the payload says
            what was wrong, as text
    publishers  JSON: {"sources": [{"endpoint": ..., "replay_endpoint": ...}, ...],
            "masked": false}, all that are known so far

A recording that was cut off in the middle of a block is read up to there. Version 1 is read, too:
it has the JSON in a header, blocks without a kind, and frames with a u8 source.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from attrs import asdict, evolve, frozen

from kvcanon.live.frames import MOST_FRAME_BYTES, Arrived, BrokenFrame, Frame, Source
from kvcanon.live.input_files import BadRecording, require_file
from kvcanon.live.masking import Masker

FAMILY = b"KVSTRM"
MAGIC = FAMILY + b"02"
MAGIC_1 = FAMILY + b"01"

REPLAYED, ANEW, BROKEN = 1, 2, 4
FRAMES, SOURCES = 0, 1
"""Kinds of blocks."""

_BLOCK = struct.Struct("<IIII")
_BLOCK_1 = struct.Struct("<III")
_FRAME = struct.Struct("<HBxHIQQ")
_FRAME_1 = struct.Struct("<BBHIQQ")
_LENGTH = struct.Struct("<I")
_BLOCK_BYTES = 1 << 20
_MOST_BLOCK_BYTES = 2 * MOST_FRAME_BYTES
"""A block is written once it has `_BLOCK_BYTES`, so it has at most one frame more."""
_MICRO = 1_000_000
_LEVEL = 1


class StreamRecorder:
    """Writes frames to a file, block by block; `close` writes what waits. Raises: OSError.

    Nobody but the user can read the file. With `masks` tokens and names of tenants are masked. With
    `limit_bytes` the file is put aside, under its name and ".1", when it has half of that.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        *,
        masks: bool = False,
        limit_bytes: int | None = None,
    ) -> None:
        self._path = path
        self._masker = Masker() if masks else None
        self._limit_bytes = limit_bytes
        self._sources = list(sources)
        self._waiting = bytearray()
        self._file = self._opened()

    def name_sources(self, sources: Sequence[Source]) -> None:
        """Write down which publishers there are, before their frames. Raises: OSError."""
        if list(sources) != self._sources:
            self._sources = list(sources)
            self.flush()
            with self._named_errors():
                self._write_sources(self._file)

    def write(self, arrived: Arrived) -> None:
        """Add a frame; it is on disk when its block is full, or flushed."""
        if isinstance(arrived, Frame):
            flags = REPLAYED * arrived.replayed | ANEW * arrived.anew
            topic, payload, sequence = arrived.topic, arrived.payload, arrived.sequence
            if self._masker is not None:
                payload = self._masker.mask(payload)
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
                _write_block(self._file, FRAMES, waiting)
            self._file.flush()
            if self._limit_bytes is not None and 2 * self._file.tell() >= self._limit_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".1"))
                self._file = self._opened()

    def close(self) -> None:
        """Write what waits, and close the file."""
        if not self._file.closed:
            with self._named_errors(), closing(self._file):
                self.flush()

    def abandon(self) -> None:
        """Close the file, whatever could not be written."""
        with suppress(OSError):
            self._waiting.clear()
            self._file.close()

    def _opened(self) -> BinaryIO:
        """A new file, with the publishers."""
        file = open(self._path, "wb", opener=_open_private)  # noqa: SIM115
        file.write(MAGIC)
        self._write_sources(file)
        return file

    def _write_sources(self, file: BinaryIO) -> None:
        named = {"sources": [asdict(each) for each in self._sources]}
        encoded = json.dumps(named | {"masked": self._masker is not None}).encode()
        _write_block(file, SOURCES, encoded)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Let errors of writing say which file it is."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


def _open_private(path: str, flags: int) -> int:
    """Open a file that nobody else can read."""
    return os.open(path, flags, 0o600)


def _write_block(file: BinaryIO, kind: int, plain: bytes | bytearray) -> None:
    deflated = zlib.compress(plain, _LEVEL)
    file.write(_BLOCK.pack(kind, len(deflated), len(plain), zlib.crc32(plain)) + deflated)


@frozen
class RecordedBlock:
    """Where a block is in its file."""

    offset: int
    deflated: int
    inflated: int
    checksum: int


@frozen
class Recording:
    """A recording, whose blocks are read when they are needed."""

    path: Path
    sources: tuple[Source, ...]
    blocks: tuple[RecordedBlock, ...]
    """Those with frames."""
    cut_off: int
    """Bytes at the end that are no whole block."""
    masked: bool = False
    """Whether tokens and names of tenants are masked."""
    version: int = 2

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
        frame = _FRAME_1 if self.version == 1 else _FRAME
        while at < len(block):
            try:
                source, flags, topic_bytes, payload_bytes, sequence, micros = frame.unpack_from(
                    block, at
                )
            except struct.error as error:
                raise BadRecording(f"{self.path} has a frame that is cut off") from error
            if source >= len(self.sources):
                raise BadRecording(
                    f"{self.path} has a frame of publisher {source}, which it does not name"
                )
            at += frame.size
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
    require_file(path)
    try:
        with path.open("rb") as file:
            return _open(path, file, path.stat().st_size)
    except OSError as error:
        raise BadRecording(f"{path} cannot be read: {error.strerror or error}") from error


def _open(path: Path, file: BinaryIO, size: int) -> Recording:
    magic = file.read(len(MAGIC))
    if magic == MAGIC_1:
        return _open_version_1(path, file, size)
    if magic != MAGIC and magic.startswith(FAMILY):
        version = magic.removeprefix(FAMILY).decode(errors="replace")
        raise BadRecording(
            f"{path} is a recording of version {version!r}, which this kvcanon does not read; "
            "audit it with the one that wrote it"
        )
    if magic != MAGIC:
        raise BadRecording(f"{path} is no recording; `kvcanon watch --record` writes one")
    recording = Recording(path, (), (), 0)
    blocks, at = [], file.tell()
    while at + _BLOCK.size <= size:
        kind, *lengths = _BLOCK.unpack(file.read(_BLOCK.size))
        block = RecordedBlock(at + _BLOCK.size, *lengths)
        if block.inflated > _MOST_BLOCK_BYTES or block.offset + block.deflated > size:
            break
        if kind == SOURCES:
            recording = _named(recording, _inflate(path, file, block))
        elif kind == FRAMES:
            blocks.append(block)
        at = file.seek(block.offset + block.deflated)
    if not recording.sources and not blocks:
        raise BadRecording(f"{path} has a damaged header; record the stream again")
    return evolve(recording, blocks=tuple(blocks), cut_off=size - at)


def _open_version_1(path: Path, file: BinaryIO, size: int) -> Recording:
    length = file.read(_LENGTH.size)
    header = file.read(_LENGTH.unpack(length)[0]) if len(length) == _LENGTH.size else b""
    recording = _named(Recording(path, (), (), 0, version=1), header)
    blocks, at = [], file.tell()
    while at + _BLOCK_1.size <= size:
        block = RecordedBlock(at + _BLOCK_1.size, *_BLOCK_1.unpack(file.read(_BLOCK_1.size)))
        if block.inflated > _MOST_BLOCK_BYTES or block.offset + block.deflated > size:
            break
        blocks.append(block)
        at = file.seek(block.offset + block.deflated)
    return evolve(recording, blocks=tuple(blocks), cut_off=size - at)


def _named(recording: Recording, header: bytes) -> Recording:
    """The recording with the publishers that JSON names. Raises: BadRecording."""
    try:
        named = json.loads(header)
        sources = tuple(_source(each) for each in named["sources"])
        return evolve(recording, sources=sources, masked=bool(named.get("masked", False)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadRecording(f"{recording.path} has a damaged header; record it again") from error


def _source(named: dict[str, object]) -> Source:
    replay, rank, topic = (named.get(each) for each in ("replay_endpoint", "rank", "topic"))
    return Source(
        str(named["endpoint"]),
        None if replay is None else str(replay),
        rank if isinstance(rank, int) else None,
        None if topic is None else str(topic),
        is_bound=bool(named.get("is_bound", False)),
    )


def _inflate(path: Path, file: BinaryIO, block: RecordedBlock) -> bytes:
    file.seek(block.offset)
    try:
        # No more than it says, whatever is in it.
        inflating = zlib.decompressobj()
        inflated = inflating.decompress(file.read(block.deflated), block.inflated + 1)
    except zlib.error as error:
        raise BadRecording(f"{path} is damaged at byte {block.offset}: {error}") from error
    if len(inflated) != block.inflated or zlib.crc32(inflated) != block.checksum:
        raise BadRecording(f"{path} is damaged at byte {block.offset}: its checksum differs")
    return inflated
