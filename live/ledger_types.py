"""What goes to the native ledger and what it returns; its stub, which is generated, names these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypedDict

FindSeeds: TypeAlias = Callable[[bytes | None, bytes | None, bytes | None, bytes], Sequence[bytes]]
"""Finds the seeds of a namespace by its salt, LoRA, extra key and whatever else it has."""


class BookCounts(TypedDict):
    """What a book counts; lists are by medium."""

    blocks: list[int]
    stored: list[int]
    removed: list[int]
    cleared: int
    distinct: int
    block_size: int
    fresh: int
    came_back: int
    verified: int
    unverified: int
    unjudged: int
    bytes: int


BreachTuple: TypeAlias = tuple[int, int, int, int, int, int, int]
"""Fault, event, page, medium, key, other, depth."""
