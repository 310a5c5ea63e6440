"""Known differences: each with a reason and a link, and none that nobody can see."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.known_differences import KnownDifference, read_known, require_shown

LINE = '[[known]]\nlaw = "EVICT-3"\nreason = "on purpose"\nlink = "https://example.org/1"\n'


def file(tmp_path: Path, text: str) -> Path:
    """A file of known differences."""
    path = tmp_path / "known.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_lines_are_read(tmp_path: Path) -> None:
    """A known difference is lost, or an id in small letters is unknown."""
    text = LINE + LINE.replace("EVICT-3", "res-4")
    assert read_known(file(tmp_path, text)) == (
        KnownDifference("EVICT-3", "on purpose", "https://example.org/1"),
        KnownDifference("RES-4", "on purpose", "https://example.org/1"),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("known = ", "no TOML"),
        ("", r"must hold \[\[known\]\] tables, and nothing else"),
        ("known = []", "must hold"),
        ("known = [1]", "number 1 is no table"),
        (f"seed = 1\n{LINE}", "and nothing else"),
        (LINE.replace("EVICT-3", "EVICT-99"), "no law EVICT-99; near it are EVICT-"),
        (LINE.replace('law = "EVICT-3"\n', ""), "number 1 needs a law"),
        (LINE.replace('reason = "on purpose"\n', ""), "number 1 needs a reason"),
        (LINE.replace("on purpose", " "), "number 1 needs a reason"),
        (LINE.replace('"on purpose"', "3"), "number 1 needs a reason"),
        (f"{LINE}[[known]]\nlaw = 'RES-4'\nreason = 'so'", "number 2 needs a link"),
        (LINE.replace("https:", "javascript:"), "is no link"),
        (f"{LINE}until = 2030", "has until; it takes law, reason, link"),
        (LINE + LINE, "names EVICT-3 more than once"),
    ],
)
def test_a_line_that_says_too_little_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """A law is excused without a reason, or a line excuses nothing and nobody hears of it."""
    with pytest.raises(UsageError, match=said):
        read_known(file(tmp_path, text))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A file of another kind ends in a traceback."""
    path = tmp_path / "known.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no TOML"):
        read_known(path)


def test_lines_that_no_vector_shows_are_refused() -> None:
    """What was mended stays excused, so that nobody sees when it breaks again."""
    known = [
        KnownDifference(law, "so", "https://example.org") for law in ("RES-4", "EVICT-3", "REC-1")
    ]
    require_shown(Path("k.toml"), known, {"RES-4", "EVICT-3", "REC-1", "TREE-1"})
    with pytest.raises(
        UsageError, match=r"k\.toml has a line that no vector shows: EVICT-3; remove"
    ):
        require_shown(Path("k.toml"), known, {"RES-4", "REC-1"})
    with pytest.raises(UsageError, match="lines that no vector shows: RES-4, EVICT-3;"):
        require_shown(Path("k.toml"), known, {"REC-1"})
