"""The attributes of vLLM's objects that the adapter uses, as types.

vLLM's objects have many more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

Named: TypeAlias = Any
"""A class or function of vLLM that was looked up by its name."""
BlockHash: TypeAlias = bytes
"""What a block is found by."""
EventHash: TypeAlias = int | bytes
"""The same in an event, where it may be shortened to 64 bits."""


class Block(Protocol):
    """A block of the pool."""

    block_id: int
    block_hash: BlockHash | None
    is_null: bool


class FreeQueue(Protocol):
    """The blocks that no request holds, the next victim first."""

    def get_all_free_blocks(self) -> list[Block]:
        """All of them, in order."""


class BlockPool(Protocol):
    """All blocks of all groups."""

    free_block_queue: FreeQueue

    def get_num_free_blocks(self) -> int:
        """How many blocks no request holds."""

    def get_new_blocks(self, num_blocks: int) -> list[Block]:
        """Take the next victims."""

    def free_blocks(self, ordered_blocks: Iterable[Block]) -> None:
        """Give blocks back, the next victim first."""


class VLLMBlocks(Protocol):
    """Blocks of a request, group by group."""

    blocks: tuple[Sequence[Block], ...]


class VLLMRequest(Protocol):
    """A request, as vLLM's scheduler has it."""

    request_id: str
    block_hashes: list[BlockHash]
    num_computed_tokens: int
    num_tokens: int
    shared_prefix_boundary: int


class Manager(Protocol):
    """vLLM's KVCacheManager."""

    block_pool: BlockPool

    def get_computed_blocks(self, request: VLLMRequest) -> tuple[VLLMBlocks, int, int]:
        """What is found of a prompt: blocks, tokens, and where others share it."""

    def allocate_slots(
        self,
        request: VLLMRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: VLLMBlocks | None = None,
    ) -> VLLMBlocks | None:
        """Give a request blocks for its next tokens; None where there are too few."""

    def get_blocks(self, request_id: str) -> VLLMBlocks:
        """The block table of a request."""

    def free(self, request: VLLMRequest) -> None:
        """End a request."""

    def reset_prefix_cache(self) -> bool:
        """Forget all; whether it was done."""

    def take_events(self) -> list[object]:
        """The events since the last call."""
