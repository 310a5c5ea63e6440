"""The attributes of LMDeploy's objects that the adapters use, as types.

LMDeploy's objects have many more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

Named: TypeAlias = Any
"""A class of LMDeploy, found by its name."""
Blocks: TypeAlias = Any
"""A numpy array of block numbers."""


class LogicalBlocks(Protocol):
    """The blocks of a sequence."""

    def __len__(self) -> int:
        """How many blocks there are."""

    def append(self, blocks: Blocks) -> None:
        """Add blocks at the end."""

    def get_real_blocks(self) -> Blocks:
        """The numbers of the blocks."""


class LMSequence(Protocol):
    """A sequence, as LMDeploy calls a request."""

    logical_blocks: LogicalBlocks
    logical_state: int
    num_history_ids: int
    """Tokens whose data is cached or computed."""

    def update_token_ids(self, token_ids: Blocks, *, mode: object) -> None:
        """Add tokens; those that were there before count as computed by some modes."""

    def finish(self) -> None:
        """End the sequence."""


class Session(Protocol):
    """A session, which has sequences."""

    def add_sequence(self, token_ids: Blocks, *, adapter_name: str | None) -> LMSequence:
        """Add a sequence that waits to be scheduled."""


class Allocator(Protocol):
    """The reference counts of blocks, and the times of their last use."""

    _log_mem: Named

    def allocate(self, num_blocks: int, device: str = "gpu") -> Blocks:
        """Take free blocks, with one reference each."""

    def free(self, blocks: Blocks) -> None:
        """Drop a reference of each block; frees those without one."""

    def get_num_free_blocks(self) -> int:
        """How many blocks are free."""

    def get_ref_count(self, blocks: Blocks) -> Blocks:
        """The reference counts."""


class BlockManager(Protocol):
    """Allocates the blocks of sequences."""

    allocator: Allocator

    def num_required_blocks(self, obj: LMSequence, prealloc_size: int = 0) -> int:
        """How many blocks a sequence lacks for its tokens and some more."""

    def get_num_free_gpu_blocks(self) -> int:
        """How many blocks are free."""

    def get_block_table(self, msg: LMSequence) -> Blocks:
        """The physical blocks of a sequence."""

    def free(self, msg: LMSequence) -> None:
        """Free the blocks of a sequence."""


class Checkpoints(Protocol):
    """The saved states of recurrent layers."""

    def prepare_restore_batch(self, seqs: list[LMSequence]) -> object:
        """Pin the saved states that sequences start from."""

    def reserve_prefill_save_batch(self, seqs: list[LMSequence]) -> Named:
        """Reserve a saved state at the end of each sequence."""

    def finish_forward_dispatch(self, seqs: list[LMSequence], *, has_save_plan: bool) -> None:
        """Publish the reserved states."""

    def unpin_saves(self, seqs: list[LMSequence]) -> None:
        """Unpin the states that were published."""

    def evict(self, max_num_checkpoints: int) -> int:
        """Evict saved states."""


class Trie(Protocol):
    """The tree of cached blocks."""

    def match(self, seq: LMSequence) -> None:
        """Give a sequence the blocks of its longest cached prefix."""

    def allocate(self, seq: LMSequence) -> None:
        """Keep the blocks of a sequence in the tree."""

    def evict(self, max_num_blocks: int) -> int:
        """Evict blocks; returns how many."""


class StateManager(Protocol):
    """The slots of states."""

    def get_num_allocated_checkpoint_states(self) -> int:
        """How many slots saved states have."""


class EvictionHelper(Protocol):
    """Makes room for a sequence."""

    def try_make_capacity_for(
        self, seq: LMSequence, evictable_seqs: Iterable[LMSequence], prealloc_size: int
    ) -> bool:
        """Evict until a sequence has room for its tokens and some more."""


class Scheduled(Protocol):
    """The result of scheduling."""

    running: Sequence[LMSequence]


class PagingScheduler(Protocol):
    """LMDeploy's scheduler."""

    block_manager: BlockManager
    block_trie: Trie
    eviction_helper: EvictionHelper
    state_checkpoints: Checkpoints
    state_manager: StateManager
    seq_meta: Named

    def add_session(self, session_id: int) -> Session:
        """Add a session."""

    def end_session(self, session_id: int) -> None:
        """End a session, and free what its sequences have."""

    def schedule(self, is_prefill: bool) -> Scheduled:  # LMDeploy's signature.
        """Admit waiting sequences."""

    def activate_seqs(self, running: Sequence[LMSequence]) -> None:
        """Start scheduled sequences."""

    def reserve_long_context_chunk(
        self, seq: LMSequence, chunk_size: int, *, is_last_chunk: bool
    ) -> bool:
        """Allocate blocks for more tokens of a running sequence."""
