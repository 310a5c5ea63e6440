"""Drives SGLang's UnifiedRadixCache, release 0.5.23, with its Rust or its Python core.

Its pools are as small as possible: one layer, one head, one number per token. It has a slot per
token; tokens and slots have 64 bits each, and are passed like that. `sglang_hosted` adds the host
tier.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from importlib import import_module
from time import perf_counter_ns
from typing import Any

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import (
    Driver,
    EventCounts,
    StepTimes,
    shortage,
    whole_and_reusable_tokens,
)
from kvcanon.lab.bench.drivers.sglang_hosted import load_back, make_hosted

CORES = {"rust": "RustUnifiedTreeCore", "python": "UnifiedTreeCore"}
"""SGLang's own cores by name, with their classes."""
CLASSES = CORES | {"kvcanon": "KvcanonTreeCore"}
MEM_CACHE = "sglang.srt.mem_cache"


def _named(module: str, name: str) -> Any:  # noqa: ANN401 # Any object of SGLang.
    return getattr(import_module(f"{MEM_CACHE}.{module}"), name)


@frozen
class Int64Prompt:
    """A prompt as an array with 64 bits per token."""

    whole: array[int]
    """Its whole pages."""
    reusable: int
    """How many tokens are in whole pages of its first n - 1 tokens."""
    extra_key: str | None


class SGLangDriver:
    """Calls a `UnifiedRadixCache`."""

    def __init__(self, cell: BenchCell, core: str) -> None:
        self._torch = import_module("torch")
        self._cell = cell
        self.loaded_tokens = self.spare_pages = 0
        if cell.host is None:
            self._allocator = make_allocator(cell)
            self._cache = _cache(self._allocator, cell, core)
        else:
            self._cache, self._allocator = make_hosted(cell, core)
        self._full = getattr(self._allocator, "full_attn_allocator", self._allocator)
        self._swa = getattr(self._allocator, "swa_attn_allocator", None)
        self.core = type(self._cache.tree_core).__name__
        if self.core != CLASSES[core]:
            # SGLang falls back to Python without saying so.
            raise UsageError(f"SGLang made a {self.core} where its {core} core was asked for")
        self._cache.take_events()
        self._key = _named("radix_cache", "RadixKey")
        base = "base_prefix_cache"
        self._match_params = _named(base, "MatchPrefixParams")
        self._evict_params = _named(base, "EvictParams")
        self._insert_params = _named(base, "InsertParams")

    def prepare(self, request: Request) -> Int64Prompt:
        """Put the whole pages into one array."""
        page_size = self._cell.page_size
        whole, reusable = whole_and_reusable_tokens(request, page_size)
        tokens = array("q", request.make_tokens()[:whole])
        return Int64Prompt(tokens, reusable, request.namespace.extra_key)

    def serve(self, prompt: Int64Prompt, taken: StepTimes) -> int:
        """Serve a request."""
        cache, whole, extra_key = self._cache, prompt.whole, prompt.extra_key
        found, prefix = self._match(prompt, taken)
        node, hit = found.last_device_node, found.device_prefix_len
        if self._cell.host is not None:
            node, prefix = self._load(found, prefix, extra_key, taken)
            hit = len(prefix)
        began = perf_counter_ns()
        receipt = cache.inc_lock_ref(node)
        taken.lock.append(perf_counter_ns() - began)
        if self._cell.host is not None:
            began = perf_counter_ns()
            cache.check_hicache_events()
            taken.poll.append(perf_counter_ns() - began)
        missing = len(whole) - hit
        self._make_room(missing, taken)
        slots = self._torch.cat((prefix, self._allocate(missing, taken))) if missing else prefix
        handed = self._insert_params(
            key=self._key(whole, extra_key), value=slots, prev_prefix_len=hit
        )
        began = perf_counter_ns()
        cache.insert(handed)
        taken.insert.append(perf_counter_ns() - began)
        held = receipt.to_dec_params()
        began = perf_counter_ns()
        cache.dec_lock_ref(node, held)
        taken.unlock.append(perf_counter_ns() - began)
        return int(hit)

    def find(self, prompt: Int64Prompt, taken: StepTimes) -> int:
        """Look up a prompt without serving it."""
        found, _ = self._match(prompt, taken)
        on_host = found.host_hit_length if self._cell.host is not None else 0
        return int(found.device_prefix_len + on_host)

    def _match(self, prompt: Int64Prompt, taken: StepTimes) -> tuple[Any, Any]:
        """Return the match and its slots."""
        cache, whole, extra_key = self._cache, prompt.whole, prompt.extra_key
        # SGLang's engine limits the key, which costs a timed copy; here the key has no limit.
        cut = whole if prompt.reusable == len(whole) else whole[: prompt.reusable]
        params = self._match_params(key=self._key(cut, extra_key))
        collect, root = cache.tree_core.collect_full_device_indices, cache.root_node_handle
        began = perf_counter_ns()
        found = cache.match_prefix(params)
        prefix = collect(found.last_device_node, root(extra_key))
        taken.match.append(perf_counter_ns() - began)
        return found, prefix

    def _load(
        self,
        found: Any,  # noqa: ANN401 # A match.
        prefix: Any,  # noqa: ANN401 # A tensor.
        extra_key: str | None,
        taken: StepTimes,
    ) -> tuple[Any, Any]:
        """Load what is on the host only; returns the node that ends the prefix, and its slots."""
        node, before = found.last_device_node, len(prefix)
        if not (found.host_hit_length or found.swa_host_hit_length):
            return node, prefix
        node = load_back(self._cache, found, taken)
        if node != found.last_device_node:
            core, root = self._cache.tree_core, self._cache.root_node_handle
            began = perf_counter_ns()
            prefix = core.collect_full_device_indices(node, root(extra_key))
            taken.load[-1] += perf_counter_ns() - began
            self.loaded_tokens += len(prefix) - before
        return node, prefix

    def _make_room(self, missing: int, taken: StepTimes) -> None:
        spare = self.spare_pages * self._cell.page_size
        short = shortage(missing, self._full.available_size(), spare)
        short_swa = shortage(missing, self._swa.available_size()) if self._swa is not None else 0
        if short or short_swa:
            params = self._evict_params(num_tokens=short, swa_num_tokens=short_swa)
            began = perf_counter_ns()
            self._cache.evict(params)
            taken.evict.append(perf_counter_ns() - began)

    def _allocate(self, missing: int, taken: StepTimes) -> Any:  # noqa: ANN401 # A tensor.
        began = perf_counter_ns()
        if self._swa is None or self._cell.page_size == 1:
            slots = self._allocator.alloc(missing)
        else:
            # SGLang allocates both at once only for pages of one token.
            slots = self._full.alloc(missing)
            self._allocator.set_full_to_swa_mapping(slots, self._swa.alloc(missing))
        taken.allocate.append(perf_counter_ns() - began)
        if slots is None:
            raise UsageError(f"SGLang has no room for {missing} tokens")
        return slots

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events since the last call."""
        began = perf_counter_ns()
        events = self._cache.take_events()
        taken.events.append(perf_counter_ns() - began)
        stored = sum(len(each.block_hashes) for each in events if hasattr(each, "token_ids"))
        pages = sum(len(getattr(each, "block_hashes", ())) for each in events)
        return EventCounts(stored, pages - stored)


def make_allocator(cell: BenchCell) -> Any:  # noqa: ANN401 # SGLang's.
    """Make SGLang's allocator of a cell, and the pools behind it."""
    torch, page_size = import_module("torch"), cell.page_size
    tiny = {
        "page_size": page_size,
        "dtype": torch.float16,
        "head_num": 1,
        "head_dim": 1,
        "device": cell.device,
        "enable_memory_saver": False,
    }
    full = cell.pool_tokens // page_size * page_size
    common = (torch.float16, cell.device)
    if cell.window_tokens:
        swa = cell.swa_tokens // page_size * page_size
        layers = {"swa_attention_layer_ids": [1], "full_attention_layer_ids": [0]}
        pool = _named("swa_memory_pool", "SWAKVPool")(size=full, size_swa=swa, **layers, **tiny)
        make = _named("allocator.swa", "SWATokenToKVPoolAllocator")
        return make(full, swa, page_size, *common, pool, need_sort=False)
    pool = _named("memory_pool", "MHATokenToKVPool")(full, layer_num=1, **tiny)
    if page_size == 1:
        make = _named("allocator.token", "TokenToKVPoolAllocator")
        return make(full, *common, pool, need_sort=False)
    make = _named("allocator.paged", "PagedTokenToKVPoolAllocator")
    return make(full, page_size, *common, pool, need_sort=False)


