"""Fakes of SGLang and vLLM: the API that the bench calls, over plain lists.

They keep pages by their whole prefix, evict the least recently used page, and refuse calls that
would corrupt the real engines: freeing a locked page, or passing a prefix hit that was not found.
"""

# ruff: noqa: ANN401 # Like the engines, the fakes accept any types.

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, count, takewhile
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

Page = tuple[object, int]
"""A page: its namespace, and a hash of all tokens up to its end."""


def pages_of(tokens: Any, namespace: object, page_size: int) -> list[Page]:
    """The whole pages of a prompt."""
    starts = range(0, len(tokens) - page_size + 1, page_size)
    chain = accumulate((tuple(tokens[at : at + page_size]) for at in starts), _chained, initial=0)
    return [(namespace, hashed) for hashed in chain][1:]


def _chained(before: int, page: tuple[int, ...]) -> int:
    return hash((before, page))


class Pages:
    """Cached pages, least recently used first; of one prompt the last page first."""

    def __init__(self, page_size: int) -> None:
        self.page_size = page_size
        self.there: dict[Page, list[int]] = {}
        self.locked: Counter[Page] = Counter()

    def of(self, tokens: Any, namespace: object) -> list[Page]:
        return pages_of(tokens, namespace, self.page_size)

    def found(self, pages: list[Page]) -> list[Page]:
        missing = next((at for at, page in enumerate(pages) if page not in self.there), len(pages))
        for page in reversed(pages[:missing]):
            self.there[page] = self.there.pop(page)
        return pages[:missing]

    def victims(self, room: int) -> Iterator[list[int]]:
        for page in list(self.there):
            if room <= 0:
                return
            if not self.locked[page]:
                room -= self.page_size
                yield self.there.pop(page)


class Allocator:
    """Slots of tokens, page by page."""

    def __init__(self, size: int, *_others: object, **_more: object) -> None:
        self.free = list(range(1, size + 1))
        self.mapped: dict[int, int] = {}

    def available_size(self) -> int:
        return len(self.free)

    def alloc(self, need_size: int) -> list[int]:
        assert need_size <= len(self.free)
        slots, self.free = self.free[:need_size], self.free[need_size:]
        return slots


class WindowAllocator(Allocator):
    """Both kinds of slots."""

    def __init__(self, size: int, size_swa: int, *_others: object, **_more: object) -> None:
        super().__init__(0)
        self.full_attn_allocator = Allocator(size)
        self.swa_attn_allocator = Allocator(size_swa)

    def alloc(self, need_size: int) -> list[int]:
        slots = self.full_attn_allocator.alloc(need_size)
        self.set_full_to_swa_mapping(slots, self.swa_attn_allocator.alloc(need_size))
        return slots

    def set_full_to_swa_mapping(self, full: list[int], swa: list[int]) -> None:
        self.mapped |= dict(zip(full, swa, strict=True))


class RustUnifiedTreeCore:
    """The requested core."""

    def __init__(self, cache: UnifiedRadixCache) -> None:
        self.cache = cache

    def collect_full_device_indices(self, node: list[Page], root: object) -> list[int]:
        assert all(page[0] == root for page in node)
        return [slot for page in node for slot in self.cache.pages.there[page]]


class UnifiedRadixCache:
    """Nodes are lists of pages."""

    made: list[UnifiedRadixCache]

    def __init__(self, params: Any) -> None:
        self.params = params
        allocator = params.token_to_kv_pool_allocator
        self.full = getattr(allocator, "full_attn_allocator", allocator)
        self.swa: Any = getattr(allocator, "swa_attn_allocator", None)
        self.pages = Pages(params.page_size)
        self.tree_core = RustUnifiedTreeCore(self)
        self.told: list[Any] = [SimpleNamespace()]
        self.made.append(self)

    def root_node_handle(self, extra_key: str | None) -> str | None:
        return extra_key

    def match_prefix(self, params: Any) -> Any:
        pages = self.pages.of(params.key.token_ids, params.key.extra_key)
        node = self.pages.found(pages)
        length = len(node) * self.params.page_size
        return SimpleNamespace(device_prefix_len=length, last_device_node=node)

    def inc_lock_ref(self, node: list[Page]) -> Any:
        self.pages.locked.update(node)
        return SimpleNamespace(to_dec_params=lambda: node)

    def dec_lock_ref(self, node: list[Page], params: list[Page]) -> None:
        assert node == params
        self.pages.locked -= Counter(node)

    def evict(self, params: Any) -> None:
        room = max(params.num_tokens, params.swa_num_tokens)
        assert room > 0
        for slots in self.pages.victims(room):
            self._free(slots)

    def insert(self, params: Any) -> None:
        page_size, there = self.params.page_size, self.pages.there
        pages = self.pages.of(params.key.token_ids, params.key.extra_key)
        assert len(params.value) == len(pages) * page_size
        known = len(self.pages.found(pages))
        assert params.prev_prefix_len <= known * page_size
        self._free(params.value[params.prev_prefix_len : known * page_size])
        for at, page in reversed(list(enumerate(pages))):
            if page not in there:
                there[page] = params.value[at * page_size : (at + 1) * page_size]
        if pages[known:]:
            self.told.append(SimpleNamespace(block_hashes=pages[known:], token_ids=[]))

    def take_events(self) -> list[Any]:
        told, self.told = self.told, []
        return told if self.params.enable_kv_cache_events else []

    def _free(self, slots: list[int]) -> None:
        if slots:
            self.full.free += slots
            self.told.append(SimpleNamespace(block_hashes=slots[:: self.params.page_size]))
        if self.swa is not None:
            paired = self.params.token_to_kv_pool_allocator.mapped
            self.swa.free += [paired[slot] for slot in slots]


