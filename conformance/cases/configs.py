"""Any configuration that a cache offers, with pools so small that everything happens.

What readers get wrong: configurations are a part of a case, drawn like its actions. A fault that
shows under one of a thousand configurations is a fault.
"""

from __future__ import annotations

from kvcanon.conformance.adapters.adapter import Offer, Pick
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, WritePolicy

EVERYTHING = Offer()


def any_config(pick: Pick, offer: Offer = EVERYTHING) -> CacheConfig:
    """A configuration, all of whose fields are picked."""

    def counts() -> Counts:
        least = offer.least_slots
        return Counts(pick(range(least, least + 19)), pick(range(2, 15)), pick(range(1, 7)))

    write_policy = pick(offer.write_policies)
    return CacheConfig(
        page_size=pick(offer.page_sizes),
        window_tokens=pick(offer.windows_tokens),
        mamba=pick(offer.mamba),
        bigram=pick(offer.bigram),
        device_slots=counts(),
        host_slots=Counts() if write_policy is WritePolicy.NONE else counts(),
        write_policy=write_policy,
        eviction_policy=pick(offer.eviction_policies),
        load_back_threshold_pages=pick(offer.load_back_thresholds_pages),
    )


def usual_config() -> CacheConfig:
    """The configuration at which the judge's own speed is measured."""
    return CacheConfig(
        page_size=1,
        window_tokens=4,
        device_slots=Counts(full=20, swa=14, mamba=0),
        host_slots=Counts(full=20, swa=14, mamba=0),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