def _cache(allocator: Any, cell: BenchCell, core: str) -> Any:  # noqa: ANN401 # SGLang's, both.
    server_args = import_module("sglang.srt.server_args")
    arguments = server_args.ServerArgs(model_path="dummy", page_size=cell.page_size)
    # Otherwise SGLang reads this from a model's configuration.
    arguments._mamba_cache_chunk_size = max(64, cell.page_size)  # noqa: SLF001
    server_args.set_global_server_args_for_scheduler(arguments)
    kinds = _named("unified_cache.component_type", "ComponentType")
    params = _named("cache_init_params", "CacheInitParams")(
        disable=False,
        req_to_token_pool=_named("memory_pool", "ReqToTokenPool")(1, 1, cell.device, False),
        token_to_kv_pool_allocator=allocator,
        page_size=cell.page_size,
        enable_kv_cache_events=cell.events,
        sliding_window_size=cell.window_tokens or None,
        tree_components=(kinds.FULL, kinds.SWA) if cell.window_tokens else (kinds.FULL,),
        tree_core_backend=core,
    )
    return _named("unified_radix_cache", "UnifiedRadixCache")(params)


def make_driver(cell: BenchCell, options: Mapping[str, str]) -> Driver[Int64Prompt]:
    """Make a driver of the core in the option `core`. Raises: ImportError, UsageError."""
    return SGLangDriver(cell, options["core"])