class HostedCache(UnifiedRadixCache):
    """With a host tier: evicted pages go there, the oldest there are dropped."""

    def __init__(self, params: Any) -> None:
        super().__init__(params)
        self.host_pages = params.host_pages
        self.on_host: dict[Page, None] = {}
        self.layers: list[int] = []
        self.loads = 0
        self.polls = 0
        self.cache_controller = SimpleNamespace(io_backend="direct", l2_transfer_engine=None)

    def match_prefix(self, params: Any) -> Any:
        found = super().match_prefix(params)
        pages = self.pages.of(params.key.token_ids, params.key.extra_key)
        behind = pages[len(found.last_device_node) :]
        loadable = list(takewhile(self.on_host.__contains__, behind))
        found.best_match_node = found.last_device_node + loadable
        found.host_hit_length = len(loadable) * self.params.page_size
        found.swa_host_hit_length = found.mamba_host_hit_length = 0
        return found

    def init_load_back(self, params: Any) -> Any:
        node, before = params.best_match_node, params.req.last_node
        self.pages.locked.update(before)
        missing, page_size = node[len(before) :], self.params.page_size
        assert missing
        assert params.host_hit_length == len(missing) * page_size
        for page in missing:
            del self.on_host[page]
        short = params.host_hit_length - self.full.available_size()
        for page, slots in self._victims(short):
            self._to_host(page, slots)
        self.pages.locked -= Counter(before)
        assert params.host_hit_length <= self.full.available_size()
        for page in reversed(missing):
            self.pages.there[page] = self.full.alloc(page_size)
        self.pages.found(node)
        self.loads += 1
        return params.host_hit_length, node

    def ready_to_load_host_cache(self) -> None:
        engine = self.cache_controller.l2_transfer_engine
        done = self.layers.append
        engine.submit_host_to_device([], transfer_layer_id_max=2, on_layer_done=done)

    def check_hicache_events(self) -> None:
        assert self.cache_controller.l2_transfer_engine.submit_device_to_host([]) == ("s", "f", 0)
        self.polls += 1

    def insert(self, params: Any) -> None:
        super().insert(params)
        self.pages.found(self.pages.of(params.key.token_ids, params.key.extra_key))

    def evict(self, params: Any) -> None:
        assert params.num_tokens > 0
        for page, slots in self._victims(params.num_tokens):
            self._to_host(page, slots)

    def _victims(self, room: int) -> Iterator[tuple[Page, list[int]]]:
        for page in list(self.pages.there):
            if room <= 0:
                return
            if not self.pages.locked[page]:
                room -= self.params.page_size
                yield page, self.pages.there.pop(page)

    def _to_host(self, page: Page, slots: list[int]) -> None:
        self._free(slots)
        self.on_host[page] = None
        if len(self.on_host) > self.host_pages:
            del self.on_host[next(iter(self.on_host))]


def hosted_world(config: Any, name: str, options: Any) -> Any:
    """In place of `kvcanon.conformance.engines.sglang.factory.make_world`; of full data only."""
    assert (name, options) == ("UnifiedRadixCache", {"tree_core_backend": "rust"})
    assert config.slot_bytes == 2 * config.page_size
    allocator = Allocator(config.device_slots.full * config.page_size)
    params = SimpleNamespace(
        token_to_kv_pool_allocator=allocator,
        page_size=config.page_size,
        enable_kv_cache_events=config.events,
        host_pages=config.host_slots.full,
    )
    return SimpleNamespace(cache=HostedCache(params), allocator=allocator)


