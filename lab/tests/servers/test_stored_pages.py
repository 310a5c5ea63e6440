"""What a run over stored pages calls wrong, and what it does to a slab."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from kvcanon.lab.servers import __main__ as servers
from kvcanon.lab.servers import stored_pages
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import Tokens
from kvcanon.lab.servers.script_rounds import SMALL
from kvcanon.lab.servers.server_setup import KVCANON, RUST
from kvcanon.lab.servers.stored_pages import (
    ALL,
    ROWS,
    SLOT_BYTES,
    StoredRow,
    _judged,
    _Stored,
    cut,
    half_zeroed,
    run_stored,
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


@pytest.mark.parametrize(
    ("given", "cores"),
    [
        (["--stored"], (RUST,)),
        (["--stored", KVCANON], (KVCANON,)),
        (["--stored", f"{KVCANON},{RUST}"], (KVCANON, RUST)),
    ],
)
def test_the_command_line_names_cores(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[str], cores: tuple[str, ...]
) -> None:
    """Alone it means stock servers; what is wrong of any core is the exit status."""
    asked: list[tuple[tuple[str, ...], str]] = []
    wrong: list[str] = []

    def played(_: EngineRuns, cores: tuple[str, ...], only: str) -> list[str]:
        asked.append((cores, only))
        return wrong

    monkeypatch.setattr(servers, "run_stored", played)
    assert servers.run(servers.arguments([*given, "--only", "dtype"]), tmp_path) == 0
    wrong.append("rust writer: 1 replies are wrong")
    assert servers.run(servers.arguments(given), tmp_path) == 1
    assert asked == [(cores, "dtype"), (cores, "")]


def test_every_core_has_servers_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each writes a folder of its own, and what is wrong of it names it."""
    played: list[tuple[str, str, Path]] = []

    def answers(
        stored: _Stored, name: str, _: Sequence[str], folder: Path | None, *, writes: bool = False
    ) -> tuple[list[Tokens], int]:
        assert folder is not None
        played.append((stored.core, name, folder))
        assert stored.setup((), folder).core == stored.core
        if writes:
            folder.mkdir(parents=True)
        return RIGHT, 0 if writes or stored.core == RUST else ALL

    monkeypatch.setattr(_Stored, "answers", answers)
    monkeypatch.setattr(stored_pages, "_expected", lambda *_: RIGHT)
    runs = EngineRuns(tmp_path, 0, SMALL, lambda _: None)
    wrong = run_stored(runs, (KVCANON, RUST), "same model")
    assert wrong == [f"{RUST} same model: 0 tokens from the disk, not {ALL} to {ALL}"]
    assert played == [
        (core, name, tmp_path / f"stored-{core}" / folder)
        for core in (KVCANON, RUST)
        for name, folder in (("writer", "disk"), ("same model", "disk-same-model"))
    ]
