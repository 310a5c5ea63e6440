"""A fake of vLLM: the API that the adapter calls, over plain lists, with events.

It keeps one block per hash, never reuses the last token of a prompt, and has full and window blocks
in one pool. It contains no vLLM code and behaves as the adapter expects.
"""

# ruff: noqa: ANN401 # Like vLLM, the fakes accept any types.

from __future__ import annotations

import hashlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from kvcanon.conformance.engines import installed_names
from kvcanon.conformance.engines.vllm.factory import NAMES


@define(eq=False)
class Block:
    """A block; block 0, the null block, stands for pages that have left the window."""

    block_id: int
    block_hash: bytes | None = None
    ref_cnt: int = 0

    @property
    def is_null(self) -> bool:
        return self.block_id == 0


@define
class BlockStored:
    """Blocks were cached."""

    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    group_idx: int
    lora_name: str | None = None
    extra_keys: list[tuple[str, ...] | None] | None = None
    medium: str | None = "GPU"


@define
class BlockRemoved:
    """Blocks were evicted."""

    block_hashes: list[int]
    group_idx: int
    medium: str | None = "GPU"


@define
class AllBlocksCleared:
    """All blocks were evicted."""


@define(eq=False)
class Request:
    """A prompt with the hashes of its blocks."""

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: Any
    pooling_params: Any
    lora_request: Any = None
    cache_salt: str | None = None
    block_hasher: Any = None
    num_computed_tokens: int = 0
    shared_prefix_boundary: int = 0
    block_hashes: list[bytes] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.block_hashes = self.block_hasher(self)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids)


