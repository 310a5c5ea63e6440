"""The sizes of a tier of pages, and when they are copied there."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import frozen


class Policy(Enum):
    """When a page is copied to the host."""

    WRITE_BACK = "write_back"
    """When the device is about to evict it. A load moves it back: the host copy is dropped."""
    WRITE_THROUGH = "write_through"
    """As soon as it is computed. A load copies it: the host keeps its own."""


@frozen
class PageGroup:
    """Layers that share block tables."""

    window_tokens: int | None = None
    """How many tokens a token sees, itself included; None for all of them."""

    def pages_needed(self, block_tokens: int) -> int | None:
        """How many pages before the end of a hit must be there; None for all of them."""
        if self.window_tokens is None:
            return None
        return -(-(self.window_tokens - 1) // block_tokens)


@frozen
class TierShape:
    """The sizes of a host tier."""

    rows: int
    """Pages that the host of a rank has room for."""
    block_tokens: int
    groups: Sequence[PageGroup]
    """Full attention, or full attention and a sliding window."""
    ranks: int = 1
    step_blocks: int = 64
    """The most blocks that a step of the engine fills."""
    policy: Policy = Policy.WRITE_BACK
    events: bool = False
    """Whether anybody reads what is stored and removed."""
    disk: bool = False
    """Whether the ranks have a disk below their rows."""
