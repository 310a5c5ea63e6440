"""The adapter of UnifiedRadixCache with kvcanon's own tree core."""

from __future__ import annotations

from importlib import import_module

from kvcanon.conformance.engines.sglang.adapters import OFFER, make_unified_world
from kvcanon.conformance.engines.sglang.keys import Keys
from kvcanon.conformance.engines.sglang.kvcanon_core import BridgedCache, NodeTree
from kvcanon.conformance.engines.sglang.limits import LIMITS
from kvcanon.conformance.engines.sglang.release import require_cores
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Profile, StoreMoment

PROFILE = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    heals_in_place=False,
    limits=LIMITS,
)
"""kvcanon's core is the canon but where SGLang's calls decide: loads count at once, a lock cannot
report that it cut a node, and a node that no lock holds takes full slots with its window slots."""


def make_bridged(config: CacheConfig) -> BridgedCache:
    """Make a cache with kvcanon's core. Raises: UsageError."""
    require_cores()
    plugin = import_module("kvcanon.sglang_plugin")
    plugin.register()
    world = make_unified_world(config, plugin.NAME)
    return BridgedCache(world, PROFILE, NodeTree.of(world, Keys(config.page_size, "q")))


BRIDGED = Adapter("sglang-kvcanon", make_bridged, OFFER, PROFILE)
