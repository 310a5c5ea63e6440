"""The adapter of HiRadixCache, with its profile and offer in each release.

It always has a host tier: without a host tier SGLang makes a RadixCache.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.engines.sglang.adapters_plain import RADIX_OFFER, RADIX_PROFILE
from kvcanon.conformance.engines.sglang.cpu_stand_ins import be_alone
from kvcanon.conformance.engines.sglang.factory import make_world
from kvcanon.conformance.engines.sglang.hi_radix import (
    HierarchicalCache,
    forget_at_exit,
    hierarchical_tree_of,
)
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.spec.config import CacheConfig, StoreMoment
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import WritePolicy

PROFILE = evolve(
    RADIX_PROFILE,
    load_back_announced=StoreMoment.ENQUEUED,
    load_back_usable=StoreMoment.ENQUEUED,
)


def make(config: CacheConfig) -> HierarchicalCache:
    """Make a HiRadixCache. Raises: BadArgument, UsageError."""
    if config.window_tokens is not None or config.mamba or not config.host_tier:
        raise BadArgument("config", "asks for other than full data on the device and on the host")
    be_alone()
    world = make_world(config, "HiRadixCache", {})
    forget_at_exit(world)
    return HierarchicalCache(world, PROFILE, hierarchical_tree_of(world))


OFFER = evolve(
    RADIX_OFFER,
    write_policies=(
        WritePolicy.WRITE_THROUGH,
        WritePolicy.WRITE_THROUGH_SELECTIVE,
        WritePolicy.WRITE_BACK,
    ),
)
HIERARCHICAL = Adapter("sglang-hi-radix", make, OFFER, PROFILE)
