"""The adapters of UnifiedRadixCache, with the profile and the offer of the installed release.

A profile describes a release. It excuses nothing.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.engines.sglang.factory import World, make_world
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.keys import Keys
from kvcanon.conformance.engines.sglang.limits import LIMITS, MOST_SLOTS
from kvcanon.conformance.engines.sglang.release import has, named, version
from kvcanon.conformance.engines.sglang.rust_core import NativeCache, NativeTree
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import ONE_LOG, Adapter, Offer
from kvcanon.spec.config import CacheConfig, MambaRefresh, Profile, StoreMoment
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy

FLAT = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    split_keeps_recency=False,
    mamba_refresh=MambaRefresh.PATH,
    hits_once_a_request=False,
    heals_in_place=False,
    tombstone_leaves=False,
    host_order_by_use=False,
    limits=LIMITS,
)
"""The profile of releases whose cache is one object."""
CORED = evolve(
    FLAT,
    mamba_refresh=MambaRefresh.NODE,
    hits_once_a_request=True,
    tombstone_leaves=True,
    whole_nodes_on_host=False,
    locks_hold_host_copies=False,
)
"""The profile of releases whose cache drives a separate tree core."""
PROFILE = CORED if has("UnifiedTreeCore") else FLAT
NATIVE_CORE = "RustUnifiedTreeCore"
version()


def make_unified_world(config: CacheConfig, core: str = "python") -> World:
    """Make a UnifiedRadixCache with the tree core of this name. Raises: BadArgument."""
    if config.mamba and config.page_size > 1:
        raise BadArgument("page_size", f"is {config.page_size}; with recurrent states it must be 1")
    return make_world(config, "UnifiedRadixCache", {"tree_core_backend": core})


def make(config: CacheConfig) -> HostedCache:
    """Make a cache with the Python core."""
    world = make_unified_world(config)
    return HostedCache(world, PROFILE, Tree.of(world))


def make_native(config: CacheConfig) -> NativeCache:
    """Make a cache with the Rust core. Raises: UsageError."""
    world = make_unified_world(config, "rust")
    core = type(getattr(world.cache, "tree_core", world.cache)).__name__
    if core != NATIVE_CORE:
        # SGLang falls back to Python silently.
        raise UsageError(f"SGLang {version()} made a {core} where its Rust core was asked for")
    return NativeCache(world, PROFILE, NativeTree.of(world, Keys(config.page_size, "q")))


def _what_it_has() -> tuple[tuple[EvictionPolicy, ...], frozenset[Need]]:
    """The policies of the installed release, and the needs that its caches do not meet.

    Found by looking at an empty cache: earlier releases have one policy, and emit no events.
    """
    world = make_unified_world(CacheConfig(device_slots=Counts(full=1)))
    core = Tree.of(world).core
    has_policies = hasattr(core, "eviction_strategy")
    shown = {
        Need.AGES: hasattr(core.root_node, "creation_time"),
        Need.EVENTS: bool(world.cache.take_events()),
    }
    hidden = frozenset(need for need, is_shown in shown.items() if not is_shown)
    return tuple(EvictionPolicy) if has_policies else (EvictionPolicy.LRU,), hidden


POLICIES, HIDDEN = _what_it_has()
if len(POLICIES) == 1:
    PROFILE = evolve(PROFILE, idle_hits_counted=False)
OFFER = Offer(
    event_logs=ONE_LOG,
    bigram=(False,),
    namespaces=False,
    eviction_policies=POLICIES,
    most_slots=MOST_SLOTS,
)
if not hasattr(named("UnifiedRadixCache"), "init_hicache"):
    OFFER = evolve(OFFER, write_policies=(WritePolicy.NONE,))
UNIFIED = Adapter("sglang", make, OFFER, PROFILE, HIDDEN)
HITS_UNSEEN = evolve(
    OFFER, write_policies=(WritePolicy.NONE, WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK)
)
"""Under write_through_selective the hits decide what is copied, and no node shows its hits."""
NATIVE = Adapter("sglang-rust", make_native, HITS_UNSEEN, PROFILE, HIDDEN)
