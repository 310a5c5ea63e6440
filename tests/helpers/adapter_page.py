"""The page about adapters, and its tables."""

from __future__ import annotations

import re

from paths import DOCS

PAGE = (DOCS / "adapters.md").read_text(encoding="utf-8")
Row = tuple[str, ...]


def tables_of(page: str) -> dict[str, list[Row]]:
    """The tables of a page, by their first line of headings, each as rows of cells."""
    found: dict[str, list[Row]] = {}
    for table in re.findall(r"(?:^\|.+\|\n)+", page, re.MULTILINE):
        head, _, *rows = [
            tuple(cell.strip() for cell in line.strip("|").split("|"))
            for line in table.splitlines()
        ]
        found.setdefault(" | ".join(head), []).extend(rows)
    return found


TABLES = tables_of(PAGE)
