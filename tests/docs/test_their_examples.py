"""The worked adapters: short, and the caches behind them break no law."""

from __future__ import annotations

from pathlib import Path

import pytest

from paths import DOCS
from their_caches import EXAMPLES, adapter_from, broken_laws

RADIX = set(
    [
        "MATCH-1",
        "MATCH-2",
        "MATCH-3",
        "MATCH-6",
        "REC-3",
        "LOCK-4",
        "LOCK-9",
        "LOCK-10",
        "ALLOC-1",
        "ALLOC-3",
        "ALLOC-5",
        "ALLOC-6",
        "EVICT-1",
        "EVICT-2",
        "RES-3",
        "DATA-1",
        "REFUSE-1",
        "REFUSE-2",
    ]
)
BLOCKS = set(
    [
        "MATCH-1",
        "MATCH-2",
        "MATCH-3",
        "MATCH-6",
        "LOCK-4",
        "LOCK-10",
        "ALLOC-1",
        "ALLOC-5",
        "DATA-1",
        "REFUSE-1",
        "EVENT-1",
        "EVENT-2",
        "EVENT-4",
        "EVENT-5",
        "EVENT-6",
        "EVENT-9",
        "EVENT-10",
        "EVENT-12",
    ]
)


def lines_of(path: Path) -> int:
    """How many lines of a file are not blank, imports and docstrings included."""
    return sum(bool(line.strip()) for line in path.read_text("utf-8").splitlines())


@pytest.mark.parametrize(("cache", "most"), [("their_radix", 80), ("their_blocks", 60)])
def test_worked_adapters_are_short(cache: str, most: int) -> None:
    """A radix cache's adapter has fewer than 80 lines, a block manager's fewer than 60."""
    assert lines_of(EXAMPLES / f"{cache}_adapter.py") < most


@pytest.mark.parametrize(("cache", "laws"), [("their_radix", RADIX), ("their_blocks", BLOCKS)])
def test_worked_adapters_are_lawful(cache: str, laws: set[str]) -> None:
    """The caches behind the worked adapters break no law, and these laws are exercised."""
    with adapter_from(EXAMPLES, f"{cache}_adapter") as adapter:
        spoken, total = broken_laws(adapter, cases=100)
    assert not spoken
    assert not total.unoffered
    assert {law_id for law_id, count in total.laws.items() if count} >= laws


def test_page_about_adapters_names_them() -> None:
    """Both adapters, and the caches, are on the page."""
    page = (DOCS / "adapters.md").read_text("utf-8")
    for name in ("their_radix", "their_radix_adapter", "their_blocks", "their_blocks_adapter"):
        assert f"examples/adapters/{name}.py" in page
