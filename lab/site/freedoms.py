"""The tables of docs/freedoms.md, made from the fields of `Profile` and from the variations."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.lab.variants.variant import VARIATIONS
from kvcanon.spec.config import choices


def free_table() -> Iterator[str]:
    """What needs no declaration."""
    yield "| variation | what it does |"
    yield "|---|---|"
    for name, each in VARIATIONS.items():
        if not each.fields:
            yield f"| `{name}` | {each.summary} |"


def declared_table() -> Iterator[str]:
    """What a cache declares, field by field, with the variations that depart there."""
    yield "| field of the profile | the canon | otherwise | variations |"
    yield "|---|---|---|---|"
    for name, each in choices().items():
        variations = " ".join(f"`{one}`: {VARIATIONS[one].summary}" for one in each.variations)
        yield f"| `{name}` | {each.canon} | {each.otherwise} | {variations} |"
