"""The adapter of UnifiedRadixCache with kvcanon's own tree core."""

from __future__ import annotations

from importlib import import_module

from kvcanon.conformance.engines.sglang.adapters import OFFER, make_unified_world
from kvcanon.conformance.engines.sglang.kvcanon_core import BridgedCache, node_tree_of
from kvcanon.conformance.engines.sglang.limits import LIMITS
from kvcanon.conformance.engines.sglang.release import has, version
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Profile, StoreMoment

PROFILE = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    limits=LIMITS,
)
"""kvcanon's core is the canon but where SGLang's calls decide: loads count at once, and a lock
cannot report that it cut a node."""


def make_bridged(config: CacheConfig) -> BridgedCache:
    """Make a cache with kvcanon's core. Raises: UsageError."""
    if not has("register_tree_core_backend"):
        raise UsageError(f"SGLang {version()} takes no tree core; install sglang==0.5.23")
    plugin = import_module("kvcanon.sglang_plugin")
    plugin.register()
    world = make_unified_world(config, plugin.NAME)
    return BridgedCache(world, PROFILE, node_tree_of(world))


BRIDGED = Adapter("sglang-kvcanon", make_bridged, OFFER, PROFILE)
