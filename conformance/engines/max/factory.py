"""Makes MAX's managers with one page for each slot of a case, in CPU memory.

The paged manager has full attention only, and a pool of pages that are numbered from 0. The jenga
manager has a leaf for each component: full, window, and state. Its leaves share one slab, which is
cut into huge blocks, and huge block 0 is the null block. Here a page of each leaf, and a state, has
the same size, so that a huge block is one page of any leaf, and the pages are numbered from 1.

MAX's `window_size` counts the tokens that a token sees, itself included. The spec does not count
the token itself, so its window is one less.
"""

from __future__ import annotations

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component

MAX = InstalledNames(
    package="max",
    engine="MAX",
    release="max==26.7.0",
    modules={
        "DType": "max.dtype",
        "DeviceRef": "max.graph",
        "InsufficientBlocksError": "max.pipelines.kv_cache",
        "JengaKVCacheManager": "max.pipelines.kv_cache",
        "MHAKVCacheParams": "max.nn.kv_cache",
        "MultiKVCacheParams": "max.nn.kv_cache",
        "PagedKVCacheManager": "max.pipelines.kv_cache",
        "RecurrentStateParams": "max.nn.kv_cache.cache_params",
        "RecurrentStateRegion": "max.nn.kv_cache.cache_params",
        "RequestID": "max.pipelines.modeling.types",
        "TextContext": "max.pipelines.context",
        "TokenBuffer": "max.pipelines.context",
    },
)
LEAVES: dict[Component, str] = {FULL: "full", SWA: "window", MAMBA: "state"}
"""The names of the jenga manager's leaves; MAX adds the name of a leaf's group to them."""
MOST_REQUESTS = 1024
"""Rows of the tables that a manager keeps for a batch; nothing here makes a batch."""
LONGEST_TOKENS = 1 << 23
"""The longest prompt of a case, where no prompt can be too long for the pool."""
STATES_OF_A_REQUEST = 2
"""The state that it computes in, and the one that its next checkpoint will be copied to."""
_HEAD_BYTES = 8


def make_paged(config: CacheConfig) -> EngineObject:
    """Make an empty PagedKVCacheManager. Raises: UsageError."""
    return MAX["PagedKVCacheManager"](
        params=_attention(config, None),
        session=None,  # The manager keeps no session.
        total_num_pages=config.capacity(FULL, GPU),
        max_batch_size=MOST_REQUESTS,
    )


def make_jenga(config: CacheConfig) -> EngineObject:
    """Make an empty JengaKVCacheManager.

    Raises: UsageError. BadArgument: there are too few states for a single request.
    """
    if config.mamba and config.device_slots.mamba < STATES_OF_A_REQUEST:
        raise BadArgument(
            "device_slots.mamba",
            f"is {config.device_slots.mamba}; a request needs {STATES_OF_A_REQUEST} states",
        )
    leaves = {LEAVES[FULL]: _attention(config, None)}
    if config.window_tokens is not None:
        leaves[LEAVES[SWA]] = _attention(config, config.window_tokens + 1)
    if config.mamba:
        leaves[LEAVES[MAMBA]] = _state(config)
    params = MAX["MultiKVCacheParams"].from_params(leaves)
    slots = sum(config.capacity(each, GPU) for each in config.components)
    slab_bytes = (slots + 1) * _page_bytes(config)
    manager = MAX["JengaKVCacheManager"]
    longest = manager.max_seq_len_fitting_in_cache(params, slab_bytes)
    return manager.create(
        params=params,
        available_bytes=slab_bytes,
        max_batch_size=MOST_REQUESTS,
        max_seq_len=LONGEST_TOKENS if longest is None else longest,
    )


def _attention(config: CacheConfig, window_size: int | None) -> EngineObject:
    return MAX["MHAKVCacheParams"](
        dtype=MAX["DType"].uint8,
        n_kv_heads=1,
        head_dim=_HEAD_BYTES,
        num_layers=1,
        page_size=config.page_size,
        window_size=window_size,
        devices=[MAX["DeviceRef"].CPU()],
        enable_prefix_caching=True,
    )


def _state(config: CacheConfig) -> EngineObject:
    region = MAX["RecurrentStateRegion"](
        leaf_id=LEAVES[MAMBA],
        num_layers=1,
        row_shape=(_page_bytes(config),),
        dtype=MAX["DType"].uint8,
    )
    return MAX["RecurrentStateParams"](
        regions=(region,), devices=[MAX["DeviceRef"].CPU()], enable_prefix_caching=True
    )


def _page_bytes(config: CacheConfig) -> int:
    """The bytes of a page: keys and values of one head for each of its tokens."""
    return 2 * config.page_size * _HEAD_BYTES
