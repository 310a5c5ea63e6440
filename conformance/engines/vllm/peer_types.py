"""The attributes of vLLM's objects that the adapter uses, as types.

vLLM's objects have many more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

Named: TypeAlias = Any
"""A class or function of vLLM, found by its name."""
BlockHash: TypeAlias = bytes
"""The hash that a block is found by."""
EventHash: TypeAlias = int | bytes
"""A block hash in an event, where it may be cut to 64 bits."""


class Block(Protocol):
    """A block of the pool."""

    block_id: int
    block_hash: BlockHash | None
    is_null: bool


class FreeQueue(Protocol):
    """The free blocks, the next victim first."""

    def get_all_free_blocks(self) -> list[Block]:
        """All of them, in order."""


class BlockPool(Protocol):
    """All blocks of all groups."""

    free_block_queue: FreeQueue

    def get_num_free_blocks(self) -> int:
        """How many blocks no request holds."""

    def get_new_blocks(self, num_blocks: int) -> list[Block]:
        """Allocate the next victims."""

    def free_blocks(self, ordered_blocks: Iterable[Block]) -> None:
        """Free blocks, the next victim first."""


class VLLMBlocks(Protocol):
    """Blocks of a request, one sequence per group."""

    blocks: tuple[Sequence[Block], ...]


class VLLMRequest(Protocol):
    """A request of vLLM's scheduler."""

    request_id: str
    block_hashes: list[BlockHash]
    num_computed_tokens: int
    num_tokens: int
    shared_prefix_boundary: int


class Manager(Protocol):
    """vLLM's KVCacheManager."""

    block_pool: BlockPool

    def get_computed_blocks(self, request: VLLMRequest) -> tuple[VLLMBlocks, int, int]:
        """The prefix hit of a prompt: blocks, tokens, and the shared prefix boundary."""

    def allocate_slots(
        self,
        request: VLLMRequest,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: VLLMBlocks | None = None,
    ) -> VLLMBlocks | None:
        """Allocate blocks for a request's next tokens; None if too few are free."""

    def get_blocks(self, request_id: str) -> VLLMBlocks:
        """The block table of a request."""

    def free(self, request: VLLMRequest) -> None:
        """Free the blocks of a request."""

    def reset_prefix_cache(self) -> bool:
        """Empty the cache. Returns whether that was done."""

    def take_events(self) -> list[object]:
        """The events since the last call."""
