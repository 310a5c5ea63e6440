"""The adapters of RadixCache, SWARadixCache and HiRadixCache: their profiles and offers.

Not every release has all three. If a class is missing, the check says so.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.engines.sglang.cpu_stand_ins import be_alone
from kvcanon.conformance.engines.sglang.factory import make_world
from kvcanon.conformance.engines.sglang.hi_radix import (
    HierarchicalCache,
    HierarchicalTree,
    forget_at_exit,
)
from kvcanon.conformance.engines.sglang.limits import LIMITS, MOST_SLOTS
from kvcanon.conformance.engines.sglang.radix import RadixCache, RadixTree, window_tree_of
from kvcanon.conformance.engines.sglang.release import named, takes, version
from kvcanon.conformance.engines.sglang.unified import UnifiedCache
from kvcanon.conformance.protocol.adapter import ONE_LOG, Adapter, Offer
from kvcanon.spec.config import CacheConfig, Profile, StoreMoment
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.types import EvictionPolicy, WritePolicy

version()
RADIX_PROFILE = Profile(
    split_keeps_recency=False,
    hits_once_a_request=takes(named("InsertParams"), "inserted_len"),
    limits=LIMITS,
)
WINDOW_PROFILE = Profile(
    window_lock_exact=False,
    split_keeps_recency=False,
    heals_in_place=False,
    tombstone_leaves=False,
    uncovered_tombstones_stay=False,
    limits=LIMITS,
)
HIERARCHICAL_PROFILE = evolve(
    RADIX_PROFILE,
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
)


def make_radix(config: CacheConfig) -> RadixCache:
    """Make a RadixCache. Raises: BadArgument."""
    if config.window_tokens is not None or config.mamba or config.host_tier:
        raise BadArgument("config", "asks for more than full data on the device")
    world = make_world(config, "RadixCache", {})
    return RadixCache(world, RADIX_PROFILE, RadixTree.of(world))


def make_window(config: CacheConfig) -> UnifiedCache:
    """Make a SWARadixCache. Raises: BadArgument, UsageError."""
    if config.window_tokens is None or config.mamba or config.host_tier:
        raise BadArgument("config", "asks for other than full and window data on the device")
    world = make_world(config, "SWARadixCache", {})
    return UnifiedCache(world, WINDOW_PROFILE, window_tree_of(world))


def make_hierarchical(config: CacheConfig) -> HierarchicalCache:
    """Make a HiRadixCache. Raises: BadArgument, UsageError.

    It always has a host tier: without a host tier SGLang makes a RadixCache.
    """
    if config.window_tokens is not None or config.mamba or not config.host_tier:
        raise BadArgument("config", "asks for other than full data on the device and on the host")
    be_alone()
    world = make_world(config, "HiRadixCache", {})
    forget_at_exit(world.cache)
    return HierarchicalCache(world, HIERARCHICAL_PROFILE, HierarchicalTree.of(world))


RADIX_OFFER = Offer(
    event_logs=ONE_LOG,
    windows_tokens=(None,),
    mamba=(False,),
    bigram=(False,),
    write_policies=(WritePolicy.NONE,),
    namespaces=False,
    most_slots=MOST_SLOTS,
)
WINDOW_OFFER = evolve(
    RADIX_OFFER,
    windows_tokens=(1, 2, 3, 4, 5, 8),
    eviction_policies=(EvictionPolicy.LRU,),
)
HIERARCHICAL_OFFER = evolve(
    RADIX_OFFER,
    write_policies=tuple(each for each in WritePolicy if each is not WritePolicy.NONE),
)
RADIX = Adapter("sglang-radix", make_radix, RADIX_OFFER, RADIX_PROFILE)
WINDOW = Adapter(
    "sglang-swa-radix", make_window, WINDOW_OFFER, WINDOW_PROFILE, frozenset({Need.AGES, Need.HITS})
)
HIERARCHICAL = Adapter(
    "sglang-hi-radix", make_hierarchical, HIERARCHICAL_OFFER, HIERARCHICAL_PROFILE
)
