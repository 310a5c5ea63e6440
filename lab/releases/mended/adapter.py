"""The adapter of UnifiedRadixCache with the core that kvcanon's is held to.

`sglang-kvcanon` must agree with `sglang-mended`, call by call: that is SGLang's Python core with a
mend for each difference that is accepted (`mended_core.MENDS`).
"""

from __future__ import annotations

from typing import NoReturn

from attrs import define

from kvcanon.conformance.engines.sglang.adapters import OFFER, make_unified_world
from kvcanon.conformance.engines.sglang.adapters_bridged import PROFILE
from kvcanon.conformance.engines.sglang.hicache import HostedCache
from kvcanon.conformance.engines.sglang.release import require_cores
from kvcanon.conformance.engines.sglang.snapshot import Tree
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.releases.mended import mended_core
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import CPU, SWA, Component


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


def make_mended(config: CacheConfig) -> MendedCache:
    """Make a cache with the mended core. Raises: UsageError, and BadArgument for states on a host.

    Those go as in SGLang: nothing of them is mended.
    """
    require_cores()
    if config.mamba and config.host_tier:
        raise BadArgument("mamba", "is set, with a host tier; states on the host are not mended")
    mended_core.register_mended()
    world = make_unified_world(config, mended_core.NAME)
    return MendedCache(world, PROFILE, Tree.of(world))


MENDED = Adapter("sglang-mended", make_mended, OFFER, PROFILE, compared_folded=True)
