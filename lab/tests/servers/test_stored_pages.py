"""What a run over stored pages calls wrong, and what it does to a slab."""

from __future__ import annotations

from pathlib import Path

from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script_rounds import SMALL
from kvcanon.lab.servers.stored_pages import (
    ALL,
    ROWS,
    SLOT_BYTES,
    StoredRow,
    _judged,
    cut,
    half_zeroed,
)

RIGHT: list[tuple[int, ...]] = [(1, 2, 3), (4, 5, 6)]


def judged(replies: list[tuple[int, ...]], found: int, row: StoredRow) -> list[str]:
    """What is wrong of a row."""
    runs = EngineRuns(Path(), 0, SMALL, lambda _: None)
    return _judged(row.name, replies, RIGHT, found, row, runs)


def test_wrong_replies_and_wrong_counts_are_found() -> None:
    """A reply that differs is wrong, and so is a page that is read, or not read."""
    same, other, *_ = ROWS
    assert judged([(1, 2, 3), (4, 5, 6)], ALL, same) == []
    assert judged([(1, 2, 3), (4, 5, 7)], ALL, same) == ["same model: 1 replies are wrong"]
    assert judged([(1, 2, 3), (4, 5, 6)], 0, same) == [
        f"same model: 0 tokens from the disk, not {ALL} to {ALL}"
    ]
    assert judged([(1, 2, 3), (4, 5, 6)], 4, other) == [
        "other weights: 4 tokens from the disk, not 0 to 0"
    ]


def test_harm_reaches_pages(tmp_path: Path) -> None:
    """Every seventh slot loses half of its page; a cut leaves half of what was written."""
    slab = tmp_path / "slab"
    slab.write_bytes(b"x" * SLOT_BYTES * 200)
    half_zeroed(slab)
    data = slab.read_bytes()
    slots = [data[at : at + SLOT_BYTES] for at in range(0, len(data), SLOT_BYTES)]
    assert [at for at, slot in enumerate(slots) if b"\0" in slot] == list(range(0, 200, 7))
    cut(slab)
    assert 0 < slab.stat().st_size < SLOT_BYTES * 100
