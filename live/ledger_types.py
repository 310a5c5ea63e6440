"""What the native ledger returns."""

from __future__ import annotations

from typing import TypeAlias, TypedDict


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
