"""What goes to the native ledger and what it returns; its stub, which is generated, names these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypedDict

FindSeeds: TypeAlias = Callable[[bytes | None, bytes | None, bytes | None, bytes], Sequence[bytes]]
"""Finds the seeds of a namespace by its salt, LoRA, extra key and whatever else it has."""


class BookCounts(TypedDict):
    """What a book counts; lists are by tier."""

    blocks: list[int]
    stored: list[int]
    removed: list[int]
    cleared: int
    distinct: int
    block_size: int
    fresh: int
    came_back: int
    repeated: int
    """Stores of blocks that were there, where that is no breach."""
    kind: int
    """Of the group of layers, a number of `kvcanon.live.dialects.GroupKind`."""
    window: int
    """Tokens of a sliding window; 0 where the stream names none."""
    verified: int
    unverified: int
    unjudged: int
    bytes: int


BreachTuple: TypeAlias = tuple[int, int, int, int, int, int, int, int]
"""Fault, event, page, group, tier, key, other, depth."""
