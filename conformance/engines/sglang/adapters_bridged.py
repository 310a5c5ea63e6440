"""The adapters of UnifiedRadixCache with kvcanon's own tree core, and with the core it is held to.

`sglang-kvcanon` must agree with `sglang-mended`, call by call: that is SGLang's Python core with a
mend for each difference that is accepted (`mended_core.MENDS`).
"""

from __future__ import annotations

from importlib import import_module
from typing import NoReturn

from attrs import define

from kvcanon.conformance.engines.sglang import mended_core
from kvcanon.conformance.engines.sglang.adapters import OFFER, make_unified_world
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.kvcanon_core import BridgedCache, node_tree_of
from kvcanon.conformance.engines.sglang.limits import LIMITS
from kvcanon.conformance.engines.sglang.release import has, version
from kvcanon.conformance.engines.sglang.unified import tree_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, Profile, StoreMoment
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, SWA, Component

PROFILE = Profile(
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
    window_lock_exact=False,
    heals_in_place=False,
    limits=LIMITS,
)
"""kvcanon's core is the canon but where SGLang's calls decide: loads count at once, a lock cannot
report that it cut a node, and a node that no lock holds takes full slots with its window slots."""


@define(eq=False)
class MendedCache(HostedCache):
    """A `UnifiedRadixCache` with the mended core: a model of answers and events, not of states.

    Its lists of recency leave out other nodes than kvcanon's, and its locks other media.
    """

    @property
    def snapshot(self) -> NoReturn:
        """Not available. Raises: AttributeError."""
        raise AttributeError("snapshot")

    def _evict_on_host(self, tokens: int, component: Component) -> None:
        """Free so many host slots, where some are free too: the core takes what a copy lacks."""
        free = len(self.free_slots(component, CPU)) if component is SWA else 0
        size = self.world.pools[component, CPU].page_size
        super()._evict_on_host(tokens + free * size, component)


def make_bridged(config: CacheConfig) -> BridgedCache:
    """Make a cache with kvcanon's core. Raises: UsageError."""
    _require_cores()
    plugin = import_module("kvcanon.sglang_plugin")
    plugin.register()
    world = make_unified_world(config, plugin.NAME)
    return BridgedCache(world, PROFILE, node_tree_of(world))


BRIDGED = Adapter("sglang-kvcanon", make_bridged, OFFER, PROFILE)


def make_mended(config: CacheConfig) -> MendedCache:
    """Make a cache with the mended core. Raises: UsageError, and BadArgument for states on a host.

    Those go as in SGLang: nothing of them is mended.
    """
    _require_cores()
    if config.mamba and config.host_tier:
        raise BadArgument("mamba", "is set, with a host tier; states on the host are not mended")
    mended_core.register_mended()
    world = make_unified_world(config, mended_core.NAME)
    return MendedCache(world, PROFILE, tree_of(world))


MENDED = Adapter("sglang-mended", make_mended, OFFER, PROFILE, compared_folded=True)


def _require_cores() -> None:
    """Require a release that takes tree cores. Raises: UsageError."""
    if not has("register_tree_core_backend"):
        raise UsageError(f"SGLang {version()} takes no tree core; install sglang==0.5.23")
