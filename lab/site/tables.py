"""Tables that stand between marks in pages of the docs, and are written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.site.faults import release_table
from kvcanon.lab.site.freedoms import declared_table, free_table
from kvcanon.lab.site.methods import method_table
from kvcanon.lab.site.rooms import room_table
from kvcanon.lab.site.store_laws import store_law_table

Table = Callable[[Path], Iterator[str]]
"""What makes the lines of a table from the checkout."""

TABLES: Mapping[str, tuple[str, tuple[Table, ...]]] = {
    "--findings": ("docs/findings.md", (release_table,)),
    "--freedoms": ("docs/freedoms.md", (lambda _: free_table(), lambda _: declared_table())),
    "--methods": ("docs/adapters.md", (lambda _: method_table(),)),
    "--stores": ("docs/stores.md", (lambda _: store_law_table(),)),
    "--rooms": ("docs/architecture.md", (room_table,)),
}
"""For each option of `python -m kvcanon.lab.site` the page, and its tables in their order."""
END = "<!-- end -->"


def page_with_tables(option: str, checkout: Path) -> tuple[Path, str]:
    """The page of an option, and its text with today's tables. Raises: UsageError: no marks."""
    name, tables = TABLES[option]
    begin = f"<!-- made by python -m kvcanon.lab.site {option} -->"
    return checkout / name, with_tables(checkout, name, begin, [each(checkout) for each in tables])


def with_tables(checkout: Path, name: str, begin: str, tables: Sequence[Iterable[str]]) -> str:
    """The text of a page with new tables, each after a mark `begin`. Raises: UsageError."""
    before, *parts = (checkout / name).read_text("utf-8").split(begin)
    if len(parts) != len(tables) or not all(END in part for part in parts):
        raise UsageError(f"{name} has not {len(tables)} tables between {begin} and {END}")
    written = [before]
    for table, part in zip(tables, parts, strict=True):
        lines = "\n".join(table)
        written.append(f"\n\n{lines}\n\n{END}{part.partition(END)[2]}")
    return begin.join(written)
