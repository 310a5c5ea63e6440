"""The engine's blocks: reference counts, the free queue in order of eviction, and the hash table.

Names are those of vLLM's `BlockPool`, `FreeKVCacheBlockQueue` and `KVCacheBlock`, since connectors
read and touch the pool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from attrs import Factory, define, field

NULL_BLOCK_ID = 0


@define(eq=False)
class PoolBlock:
    """A block of the device: `block_tokens` tokens of one group of layers."""

    block_id: int
    ref_cnt: int = 0
    block_hash: bytes | None = None
    """The hash of what it holds with its group, if that can be found; see `hash_in_group`."""
    block_hash_num_tokens: int | None = None
    """How many tokens the hash covers, from the first of the prompt."""
    is_null: bool = False
    """Whether it stands for blocks that nothing is read of."""
    prev_free_block: PoolBlock | None = field(default=None, repr=False)
    next_free_block: PoolBlock | None = field(default=None, repr=False)

    def reset_hash(self) -> None:
        """Forget what it holds."""
        self.block_hash = self.block_hash_num_tokens = None


def hash_in_group(block_hash: bytes, group: int) -> bytes:
    """The key of a block in the pool: the hash of its tokens and all before them, and its group."""
    return block_hash + group.to_bytes(4, "big")


class EvictionQueue:
    """A linked list of the free blocks; the head is evicted next."""

    def __init__(self, blocks: Sequence[PoolBlock]) -> None:
        self.fake_free_list_head, self.fake_free_list_tail = PoolBlock(-1), PoolBlock(-1)
        self.num_free_blocks = 0
        _link(self.fake_free_list_head, self.fake_free_list_tail)
        self.append_n(blocks)

    def popleft_n(self, count: int) -> list[PoolBlock]:
        """Take blocks from the head."""
        taken = []
        for _ in range(count):
            block = self.fake_free_list_head.next_free_block
            assert block is not None  # noqa: S101  # The tail at least.
            self.remove(block)
            taken.append(block)
        return taken

    def remove(self, block: PoolBlock) -> None:
        """Take a block out of the middle."""
        before, after = block.prev_free_block, block.next_free_block
        if before is None or after is None:
            raise ValueError(f"block {block.block_id} is not free")
        _link(before, after)
        block.prev_free_block = block.next_free_block = None
        self.num_free_blocks -= 1

    def append_n(self, blocks: Iterable[PoolBlock]) -> None:
        """Add blocks at the tail, the last to be evicted last."""
        for block in blocks:
            last = self.fake_free_list_tail.prev_free_block
            assert last is not None  # noqa: S101  # The head at least.
            _link(last, block)
            _link(block, self.fake_free_list_tail)
            self.num_free_blocks += 1

    def prepend_n(self, blocks: Iterable[PoolBlock]) -> None:
        """Add blocks at the head, in their order."""
        last, after = self.fake_free_list_head, self.fake_free_list_head.next_free_block
        assert after is not None  # noqa: S101  # The tail at least.
        for block in blocks:
            _link(last, block)
            last = block
            self.num_free_blocks += 1
        _link(last, after)

    def iter_blocks_after(self, block: PoolBlock | None) -> Iterator[PoolBlock]:
        """The free blocks behind one, or all for None."""
        at = (block or self.fake_free_list_head).next_free_block
        while at is not None and at is not self.fake_free_list_tail:
            yield at
            at = at.next_free_block

    def get_all_free_blocks(self) -> list[PoolBlock]:
        """The free blocks in order of eviction."""
        return list(self.iter_blocks_after(None))


def _link(before: PoolBlock, after: PoolBlock) -> None:
    before.next_free_block, after.prev_free_block = after, before


@define
class HashTable:
    """The blocks that can be found by what they hold; several may hold the same."""

    blocks: dict[bytes, dict[int, PoolBlock]] = Factory(dict)

    def get_one_block(self, key: bytes) -> PoolBlock | None:
        """The first block of a key."""
        found = self.blocks.get(key)
        return next(iter(found.values())) if found else None

    def insert(self, key: bytes, block: PoolBlock) -> None:
        """Let a block be found."""
        self.blocks.setdefault(key, {})[block.block_id] = block

    def pop(self, key: bytes, block_id: int) -> None:
        """Let a block not be found any more."""
        found = self.blocks.get(key, {})
        found.pop(block_id, None)
        if not found:
            self.blocks.pop(key, None)

    def __len__(self) -> int:
        return len(self.blocks)


class StandInPool:
    """All blocks. One that was freed is found by its hash until it is allocated again."""

    def __init__(self, blocks: int) -> None:
        self.num_gpu_blocks = blocks + 1
        self.blocks = [PoolBlock(number) for number in range(self.num_gpu_blocks)]
        self.free_block_queue = EvictionQueue(self.blocks)
        (self.null_block,) = self.free_block_queue.popleft_n(1)
        self.null_block.is_null = True
        self.cached_block_hash_to_block = HashTable()
        self.cached_block_hashes_by_block: dict[int, set[bytes]] = {}
        """Further hashes of a block, for parts of it; this pool has none."""

    def get_num_free_blocks(self) -> int:
        """How many blocks may be allocated."""
        return self.free_block_queue.num_free_blocks

    def get_cached_block(self, block_hash: bytes, groups: Sequence[int]) -> list[PoolBlock] | None:
        """A block of each group that holds the tokens of a hash; None if one is missing."""
        table = self.cached_block_hash_to_block
        found = [table.get_one_block(hash_in_group(block_hash, group)) for group in groups]
        blocks = [block for block in found if block is not None]
        return blocks if len(blocks) == len(groups) else None

    def get_new_blocks(self, count: int) -> list[PoolBlock]:
        """Allocate blocks from the head of the free queue, which evicts what they hold."""
        if count > self.get_num_free_blocks():
            raise ValueError(f"{count} blocks are asked for, {self.get_num_free_blocks()} are free")
        taken = self.free_block_queue.popleft_n(count)
        for block in taken:
            self.forget(block)
            block.ref_cnt = 1
        return taken

    def touch(self, blocks: Iterable[PoolBlock]) -> None:
        """Hold blocks, which are not evicted until they are freed again."""
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                self.free_block_queue.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks: Iterable[PoolBlock]) -> None:
        """Let go of blocks, the first to be evicted first.

        What holds nothing that can be found is used again at once.
        """
        free: list[PoolBlock] = []
        for block in blocks:
            if block.is_null:
                continue
            if block.ref_cnt <= 0:
                raise ValueError(f"block {block.block_id} is freed, and nobody holds it")
            block.ref_cnt -= 1
            if block.ref_cnt == 0:
                free.append(block)
        self.free_block_queue.prepend_n(block for block in free if block.block_hash is None)
        self.free_block_queue.append_n(block for block in free if block.block_hash is not None)

    def cache_block(self, block: PoolBlock, key: bytes, tokens: int) -> None:
        """Let a block be found by a key, which covers so many tokens."""
        if block.block_hash is None:
            block.block_hash, block.block_hash_num_tokens = key, tokens
            self.cached_block_hash_to_block.insert(key, block)

    def reset_prefix_cache(self) -> bool:
        """Let no block be found any more; refused while one is held."""
        if self.get_num_free_blocks() != self.num_gpu_blocks - 1:
            return False
        for block in self.blocks:
            self.forget(block)
        return True

    def forget(self, block: PoolBlock) -> None:
        """Let a block not be found any more."""
        if block.block_hash is not None:
            self.cached_block_hash_to_block.pop(block.block_hash, block.block_id)
            block.reset_hash()
