"""Makes an SGLang cache with pools of the case's size.

Every pool has one layer with one head, and as many bytes per token as the case's payload needs.
SGLang makes host pools larger than device pools; here they are made so and then shrunk to the
case's size.

SGLang counts its pools in tokens. A slot of the spec is a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from logging import CRITICAL, getLogger
from types import SimpleNamespace

from attrs import frozen

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.conformance.engines.sglang.peer_types import Kind, Tensor
from kvcanon.conformance.engines.sglang.pools import SlotPool, pages_of_allocator, pages_of_slots
from kvcanon.conformance.engines.sglang.release import called, has, named
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component
from kvcanon.spec.types import Medium as MediumOf

DEVICE = "cpu"
"""Where pools and slots of the device are; a test on a GPU sets another."""
NOT_MADE = ("Unsupported layout", "No matching HiCache strategy", "currently only supports")
"""Errors of SGLang's releases about a host tier that they do not support."""
LAYERS, PAGES = "layer_first", "page_first_direct"
"""Layouts of host pools: layer by layer, or page by page."""
KIND_NAMES = {FULL: "FULL", SWA: "SWA", MAMBA: "MAMBA"}
HOST_NAMES = {FULL: "kv", SWA: "swa", MAMBA: "mamba"}
"""SGLang's names of the host pools."""


@frozen(eq=False)
class World:
    """An SGLang cache with its allocators and pools."""

    config: CacheConfig
    cache: EngineObject
    allocator: EngineObject
    """The allocator of full slots, and of window slots if there are any."""
    states: EngineObject
    """The allocator of mamba states; None without mamba."""
    pools: Mapping[tuple[Component, MediumOf], SlotPool]


def require_bytes(config: CacheConfig) -> None:
    """Check that payloads divide evenly by tokens, keys and values. Raises: BadArgument."""
    if config.slot_bytes % (2 * config.page_size):
        raise BadArgument(
            "slot_bytes",
            f"is {config.slot_bytes}; it must be a multiple of {2 * config.page_size}, as half of "
            "it is keys and half is values",
        )


def make_world(config: CacheConfig, class_name: str, options: Mapping[str, object]) -> World:
    """Make an empty cache of a class. Raises: UsageError, BadArgument."""
    require_bytes(config)
    prepare()
    arguments = _server_args(config)
    named("set_global_server_args_for_scheduler")(arguments)
    requests, states = _requests(config)
    allocator, device = _device_pools(config, requests)
    if MAMBA in config.components:
        device[MAMBA] = _state_pool(config, requests, states)
    kinds = kinds_of(config)
    params = called(
        named("CacheInitParams"),
        disable=False,
        req_to_token_pool=requests,
        token_to_kv_pool_allocator=allocator,
        page_size=config.page_size,
        enable_kv_cache_events=config.events,
        eviction_policy=config.eviction_policy.value,
        sliding_window_size=config.window_tokens,
        tree_components=tuple(kinds.values()),
        **options,
    )
    cache = called(named(class_name), params=params, server_args=arguments)
    pools = {(component, GPU): pool for component, pool in device.items()}
    if config.host_tier:
        if hasattr(cache, "init_hicache"):
            _add_host_tier(cache, arguments, params)
        elif not hasattr(cache, "cache_controller"):
            raise BadArgument("config", f"asks for a host tier; {class_name} has none here")
        pools |= {(each, CPU): pool for each, pool in _host_pools(config, cache).items()}
        threshold = config.load_back_threshold_pages * config.page_size
        cache.load_back_threshold = threshold
    return World(config, cache, allocator, states, pools)


def _add_host_tier(cache: EngineObject, arguments: object, params: object) -> None:
    """Give a cache its host pools. Raises: BadArgument: the pool needs a GPU."""
    # The refusal says what SGLang logs here.
    getLogger("sglang").setLevel(CRITICAL)
    try:
        cache.init_hicache(arguments, params)
    except AssertionError as error:
        words = str(error)
        if any(said in words for said in NOT_MADE):
            raise BadArgument(
                "config", f"asks for a host tier that is not made: {words}"
            ) from error
        raise


def kinds_of(config: CacheConfig) -> Mapping[Component, Kind]:
    """SGLang's names of the components of a cache; earlier releases name none."""
    if not has("ComponentType"):
        return {each: KIND_NAMES[each] for each in config.components}
    kinds = named("ComponentType")
    return {each: getattr(kinds, KIND_NAMES[each]) for each in config.components}


def _server_args(config: CacheConfig) -> EngineObject:
    arguments: dict[str, object] = {"model_path": "dummy", "page_size": config.page_size}
    if config.host_tier:
        arguments |= {
            "enable_hierarchical_cache": True,
            "hicache_io_backend": "direct",
            "hicache_mem_layout": _host_layout(config),
            "hicache_write_policy": config.write_policy.value,
            "hicache_ratio": _host_ratio(config),
        }
    made = named("ServerArgs")(**arguments)
    # SGLang would read this from the configuration of a model.
    made._mamba_cache_chunk_size = max(64, config.page_size)  # noqa: SLF001
    return made


def _host_layout(config: CacheConfig) -> str:
    """The layout of host pools: by layer; by page for mamba states of later releases."""
    return PAGES if MAMBA in config.components and has("HostKVCache") else LAYERS


def _host_ratio(config: CacheConfig) -> float:
    """The ratio of host to device pool sizes that is enough for every host pool of the case."""
    ratios = [
        config.host_slots[component] / max(1, config.device_slots[component])
        for component in config.components
    ]
    return 1.0 + max(ratios)


