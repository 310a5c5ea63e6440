"""Faults of vLLM's cache, each of which a probe must find.

A fault replaces a function of vLLM's by one that calls it and changes what it takes or returns, in
the process of the engine, before the engine is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

Function = Callable[..., Any]
_CORE = "vllm.v1.core"


def parent_ignored() -> None:
    """The hash of a block is that of its own tokens."""
    module = import_module(f"{_CORE}.kv_cache_utils")
    hashed = module.hash_block_tokens

    def hash_block_tokens(function: object, _parent: object, *rest: object) -> object:
        return hashed(function, None, *rest)

    _replace(module, hash_block_tokens)


def first_token_hashed() -> None:
    """The hash of a block covers its first token alone, and its parent."""
    module = import_module(f"{_CORE}.kv_cache_utils")
    hashed = module.hash_block_tokens

    def hash_block_tokens(function: object, parent: object, tokens: Any, *rest: object) -> object:  # noqa: ANN401
        return hashed(function, parent, tokens[:1], *rest)

    _replace(module, hash_block_tokens)


def salt_ignored() -> None:
    """Prompts of all salts share blocks."""
    module = import_module(f"{_CORE}.kv_cache_utils")
    keys_of = module.generate_block_hash_extra_keys

    def generate_block_hash_extra_keys(request: Any, *rest: object) -> object:  # noqa: ANN401
        salt, request.cache_salt = request.cache_salt, None
        try:
            return keys_of(request, *rest)
        finally:
            request.cache_salt = salt

    _replace(module, generate_block_hash_extra_keys)


def blocks_swapped() -> None:
    """The last two new blocks of a request are cached under each other's hash."""
    pool = import_module(f"{_CORE}.block_pool").BlockPool
    cache = pool.cache_full_blocks

    def cache_full_blocks(
        self: object,
        request: object,
        blocks: Iterable[object],
        num_cached_blocks: int,
        num_full_blocks: int,
        **named: object,
    ) -> object:
        swapped, last = list(blocks), num_full_blocks - 1
        if last > num_cached_blocks:
            swapped[last - 1], swapped[last] = swapped[last], swapped[last - 1]
        return cache(self, request, swapped, num_cached_blocks, num_full_blocks, **named)

    _replace(pool, cache_full_blocks)


def hit_one_block_short() -> None:
    """The last block of a hit is not found."""

    def shorter(blocks: list[object], length: int, size: int, _most: int) -> tuple[object, int]:
        return blocks[:-1], length - size

    _change_hits(shorter)


def hit_one_block_more() -> None:
    """A hit has one block more than was computed: its last block again."""

    def longer(blocks: list[object], length: int, size: int, most: int) -> tuple[object, int]:
        return (blocks, length) if length + size > most else ([*blocks, blocks[-1]], length + size)

    _change_hits(longer)


def abort_keeps_blocks() -> None:
    """The blocks of a request that was aborted are never freed."""
    manager = import_module(f"{_CORE}.kv_cache_manager").KVCacheManager
    aborted = import_module("vllm.v1.request").RequestStatus.FINISHED_ABORTED
    give_back = manager.free

    def free(self: object, request: Any) -> None:  # noqa: ANN401
        if request.status != aborted:
            give_back(self, request)

    _replace(manager, free)


def hit_leaves_first() -> None:
    """Blocks that were found again are the first to be evicted, and not the last."""
    pool = import_module(f"{_CORE}.block_pool").BlockPool
    use, give_back = pool.touch, pool.free_blocks
    found: set[int] = set()

    def touch(self: object, blocks: Iterable[Any]) -> object:
        blocks = list(blocks)
        found.update(block.block_id for block in blocks)
        return use(self, blocks)

    def free_blocks(self: Any, blocks: Iterable[Any]) -> object:  # noqa: ANN401
        blocks = list(blocks)
        result = give_back(self, blocks)
        first = [block for block in blocks if block.block_id in found and block.ref_cnt == 0]
        for block in first:
            self.free_block_queue.remove(block)
        self.free_block_queue.prepend_n(first)
        found.difference_update(block.block_id for block in first)
        return result

    _replace(pool, touch, free_blocks)


def evicted_is_still_found() -> None:
    """The hash of an evicted block stays in the table, while the block is used for another."""
    pool = import_module(f"{_CORE}.block_pool").BlockPool

    def _maybe_evict_cached_block(_self: object, block: Any) -> bool:  # noqa: ANN401
        block.reset_hash()
        return False

    _replace(pool, _maybe_evict_cached_block)


def hit_not_held() -> None:
    """The blocks of a hit can be evicted while a request reads them."""
    pool = import_module(f"{_CORE}.block_pool").BlockPool
    use = pool.touch

    def touch(self: Any, blocks: Iterable[Any]) -> None:  # noqa: ANN401
        blocks = list(blocks)
        free = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
        use(self, blocks)
        # What is at the head of the queue is taken for the same request.
        self.free_block_queue.prepend_n(free)
        for block in free:
            block.ref_cnt = 0

    _replace(pool, touch)


FAULTS: Mapping[str, Callable[[], None]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        parent_ignored,
        first_token_hashed,
        salt_ignored,
        blocks_swapped,
        hit_one_block_short,
        hit_one_block_more,
        abort_keeps_blocks,
        hit_leaves_first,
        evicted_is_still_found,
        hit_not_held,
    )
}
"""The faults, by name."""


def _change_hits(change: Callable[[list[object], int, int, int], tuple[object, int]]) -> None:
    """Change each hit that is not empty: its blocks and its length, given block size and limit."""
    coordinator = import_module(f"{_CORE}.kv_cache_coordinator").UnitaryKVCacheCoordinator
    find = coordinator.find_longest_cache_hit

    def find_longest_cache_hit(self: Any, hashes: object, most: int) -> object:  # noqa: ANN401
        (blocks,), length, uncached = find(self, hashes, most)
        if length:
            blocks, length = change(blocks, length, self.block_size, most)
        return (blocks,), length, uncached

    _replace(coordinator, find_longest_cache_hit)


def _replace(owner: object, *functions: Function) -> None:
    """Put functions in the place of those of the same names."""
    for function in functions:
        setattr(owner, function.__name__, function)
