"""Opens a folder of pages: locks it, finds what is in it, and mends what a crash or damage left."""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from kvcanon.disk.block_ends import mend_labels, segment_labels
from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.folders import CURRENT, JOURNAL, SLAB, OpenFolder, open_folder
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.index import PageIndex
from kvcanon.disk.journal import (
    DiskJournal,
    JournalRead,
    continued_journal,
    read_journal,
    written_journal,
)
from kvcanon.disk.ledger import Ledger, segment_blocks_of
from kvcanon.disk.records import RECORD_BYTES, DiskRecord, RecordKind, unpacked
from kvcanon.disk.recovery import FoundPages, StoreShape, recover
from kvcanon.disk.room import Room
from kvcanon.disk.scratch import Scratch
from kvcanon.disk.segments import Segments
from kvcanon.disk.slab import BLOCK_BYTES, Slab, opened_slab

SEGMENT_BYTES = 64 << 20
_LEAST_SEGMENT_BYTES = 64 << 10
_LEAST_SEGMENT_BLOCKS = 4
_SEGMENTS = 64
"""A small store has about so many segments."""
_SLOTS_OF_A_SEGMENT = 16
"""A segment has room for so many pages, where they are large."""
_LOG = logging.getLogger(__name__)


@frozen
class StoreSettings:
    """How a store is opened."""

    root: Path
    """Where its folder is, beside those of other identities."""
    identity: DiskIdentity
    capacity_bytes: int | None
    segment_bytes: int
    pools: int


@frozen
class OpenParts:
    """An open folder with all that is in it."""

    folder: OpenFolder
    slab: Slab
    index: PageIndex
    room: Room
    ledger: Ledger


def segment_bytes_for(capacity_bytes: int | None) -> int:
    """The segments of a new slab: 64 MiB, or less where the store is small."""
    if capacity_bytes is None:
        return SEGMENT_BYTES
    share = capacity_bytes // _SEGMENTS // BLOCK_BYTES * BLOCK_BYTES
    return min(SEGMENT_BYTES, max(_LEAST_SEGMENT_BYTES, share))


def segment_bytes_of_pages(capacity_bytes: int, page_bytes: int) -> int | None:
    """Segments that hold some pages of this size; None for the usual ones."""
    least = _SLOTS_OF_A_SEGMENT * (page_bytes + 2 * BLOCK_BYTES)
    return least if least > min(SEGMENT_BYTES, capacity_bytes // _SEGMENTS) else None


def open_parts(settings: StoreSettings, executor: Executor) -> OpenParts:
    """Open the folder of a store. Raises: DiskUnusable."""
    folder = open_folder(settings.root, settings.identity)
    try:
        return _opened(folder, settings, executor)
    except OSError as error:
        folder.close()
        raise DiskUnusable(
            f"{folder.path} cannot be opened: {error.strerror or error}; "
            "see to the disk, or name another folder"
        ) from error
    except BaseException:
        folder.close()
        raise


def _opened(folder: OpenFolder, settings: StoreSettings, executor: Executor) -> OpenParts:
    path = folder.path / JOURNAL
    fingerprint = settings.identity.fingerprint
    slab = opened_slab(folder.path / SLAB)
    read = read_journal(path, folder.path / CURRENT, fingerprint)
    blocks = _segment_blocks(read, slab, fingerprint) or max(
        _LEAST_SEGMENT_BLOCKS, settings.segment_bytes // BLOCK_BYTES
    )
    ledger = Ledger(fingerprint, blocks, 0, DiskJournal(path, -1, 0))
    room = Room(
        settings.root, settings.identity, settings.capacity_bytes, slab, Segments(blocks), ledger
    )
    if not room.fits(1, 1):
        slab.close()
        raise DiskUnusable(
            f"a capacity of {settings.capacity_bytes:,} bytes is too small; "
            f"give at least {room.needed_bytes(1, blocks):,}"
        )
    _make_whole(slab, blocks)
    shape = StoreShape(fingerprint, blocks, settings.pools)
    found = recover(read, slab, shape, executor)
    room.segments = found.segments
    if room.shrink():
        found = recover(read, slab, shape, executor)
        room.segments = found.segments
    ledger.generation = found.generation
    mend_labels(slab, ledger, found.segments)
    ledger.journal = _begun_journal(path, read, ledger, found)
    _say(folder.path, read, found)
    return OpenParts(folder, slab, found.index, room, ledger)


def _make_whole(slab: Slab, segment_blocks: int) -> None:
    """Let a slab that was cut end with a whole segment: what is left of the last can be read."""
    if slab.blocks % segment_blocks:
        with suppress(OSError):  # On a full disk that segment is lost.
            slab.grow(-(-slab.blocks // segment_blocks) * segment_blocks)


def _segment_blocks(read: JournalRead, slab: Slab, fingerprint: bytes) -> int | None:
    """How large the segments of a slab are, by its journal or by its first label."""
    if read.header is not None:
        return read.header.block or None
    with Scratch().piece(BLOCK_BYTES) as memory:
        try:
            slab.read(0, [memory])
        except OSError:
            return None
        label = unpacked(memory[-RECORD_BYTES:])
    if label is None or label.kind is not RecordKind.SEGMENT or label.fingerprint != fingerprint:
        return None
    return segment_blocks_of(label) or None


def _begun_journal(path: Path, read: JournalRead, ledger: Ledger, found: FoundPages) -> DiskJournal:
    """The journal to go on with: as it is after a close, else written anew. Raises: OSError."""
    if read.is_complete and read.header is not None:
        journal = continued_journal(path)
        # A new generation, so that a copy of the journal as it was closed is an old one.
        header = ledger.header(read.header.length, closed=False)
        journal.mark_open(header)
        _note_current(path, header)
        return journal
    try:
        return snapshot_journal(path, ledger, found.index, found.segments, closed=False)
    except OSError:
        return continued_journal(path)


def snapshot_journal(
    path: Path, ledger: Ledger, index: PageIndex, segments: Segments, *, closed: bool
) -> DiskJournal:
    """Write a journal with all that there is, and nothing else. Raises: OSError."""
    labels = [label.packed() for label in segment_labels(ledger, segments)]
    records = b"".join([*labels, index.in_order_of_use()])
    header = ledger.header(len(records) // RECORD_BYTES, closed=closed)
    journal = written_journal(path, header, records)
    _note_current(path, header)
    return journal


def _note_current(path: Path, header: DiskRecord) -> None:
    """Note which journal goes with the slab. Where that fails, the next open looks at all slots."""
    with suppress(OSError):
        written_journal(path.with_name(CURRENT), header, b"").close()


def _say(path: Path, read: JournalRead, found: FoundPages) -> None:
    """Say what was found, where something was wrong."""
    if read.damaged:
        _LOG.warning(
            "%s: %d records of the journal are damaged; %d pages were found in the slab",
            path,
            read.damaged,
            found.recovered,
        )
    elif found.recovered:
        _LOG.warning("%s: %d pages were found in the slab alone", path, found.recovered)