def _device_pools(
    config: CacheConfig, requests: EngineObject
) -> tuple[EngineObject, dict[Component, SlotPool]]:
    """The allocator of a cache, and its pools of pages."""
    torch, page_size = import_module("torch"), config.page_size
    full, swa = (config.device_slots[each] * page_size for each in (FULL, SWA))
    tiny: dict[str, object] = {
        "page_size": page_size,
        "dtype": torch.uint8,
        "head_num": 1,
        "head_dim": config.slot_bytes // (2 * page_size),
        "device": DEVICE,
        "enable_memory_saver": False,
    }
    arguments = {
        "page_size": page_size,
        "dtype": torch.uint8,
        "device": DEVICE,
        "need_sort": False,
    }
    if SWA in config.components:
        memory = called(
            named("SWAKVPool"),
            size=full,
            size_swa=swa,
            full_attention_layer_ids=[0],
            swa_attention_layer_ids=[1],
            enable_kvcache_transpose=False,
            **tiny,
        )
        make = named("SWATokenToKVPoolAllocator")
        allocator = called(make, size=full, size_swa=swa, kvcache=memory, **arguments)
        return allocator, {
            FULL: _page_pool(config, FULL, allocator.full_attn_allocator, memory.full_kv_pool),
            SWA: _page_pool(config, SWA, allocator.swa_attn_allocator, memory.swa_kv_pool),
        }
    if MAMBA in config.components:
        hybrid = called(
            named("HybridLinearKVPool"),
            size=full,
            full_attention_layer_ids=[0],
            enable_kvcache_transpose=False,
            mamba_pool=requests.mamba_pool,
            **tiny,
        )
        memory, inner = hybrid, hybrid.full_kv_pool
    else:
        memory = inner = called(named("MHATokenToKVPool"), size=full, layer_num=1, **tiny)
    kind = "TokenToKVPoolAllocator" if page_size == 1 else "PagedTokenToKVPoolAllocator"
    allocator = called(named(kind), size=full, kvcache=memory, **arguments)
    return allocator, {FULL: _page_pool(config, FULL, allocator, inner)}


def _page_pool(
    config: CacheConfig, component: Component, allocator: EngineObject, memory: EngineObject
) -> SlotPool:
    return SlotPool(
        capacity=config.device_slots[component],
        page_size=config.page_size,
        padding=1,
        free_pages=pages_of_allocator(allocator),
        planes=(memory.k_buffer[0], memory.v_buffer[0]),
    )


def _requests(config: CacheConfig) -> tuple[EngineObject, EngineObject]:
    """The pool of requests, which holds the mamba states, and the allocator of the states."""
    if MAMBA not in config.components:
        make = named("ReqToTokenPool")
        pool = called(make, size=1, max_context_len=1, device=DEVICE, enable_memory_saver=False)
        return pool, None
    torch, half = import_module("torch"), config.slot_bytes // 2
    shape = SimpleNamespace(conv=[(half,)], temporal=(half,))
    dtype = SimpleNamespace(conv=torch.uint8, temporal=torch.uint8)
    pool = called(
        named("HybridReqToTokenPool"),
        size=1,
        mamba_size=config.device_slots.mamba,
        mamba_spec_state_size=1,
        max_context_len=1,
        device=DEVICE,
        enable_memory_saver=False,
        cache_params=SimpleNamespace(shape=shape, dtype=dtype, layers=[1]),
        mamba_layer_ids=[1],
        enable_mamba_extra_buffer=False,
        speculative_num_draft_tokens=None,
    )
    return pool, getattr(pool, "mamba_allocator", pool.mamba_pool)


def _state_pool(config: CacheConfig, requests: EngineObject, states: EngineObject) -> SlotPool:
    memory = requests.mamba_pool.mamba_cache
    return SlotPool(
        capacity=config.device_slots.mamba,
        page_size=1,
        padding=1,
        free_pages=pages_of_slots(states, 1),
        planes=(memory.conv[0][0], memory.temporal[0]),
    )


def _host_pools(config: CacheConfig, cache: EngineObject) -> dict[Component, SlotPool]:
    """The host pools, shrunk to the case's size."""
    pools: dict[Component, SlotPool] = {}
    memories = _host_memories(cache)
    for component in config.components:
        pool = memories[HOST_NAMES[component]]
        page_size = 1 if component is MAMBA else config.page_size
        pool.size = config.host_slots[component] * page_size
        pool.clear()
        pools[component] = SlotPool(
            capacity=config.host_slots[component],
            page_size=page_size,
            padding=0,
            free_pages=pages_of_slots(pool, page_size),
            planes=_host_planes(pool, component),
        )
    return pools


def _host_memories(cache: EngineObject) -> Mapping[str, EngineObject]:
    """The host pools of a cache by name; older caches have one, for full data."""
    memory = cache.cache_controller.mem_pool_host
    if not hasattr(memory, "entry_map"):
        return {HOST_NAMES[FULL]: memory}
    return {str(name.value): entry.host_pool for name, entry in memory.entry_map.items()}


def _host_planes(pool: EngineObject, component: Component) -> tuple[Tensor, ...]:
    if component is MAMBA:
        return _rows(pool, pool.conv_buffer[0]), _rows(pool, pool.temporal_buffer)
    return _rows(pool, pool.kv_buffer[0]), _rows(pool, pool.kv_buffer[1])


def _rows(pool: EngineObject, buffer: Tensor) -> Tensor:
    """The rows of the only layer, one token each, in either layout."""
    return buffer[:, 0, 0] if pool.layout == PAGES else buffer[0]
