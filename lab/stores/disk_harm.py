"""What crashes, disks and people do to the files of a disk tier, with what of it they spoil."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from attrs import frozen

from kvcanon.disk.folders import CURRENT, FACTS, JOURNAL, SLAB
from kvcanon.disk.journal import UNFINISHED
from kvcanon.disk.slab import BLOCK_BYTES

_SECTOR = 512


@frozen
class Harmed:
    """What was done to a folder."""

    words: str
    slab_from: int = 0
    slab_until: int = 0
    """Which bytes of the slab are no longer what was written."""


def nothing(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """A kill and no more."""
    return Harmed("nothing")


def flip_slab(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Flip a bit of the slab."""
    at = _flip(folder / SLAB, random)
    return Harmed("a bit of the slab flipped", at, at + 1)


def zero_slab(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Zero some sectors of the slab, as a write that was torn."""
    begin, end = _zero(folder / SLAB, random, 3 * BLOCK_BYTES)
    return Harmed("sectors of the slab zeroed", begin, end)


def cut_slab(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Cut the slab."""
    size = (folder / SLAB).stat().st_size
    return Harmed("slab cut", _cut(folder / SLAB, random), size)


def flip_journal(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Flip a bit of the journal."""
    _flip(folder / JOURNAL, random)
    return Harmed("a bit of the journal flipped")


def zero_journal(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Zero some sectors of the journal."""
    _zero(folder / JOURNAL, random, 2 * _SECTOR)
    return Harmed("sectors of the journal zeroed")


def cut_journal(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Cut the journal, also in the middle of a record."""
    _cut(folder / JOURNAL, random)
    return Harmed("journal cut")


def stale_journal(folder: Path, random: Random, old: bytes) -> Harmed:  # noqa: ARG001
    """Put an old journal in the place of the journal."""
    (folder / JOURNAL).write_bytes(old)
    return Harmed("an old journal put back")


def no_journal(folder: Path, random: Random, old: bytes) -> Harmed:
    """Remove the journal, or the header beside it."""
    del old
    (folder / random.choice((JOURNAL, CURRENT))).unlink(missing_ok=True)
    return Harmed("journal or its header removed")


def half_rewritten(folder: Path, random: Random, old: bytes) -> Harmed:
    """Leave a journal that was half written anew, as a kill in the middle of it does."""
    (folder / (JOURNAL + UNFINISHED)).write_bytes(old[: random.randrange(len(old) + 1)])
    return Harmed("a journal half written anew")


def spoil_small_files(folder: Path, random: Random, old: bytes) -> Harmed:
    """Fill a small file with rubbish."""
    del old
    (folder / random.choice((CURRENT, FACTS))).write_bytes(random.randbytes(random.randrange(200)))
    return Harmed("a small file filled with rubbish")


HARMS: tuple[Callable[[Path, Random, bytes], Harmed], ...] = (
    nothing,
    flip_slab,
    zero_slab,
    cut_slab,
    flip_journal,
    zero_journal,
    cut_journal,
    stale_journal,
    no_journal,
    half_rewritten,
    spoil_small_files,
)


def _flip(path: Path, random: Random) -> int:
    data = bytearray(path.read_bytes())
    at = random.randrange(len(data))
    data[at] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    return at


def _zero(path: Path, random: Random, most: int) -> tuple[int, int]:
    data = bytearray(path.read_bytes())
    begin = random.randrange(len(data)) // _SECTOR * _SECTOR
    end = min(len(data), begin + random.randrange(_SECTOR, most + 1, _SECTOR))
    data[begin:end] = bytes(end - begin)
    path.write_bytes(data)
    return begin, end


def _cut(path: Path, random: Random) -> int:
    at = random.randrange(path.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(at)
    return at