class KVCacheManager:
    """A manager of blocks by hash and group; it is also the block pool and the free queue."""

    def __init__(self, kv_cache_config: Any, **options: Any) -> None:
        self.config, self.options = kv_cache_config, options
        self.size = options["hash_block_size"]
        self.free_blocks_left = [Block(at) for at in range(1, kv_cache_config.num_blocks)]
        self.cached: dict[bytes, Block] = {}
        self.tables: dict[str, list[list[Block]]] = {}
        self.told: list[Any] = []
        self.block_pool = self.free_block_queue = self

    def get_all_free_blocks(self) -> list[Block]:
        return list(self.free_blocks_left)

    def get_num_free_blocks(self) -> int:
        return len(self.free_blocks_left)

    def get_new_blocks(self, num_blocks: int) -> list[Block]:
        return [self._take() for _ in range(num_blocks)]

    def free_blocks(self, ordered_blocks: list[Block]) -> None:
        for block in ordered_blocks:
            block.ref_cnt -= 1
            if not block.is_null and block.ref_cnt == 0:
                at = len(self.free_blocks_left) if block.block_hash else 0
                self.free_blocks_left.insert(at, block)

    def get_computed_blocks(self, request: Request) -> tuple[Any, int, int]:
        found: list[Block] = []
        for each in request.block_hashes[: (request.num_tokens - 1) // self.size]:
            if len(self.config.kv_cache_groups) > 1 or each + b"\0" not in self.cached:
                break
            found.append(self.cached[each + b"\0"])
        return SimpleNamespace(blocks=(found,)), len(found) * self.size, 0

    def allocate_slots(
        self, request: Request, num_new_tokens: int, found_tokens: int = 0, found: Any = None
    ) -> Any:
        assert num_new_tokens + found_tokens + request.num_computed_tokens == request.num_tokens
        groups = range(len(self.config.kv_cache_groups))
        waiting = [block for block in (found.blocks[0] if found else ()) if not block.ref_cnt]
        needed = num_new_tokens // self.size * len(groups)
        if needed + len(waiting) > len(self.free_blocks_left):
            return None
        tables = self.tables.setdefault(request.request_id, [[] for _ in groups])
        for block in found.blocks[0] if found else ():
            block.ref_cnt += 1
            if block in self.free_blocks_left:
                self.free_blocks_left.remove(block)
            tables[0].append(block)
        for group in groups:
            before = len(tables[group])
            if group and before:
                self.free_blocks(tables[group])
                tables[group] = [Block(0) for _ in range(before)]
            tables[group] += self.get_new_blocks(num_new_tokens // self.size)
            self._cache(request, group, tables[group], before)
        return SimpleNamespace(blocks=tables)

    def get_blocks(self, request_id: str) -> Any:
        return SimpleNamespace(blocks=self.tables[request_id])

    def free(self, request: Request) -> None:
        for blocks in self.tables.pop(request.request_id, []):
            self.free_blocks(blocks[::-1])

    def reset_prefix_cache(self) -> bool:
        if len(self.free_blocks_left) < self.config.num_blocks - 1:
            return False
        for block in self.free_blocks_left:
            block.block_hash = None
        self.cached.clear()
        self.told.append(AllBlocksCleared())
        return True

    def take_events(self) -> list[Any]:
        told, self.told = self.told, []
        return told

    def _take(self) -> Block:
        block = self.free_blocks_left.pop(0)
        if block.block_hash is not None and self.cached.get(block.block_hash) is block:
            del self.cached[block.block_hash]
            self.told.append(
                BlockRemoved([shortened(block.block_hash[:-1])], group_of(block.block_hash))
            )
        block.block_hash = None
        block.ref_cnt = 1
        return block

    def _cache(self, request: Request, group: int, blocks: list[Block], start: int) -> None:
        new = request.block_hashes[start:]
        for block, block_hash in zip(blocks[start:], new, strict=True):
            block.block_hash = block_hash + bytes([group])
            self.cached[block.block_hash] = block
        keys = [getattr(request.lora_request, "lora_name", None), request.cache_salt]
        first = tuple(key for key in keys if key is not None) if not start else None
        self.told.append(
            BlockStored(
                [shortened(each) for each in new],
                shortened(request.block_hashes[start - 1]) if start else None,
                request.prompt_token_ids[start * self.size :],
                self.size,
                group,
                keys[0],
                [first or None, *[None for _ in new[1:]]],
            )
        )


def group_of(block_hash: bytes) -> int:
    """The group of a block hash in the pool."""
    return block_hash[-1]


def shortened(block_hash: bytes) -> int:
    """A block hash in the form of events."""
    return int.from_bytes(block_hash[:8], "big")


def _hasher(size: int, _function: Any) -> Any:
    def hashes(request: Request) -> list[bytes]:
        lora = getattr(request.lora_request, "lora_name", None)
        chain = hashlib.sha256(repr((lora, request.cache_salt)).encode())
        found: list[bytes] = []
        for at in range(0, request.num_tokens - size + 1, size):
            chain.update(repr(request.prompt_token_ids[at : at + size]).encode())
            found.append(chain.digest())
        return found

    return hashes


def _space(*names: str) -> Any:
    def make(*values: Any, **more: Any) -> Any:
        return SimpleNamespace(**dict(zip(names, values, strict=False)), **more)

    return make


FAKES = {
    "KVCacheManager": KVCacheManager,
    "KVCacheConfig": _space(),
    "KVCacheGroupSpec": _space("layer_names", "kv_cache_spec"),
    "FullAttentionSpec": _space(),
    "SlidingWindowSpec": _space(),
    "Request": Request,
    "SamplingParams": _space(),
    "LoRARequest": _space("lora_name", "lora_int_id", "lora_path"),
    "sha256": None,
    "init_none_hash": _space("function"),
    "get_request_block_hasher": _hasher,
    "get_group_id": group_of,
    "maybe_convert_block_hash": shortened,
}


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the fake as vLLM."""
    for name, place in NAMES.modules.items():
        if place not in sys.modules:
            monkeypatch.setitem(sys.modules, place, ModuleType(place))
        monkeypatch.setattr(sys.modules[place], name, FAKES[name], raising=False)
    torch = ModuleType("torch")
    monkeypatch.setattr(torch, "uint8", None, raising=False)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(installed_names, "installed_version", lambda *_: "0")
