"""A small cache of SGLang's on a CPU, for the scripts beside this file.

It uses SGLang's public objects only, and no kvcanon. The pools have one layer with one head and a
byte or two per token. `kvcanon lab peers make sglang==VERSION --into DIR` makes an environment that
has SGLang and, for what only a GPU has, stand-ins; a script runs there as

    DIR/sglang-0.5.13/bin/python docs/findings/sglang/removes_first_page_first.py

and, where the release has a Rust core, with `rust` behind it on that. With `radix` or `swa-radix`
behind it the cache is a RadixCache or a SWARadixCache, with `hi-radix` a HiRadixCache.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import warnings
from array import array
from importlib import import_module
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, TypeAlias

os.environ.setdefault("HF_HUB_OFFLINE", "1")
RELEASE = version("sglang")
if RELEASE < "0.5.20":
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")

warnings.filterwarnings("ignore")
import torch  # noqa: E402 # SGLang reads the variables above when it is imported.

Theirs: TypeAlias = Any
"""An object of SGLang's."""
_MEM_CACHE = "sglang.srt.mem_cache"


def _named(name: str, *modules: str) -> Theirs:
    """Find a name in the first module that has it; modules differ by release."""
    for module in modules:
        try:
            return getattr(import_module(f"{_MEM_CACHE}.{module}"), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    raise SystemExit(f"SGLang {RELEASE} has no {name}")


def _called(function: Theirs, **arguments: object) -> Theirs:
    """Call a function with those arguments that this release takes."""
    taken = inspect.signature(function).parameters
    return function(**{name: value for name, value in arguments.items() if name in taken})


CORE = "rust" if "rust" in sys.argv[1:] else "python"
_CLASSES = {
    "radix": ("RadixCache", "radix_cache"),
    "swa-radix": ("SWARadixCache", "swa_radix_cache"),
    "hi-radix": ("HiRadixCache", "hiradix_cache"),
}
CLASS = next(
    (_CLASSES[each] for each in sys.argv[1:] if each in _CLASSES),
    ("UnifiedRadixCache", "unified_radix_cache"),
)
"""Which cache, and the module that it is in."""
_POOLS = ("memory_pool", "swa_memory_pool")
_ALLOCATORS = ("allocator.token", "allocator.paged", "allocator.swa", "allocator", *_POOLS)
_BASE = "base_prefix_cache"


class Small:
    """A cache, and the calls that a scheduler makes. Slots are numbered from 1."""

    def __init__(
        self,
        tokens: int,
        *,
        page_size: int = 1,
        window: int | None = None,
        window_tokens: int | None = None,
        states: int = 0,
        host_tokens: int = 0,
        host_window_tokens: int | None = None,
        write_policy: str = "write_through",
        eviction_policy: str = "lru",
        events: bool = True,
    ) -> None:
        if CLASS[0] == "HiRadixCache" and not host_tokens:
            # It always has a host tier; this policy leaves on the device what came once.
            host_tokens, write_policy = 2 * tokens, "write_through_selective"
        self.page_size, self.window, self.states = page_size, window, states
        self.window_tokens = window_tokens or tokens
        kinds = _named("ComponentType", "unified_cache.component_type", "unified_cache_components")
        components = [kinds.FULL]
        components += [kinds.SWA] if window is not None else []
        components += [kinds.MAMBA] if states else []
        arguments = self._server_args(write_policy if host_tokens else None)
        requests = self._requests(states)
        self.allocator, self.memory = self._pools(tokens, requests)
        params = _called(
            _named("CacheInitParams", "cache_init_params"),
            disable=False,
            req_to_token_pool=requests,
            token_to_kv_pool_allocator=self.allocator,
            page_size=page_size,
            enable_kv_cache_events=events,
            eviction_policy=eviction_policy,
            sliding_window_size=window,
            tree_components=tuple(components),
            tree_core_backend=CORE,
        )
        self.state_slots = getattr(
            requests, "mamba_allocator", getattr(requests, "mamba_pool", None)
        )
        if host_tokens:
            _prepare_host()
        self.cache = _called(_named(*CLASS), params=params, server_args=arguments)
        if host_tokens:
            sizes = {"kv": host_tokens, "swa": host_window_tokens or host_tokens, "mamba": 8}
            for name, pool in self._host_pools(arguments, params):
                pool.size = sizes[name]
                pool.clear()
            self.cache.load_back_threshold = 0
        made = type(getattr(self.cache, "tree_core", self.cache)).__name__
        if CORE == "rust" and not made.startswith("Rust"):
            raise SystemExit(f"SGLang {RELEASE} made a {made}: it has no Rust core here")
        self.cache.take_events()

    def _host_pools(self, arguments: Theirs, params: Theirs) -> list[tuple[str, Theirs]]:
        if CLASS[0] == "HiRadixCache":
            return [("kv", self.cache.token_to_kv_pool_host)]
        try:
            self.cache.init_hicache(arguments, params)
        except AssertionError as error:
            print(f"SGLang {RELEASE} makes no such host tier here: {error}")
            sys.exit(2)
        entries = self.cache.cache_controller.mem_pool_host.entry_map
        return [(name.value, entry.host_pool) for name, entry in entries.items()]

    def _server_args(self, write_policy: str | None) -> Theirs:
        place = import_module("sglang.srt.server_args")
        # Later releases have mamba states on the host by pages only.
        by_pages = self.states and RELEASE >= "0.5.14"
        layout = "page_first_direct" if by_pages else "layer_first"
        hierarchical: dict[str, object] = {
            "enable_hierarchical_cache": True,
            "hicache_io_backend": "direct",
            "hicache_mem_layout": layout,
            "hicache_write_policy": write_policy,
            "hicache_ratio": 4.0,
        }
        more = hierarchical if write_policy else {}
        made = place.ServerArgs(model_path="dummy", page_size=self.page_size, **more)
        # SGLang would read this from the configuration of a model.
        made._mamba_cache_chunk_size = max(64, self.page_size)  # noqa: SLF001
        place.set_global_server_args_for_scheduler(made)
        return made

    def _requests(self, states: int) -> Theirs:
        usual = {"size": 1, "max_context_len": 1, "device": "cpu", "enable_memory_saver": False}
        if not states:
            return _called(_named("ReqToTokenPool", *_POOLS), **usual)
        shape = SimpleNamespace(conv=[(1,)], temporal=(1,))
        dtype = SimpleNamespace(conv=torch.uint8, temporal=torch.uint8)
        return _called(
            _named("HybridReqToTokenPool", *_POOLS),
            **usual,
            mamba_size=states,
            mamba_spec_state_size=1,
            cache_params=SimpleNamespace(shape=shape, dtype=dtype, layers=[1]),
            mamba_layer_ids=[1],
            enable_mamba_extra_buffer=False,
            speculative_num_draft_tokens=None,
        )

    def _pools(self, tokens: int, requests: Theirs) -> tuple[Theirs, Theirs]:
        tiny: dict[str, object] = {
            "page_size": self.page_size,
            "dtype": torch.uint8,
            "head_num": 1,
            "head_dim": 1,
            "device": "cpu",
            "enable_memory_saver": False,
            "enable_kvcache_transpose": False,
            "size": tokens,
        }
        asked = {**tiny, "need_sort": False}
        if self.window is not None:
            layers = {"full_attention_layer_ids": [0], "swa_attention_layer_ids": [1]}
            pool = _called(
                _named("SWAKVPool", *_POOLS[::-1]), **tiny, **layers, size_swa=self.window_tokens
            )
            make = _named("SWATokenToKVPoolAllocator", *_ALLOCATORS)
            return _called(
                make, **asked, size_swa=self.window_tokens, kvcache=pool
            ), pool.full_kv_pool
        if self.states:
            layers = {"full_attention_layer_ids": [0], "mamba_pool": requests.mamba_pool}
            pool = _called(_named("HybridLinearKVPool", *_POOLS), **tiny, **layers)
            inner = pool.full_kv_pool
        else:
            pool = inner = _called(_named("MHATokenToKVPool", *_POOLS), **tiny, layer_num=1)
        kind = "TokenToKVPoolAllocator" if self.page_size == 1 else "PagedTokenToKVPoolAllocator"
        return _called(_named(kind, *_ALLOCATORS), **asked, kvcache=pool), inner

    # What a scheduler does.

    def key(self, tokens: list[int], extra_key: str | None = None) -> Theirs:
        """A prompt as SGLang takes it."""
        return _named("RadixKey", "radix_cache")(array("q", tokens), extra_key)

    def allocate(self, count: int) -> Theirs:
        """Allocate slots for tokens, and the window slots that they map to."""
        if self.window is None:
            return self.allocator.alloc(count)
        full = self.allocator.full_attn_allocator.alloc(count)
        swa = self.allocator.swa_attn_allocator.alloc(count)
        self.allocator.set_full_to_swa_mapping(full, swa)
        return full

    def insert(
        self,
        tokens: list[int],
        *,
        reused: Theirs = None,
        window_gone: int = 0,
        extra_key: str | None = None,
        state: Theirs = None,
        priority: int = 0,
    ) -> Theirs:
        """Insert a prompt of which a request has reused a prefix, whose slots are given.

        The window data of the first `window_gone` tokens has left the request's window.
        """
        start = 0 if reused is None else len(reused)
        fresh = self.allocate(len(tokens) - start)
        if window_gone > start:
            self.allocator.free_swa(fresh[: window_gone - start])
        value = fresh if reused is None else torch.cat([reused, fresh])
        evicted = {"component_evicted_seqlens": {}}
        if self.window is not None:
            kinds = _named(
                "ComponentType", "unified_cache.component_type", "unified_cache_components"
            )
            evicted = {"component_evicted_seqlens": {kinds.SWA: window_gone}}
        params = _called(
            _named("InsertParams", _BASE),
            key=self.key(tokens, extra_key),
            value=value,
            prev_prefix_len=start,
            swa_evicted_seqlen=window_gone,
            mamba_value=state,
            inserted_len=0,
            priority=priority,
            **evicted,
        )
        answer = self.cache.insert(params)
        if CLASS[0] in {"RadixCache", "HiRadixCache"}:
            # SGLang leaves this to the scheduler.
            self.allocator.free(value[start : answer.prefix_len])
        return answer

    def match(self, tokens: list[int], extra_key: str | None = None) -> Theirs:
        """Match a prompt."""
        params = _named("MatchPrefixParams", _BASE)(key=self.key(tokens, extra_key))
        return self.cache.match_prefix(params)

    def slots(self, found: Theirs) -> Theirs:
        """The device slots of a match."""
        if hasattr(found, "device_indices"):
            return found.device_indices
        return self.cache.path_device_indices(found.last_device_node)

    def hit(self, tokens: list[int], extra_key: str | None = None) -> int:
        """How many tokens of a prompt are found on the device."""
        return len(self.slots(self.match(tokens, extra_key)))

    def evict(self, tokens: int = 0, window_tokens: int = 0, states: int = 0) -> Theirs:
        """Evict at least these counts from the device."""
        params = _named("EvictParams", _BASE)
        return self.cache.evict(
            params(num_tokens=tokens, swa_num_tokens=window_tokens, mamba_num=states)
        )

    def load(self, found: Theirs) -> None:
        """Load what a match found on the host only, and wait."""
        padding = self.state_slots and torch.tensor(0)
        # Earlier releases have one count for both kinds of host hits.
        window_hit = getattr(found, "swa_host_hit_length", 0)
        request = SimpleNamespace(
            last_node=found.last_device_node,
            prefix_indices=(),
            swa_host_hit_length=window_hit,
            mamba_host_hit_length=getattr(found, "mamba_host_hit_length", 0),
            mamba_pool_idx=padding,
            kv=SimpleNamespace(mamba_pool_idx=padding, holds_mamba=bool(self.states)),
        )
        params = _called(
            _named("InitLoadBackParams", _BASE),
            best_match_node=found.best_match_node,
            host_hit_length=max(found.host_hit_length, window_hit),
            mem_quota=None,
            req=request,
        )
        self.cache.init_load_back(params)
        self.cache.ready_to_load_host_cache()
        self.wait()

    def events(self) -> list[tuple[str, list[int], int | None, str | None]]:
        """The events since the last call: kind, hashes, parent, medium."""
        return [
            (
                type(each).__name__,
                list(getattr(each, "block_hashes", ())),
                getattr(each, "parent_block_hash", None),
                getattr(each, "medium", None),
            )
            for each in self.cache.take_events()
        ]

    def free_tokens(self) -> int:
        """Free full slots."""
        return (
            self.allocator.full_available_size()
            if self.window is not None
            else self.allocator.available_size()
        )

    def wait(self) -> None:
        """Take the acknowledgements of all copies."""
        for _ in range(100):
            self.cache.check_hicache_events()


def _prepare_host() -> None:
    """Without a GPU, use host memory that is not pinned, and a copy by indices."""
    logging.getLogger("sglang").setLevel(logging.CRITICAL)
    groups = torch.distributed
    if CLASS[0] == "HiRadixCache" and not groups.is_initialized():
        # SGLang reads the number of processes that share a tensor.
        groups.init_process_group("gloo", store=groups.HashStore(), rank=0, world_size=1)
    kernels = import_module("sgl_kernel.kvcacheio")
    for place in ("memory_pool_host", "host_memory", "pool_host.base", "pool_host.common",
                  "pool_host.mamba", "pool_host.mha", "pool_host.mla"):  # fmt: skip
        try:
            module = import_module(f"{_MEM_CACHE}.{place}")
        except ModuleNotFoundError:
            continue
        for name in ("transfer_kv_direct", "transfer_kv_all_layer_direct_lf_pf",
                     "transfer_kv_per_layer_direct_pf_lf"):  # fmt: skip
            setattr(module, name, getattr(kernels, name))
        by_device = getattr(module, "ALLOC_MEMORY_FUNCS", None)
        if by_device is not None:
            allocate = by_device["cpu"]
            by_device["cpu"] = lambda *a, _do=allocate, **k: _do(*a, **{**k, "pin_memory": False})
