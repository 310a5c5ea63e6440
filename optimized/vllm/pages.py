"""A page of a prompt, and the sizes of a tier of them."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from attrs import field, frozen

GROUP_BYTES = 4
"""How many bytes at the end of a key name the group, as vLLM has it in its pool."""

PageKey = bytes
"""vLLM's hash of a block and all before it, and the group."""


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


@frozen(eq=False)
class Page:
    """A page, and what an event says of it."""

    key: PageKey
    parent_hash: bytes | None = None
    """Hash of the block before; None for the first of a prompt, and without events."""
    token_ids: tuple[int, ...] = ()
    lora_id: int | None = None
    lora_name: str | None = None
    salt: str | None = field(default=None, repr=False)

    @property
    def block_hash(self) -> bytes:
        """The hash of the block, as vLLM has it."""
        return self.key[:-GROUP_BYTES]

    @property
    def group(self) -> int:
        """The number of its group."""
        return int.from_bytes(self.key[-GROUP_BYTES:], "big")


def group_suffix(group: int) -> bytes:
    """What follows a block hash in the key of a group's page."""
    return group.to_bytes(GROUP_BYTES, "big")
