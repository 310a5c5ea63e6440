"""The tables of docs/freedoms.md, made from the fields of `Profile` and from the variations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.variants.variant import VARIATIONS
from kvcanon.spec.config import choices

PAGE = Path("docs/freedoms.md")
BEGIN = "<!-- made by python -m kvcanon.lab.site --freedoms -->"
END = "<!-- end -->"


def with_tables(page: str) -> str:
    """The page with both tables written anew. Raises: UsageError."""
    parts = page.split(BEGIN)
    if len(parts) != 3 or any(END not in part for part in parts[1:]):
        raise UsageError(f"{PAGE} has not two tables between {BEGIN} and {END}")
    written = [parts[0]]
    for table, part in zip((_free(), _declared()), parts[1:], strict=True):
        written.append("\n\n".join(["", "\n".join(table), END]) + part.partition(END)[2])
    return BEGIN.join(written)


def _free() -> Iterator[str]:
    """What needs no declaration."""
    yield "| variation | what it does |"
    yield "|---|---|"
    for name, each in VARIATIONS.items():
        if not each.fields:
            yield f"| `{name}` | {each.summary} |"


def _declared() -> Iterator[str]:
    """What a cache declares, field by field, with the variations that depart there."""
    yield "| field of the profile | the canon | otherwise | variations |"
    yield "|---|---|---|---|"
    for name, each in choices().items():
        variations = " ".join(f"`{one}`: {VARIATIONS[one].summary}" for one in each.variations)
        yield f"| `{name}` | {each.canon} | {each.otherwise} | {variations} |"
