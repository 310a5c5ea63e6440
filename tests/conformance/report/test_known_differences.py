"""Known differences: each has a reason and a link, and what nothing shows is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import KnownDifference, not_shown, read_known

ENTRY = '[[known]]\nlaw = "EVICT-3"\nreason = "on purpose"\nlink = "https://example.org/1"\n'


def file(tmp_path: Path, text: str) -> Path:
    """Write a file of known differences."""
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_entries_are_read(tmp_path: Path) -> None:
    """Known differences are read, with law ids in upper or lower case."""
    text = ENTRY + ENTRY.replace("EVICT-3", "res-4")
    assert read_known(file(tmp_path, text)) == (
        KnownDifference("EVICT-3", "on purpose", "https://example.org/1"),
        KnownDifference("RES-4", "on purpose", "https://example.org/1"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("known = ", "is not TOML"),
        ("", r"must hold \[\[known\]\] tables, and nothing else"),
        ("known = []", "must hold"),
        ("known = [1]", "number 1 is not a table"),
        (f"seed = 1\n{ENTRY}", "and nothing else"),
        (ENTRY.replace("EVICT-3", "EVICT-99"), "no law EVICT-99; near it are EVICT-"),
        (ENTRY.replace('law = "EVICT-3"\n', ""), "number 1 needs a law"),
        (ENTRY.replace('reason = "on purpose"\n', ""), "number 1 needs a reason"),
        (ENTRY.replace("on purpose", " "), "number 1 needs a reason"),
        (ENTRY.replace('"on purpose"', "3"), "number 1 needs a reason"),
        (f"{ENTRY}[[known]]\nlaw = 'RES-4'\nreason = 'so'", "number 2 needs a link"),
        (ENTRY.replace("https:", "javascript:"), "is not a link"),
        (f"{ENTRY}until = 2030", "has until; it takes law, reason, link"),
        (ENTRY + ENTRY, "names EVICT-3 more than once"),
    ],
)
def test_an_incomplete_entry_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """An entry without law, reason or link, or with anything else, is refused."""
    with pytest.raises(UsageError, match=said):
        read_known(file(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A binary file is refused as not TOML."""
    path = tmp_path / "known.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not TOML"):
        read_known(path)


def test_entries_that_nothing_shows_are_named() -> None:
    """Entries that nothing shows are named in one line."""
    known = [
        KnownDifference(law, "so", "https://example.org") for law in ("RES-4", "EVICT-3", "REC-1")
    ]
    file = Path("k.toml")
    assert not not_shown(file, known, {"RES-4", "EVICT-3", "REC-1", "TREE-1"})
    one = not_shown(file, known, {"RES-4", "REC-1"})
    assert one.startswith("k.toml has an entry that nothing in this check shows: EVICT-3; remove")
    two = not_shown(file, known, {"REC-1"})
    assert "entries that nothing in this check shows: RES-4, EVICT-3;" in two