class KVCacheManager:
    """Blocks; their slots are not visible."""

    made: list[KVCacheManager]

    def __init__(self, config: Any, *, hash_block_size: int, **options: Any) -> None:
        self.config, self.options = config, options
        self.pages = Pages(hash_block_size)
        self.coordinator = SimpleNamespace()
        self.ids = count()
        self.held: dict[str, list[Page]] = {}
        self.told: list[Any] = []
        self.made.append(self)

    def get_computed_blocks(self, request: Any, limit: int) -> tuple[Any, int, int]:
        assert request.block_hashes == self.pages.of(request.tokens, request.cache_salt)
        found = self.pages.found(request.block_hashes[: limit // self.pages.page_size])
        blocks = SimpleNamespace(get_block_ids=lambda: [len(found)])
        return blocks, len(found) * self.pages.page_size, 0

    def allocate_slots(self, request: Any, new: int, hit: int, blocks: Any) -> Any:
        page_size = self.pages.page_size
        assert blocks.get_block_ids() == [hit // page_size]
        assert hit + new == len(request.tokens)
        self.pages.locked.update(request.block_hashes)
        self.held[request.name] = request.block_hashes
        fresh = [page for page in request.block_hashes if page not in self.pages.there]
        room = len(self.pages.there) + len(fresh) - (self.config.num_blocks - 1)
        left = sum(1 for _ in self.pages.victims(room * page_size))
        if left < room:
            return None
        self.pages.there |= {page: [] for page in reversed(fresh)}
        stored = SimpleNamespace(block_hashes=fresh, token_ids=[], group_idx=0)
        of_window = SimpleNamespace(block_hashes=fresh, token_ids=[], group_idx=1)
        self.told += [stored, of_window] + [SimpleNamespace(block_hashes=[0])] * left
        return blocks

    def free(self, request: Any) -> None:
        self.pages.locked -= Counter(self.held.pop(request.name))

    def take_events(self) -> list[Any]:
        told, self.told = self.told, []
        return told


def _request(name: str, tokens: list[int], *_others: Any, cache_salt: str | None) -> Any:
    return SimpleNamespace(name=name, tokens=tokens, cache_salt=cache_salt)


def _hasher(block_size: int, _hash: object) -> Callable[[Any], list[Page]]:
    return lambda request: Pages(block_size).of(request.tokens, request.cache_salt)


def _nothing(*_arguments: object, **_options: object) -> SimpleNamespace:
    return SimpleNamespace()


MODULES: dict[str, dict[str, object]] = {
    "torch": {"float16": "float16", "cat": lambda parts: [each for part in parts for each in part]},
    "sglang.srt.server_args": {
        "ServerArgs": _nothing,
        "set_global_server_args_for_scheduler": _nothing,
    },
    "sglang.srt.mem_cache.memory_pool": {"MHATokenToKVPool": _nothing, "ReqToTokenPool": _nothing},
    "sglang.srt.mem_cache.swa_memory_pool": {"SWAKVPool": _nothing},
    "sglang.srt.mem_cache.allocator.token": {"TokenToKVPoolAllocator": Allocator},
    "sglang.srt.mem_cache.allocator.paged": {"PagedTokenToKVPoolAllocator": Allocator},
    "sglang.srt.mem_cache.allocator.swa": {"SWATokenToKVPoolAllocator": WindowAllocator},
    "sglang.srt.mem_cache.radix_cache": {
        "RadixKey": lambda tokens, extra: SimpleNamespace(token_ids=tokens, extra_key=extra)
    },
    "sglang.srt.mem_cache.base_prefix_cache": dict.fromkeys(
        ("MatchPrefixParams", "EvictParams", "InsertParams", "InitLoadBackParams"),
        SimpleNamespace,
    ),
    "sglang.srt.mem_cache.l2_transfer": {
        "make_timing_event_pair": lambda: ("s", "f", 0),
        "TransferCompletion": lambda *parts: parts,
    },
    "sglang.srt.mem_cache.unified_cache.component_type": {
        "ComponentType": SimpleNamespace(FULL="full", SWA="swa")
    },
    "sglang.srt.mem_cache.cache_init_params": {"CacheInitParams": SimpleNamespace},
    "sglang.srt.mem_cache.unified_radix_cache": {"UnifiedRadixCache": UnifiedRadixCache},
    "vllm.utils.hashing": {"sha256": None},
    "vllm.v1.request": {"Request": _request},
    "vllm.sampling_params": {"SamplingParams": _nothing},
    "vllm.v1.core.kv_cache_utils": {
        "init_none_hash": _nothing,
        "get_request_block_hasher": _hasher,
    },
    "vllm.v1.core.kv_cache_manager": {"KVCacheManager": KVCacheManager},
    "vllm.v1.kv_cache_interface": {
        "FullAttentionSpec": _nothing,
        "SlidingWindowSpec": _nothing,
        "KVCacheGroupSpec": _nothing,
        "KVCacheConfig": lambda blocks, **options: SimpleNamespace(num_blocks=blocks, **options),
    },
}
"""The names that the drivers import, by module."""


def install(patch: pytest.MonkeyPatch) -> None:
    """Install the fakes in `sys.modules`."""
    UnifiedRadixCache.made = []
    KVCacheManager.made = []
    for name, contents in MODULES.items():
        module = ModuleType(name)
        for attribute, value in contents.items():
            setattr(module, attribute, value)
        patch.setitem(sys.modules, name, module)
        for package in _packages(name):
            if package not in MODULES:
                patch.setitem(sys.modules, package, ModuleType(package))


def _packages(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]
