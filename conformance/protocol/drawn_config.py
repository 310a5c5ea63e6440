"""Drawn configurations: any that a cache offers, small, wide or vast.

Most are small: pools of a few slots, in which everything happens within a few actions. Some are
wide, with larger pages, windows and pools, to find faults that need large numbers. A configuration
is part of a case, drawn like its actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TypeVar

from attrs import evolve

from kvcanon.conformance.protocol.adapter import SMALL_PAGES, SMALL_WINDOWS, SPREAD, Offer, Pick
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy

EVERYTHING = Offer()

Size = TypeVar("Size", bound=int | None)


class Scale(StrEnum):
    """How large the numbers of a case are."""

    SMALL = "small"
    WIDE = "wide"
    """Pools of up to 150 full slots, so that laws can be checked of its states."""
    LARGE = "large"
    """Pools of some hundreds or thousands, for cases that are judged in black-box mode."""
    DEEP = "deep"
    """A pool of one long path, whose pages are small and nothing but full data where possible."""
    LENGTHY = "lengthy"
    """A pool of one prompt with more tokens than 16 bits count."""
    BUSY = "busy"
    """Pools on both media of more pages than a byte counts, which are copied at once."""
    LASTING = "lasting"
    """Small pools, which about 100,000 operations fill and empty."""
    VAST = "vast"
    """Pools with slot numbers beyond 65,535, most of which one request holds."""


FULL_SLOTS: dict[Scale, tuple[int, ...]] = {
    Scale.WIDE: (80, 110, 150),
    Scale.LARGE: (300, 700, 1_500),
    Scale.DEEP: (1_510,),
    Scale.LENGTHY: (1_200, 4_300),
    Scale.BUSY: (400,),
    Scale.VAST: (66_200, 67_000, 70_000),
}
"""Sizes of the device's full pool, by scale; a small one is drawn slot by slot."""
PAST_16_BITS, MORE_PAGES = 65_600, 64
"""The tokens of the longest prompt, and the slots that are left beside it."""
BUSY_POLICIES = (
    WritePolicy.WRITE_THROUGH,
    WritePolicy.WRITE_THROUGH_SELECTIVE,
    WritePolicy.WRITE_BACK,
)
"""The policies under which copies are in flight, the one with the most copies first."""
MOST_HOST_SLOTS = 1_000
"""A wide pool on the host is no larger: its slots are filled one by one."""
WINDOWLESS = 2
"""How much more often a small cache has no window than any one window: most models have none."""
BYTES_A_TOKEN = 2
"""The least bytes per slot, for each token of its page: some caches divide the bytes by tokens."""


def any_config(pick: Pick, offer: Offer = EVERYTHING) -> CacheConfig:
    """Draw a small configuration, with all of its fields."""

    def counts() -> Counts:
        least = offer.least_slots
        return Counts(pick(range(least, least + SPREAD + 1)), pick(range(1, 15)), pick(range(1, 7)))

    write_policy = pick(offer.write_policies)
    without = (None,) * WINDOWLESS if None in offer.windows_tokens else ()
    return CacheConfig(
        page_size=pick(_small(offer.page_sizes, SMALL_PAGES[-1])),
        window_tokens=pick((*without, *_small(offer.windows_tokens, SMALL_WINDOWS[-1]))),
        mamba=pick(offer.mamba),
        bigram=pick(offer.bigram),
        device_slots=counts(),
        host_slots=Counts() if write_policy is WritePolicy.NONE else counts(),
        write_policy=write_policy,
        eviction_policy=pick(offer.eviction_policies),
        load_back_threshold_pages=pick(offer.load_back_thresholds_pages),
        events=pick(offer.events),
        max_pending_events=pick(offer.event_logs),
    )


def is_large(config: CacheConfig) -> bool:
    """Whether a configuration has a large pool, whose cases may take long."""
    return config.device_slots.full >= min(FULL_SLOTS[Scale.LARGE])


def is_wide(config: CacheConfig) -> bool:
    """Whether a configuration has a pool that no small one has."""
    return config.device_slots.full >= min(FULL_SLOTS[Scale.WIDE])


def wide_config(pick: Pick, offer: Offer, scale: Scale) -> CacheConfig | None:
    """Draw a configuration with large numbers; None where the cache offers no such pool."""
    sizes = [n for n in FULL_SLOTS[scale] if offer.least_slots <= n <= offer.most_slots]
    if not sizes:
        return None
    full = pick(sizes)
    write_policy = pick(offer.write_policies)
    page_size = pick(_large(offer.page_sizes, SMALL_PAGES[-1]))
    hosted = min(full, MOST_HOST_SLOTS)
    host = Counts(pick((hosted // 4, hosted)), pick((hosted // 4, hosted)), pick((5, 40)))
    return CacheConfig(
        page_size=page_size,
        window_tokens=pick(_large(offer.windows_tokens, SMALL_WINDOWS[-1])),
        mamba=pick(offer.mamba),
        bigram=pick(offer.bigram),
        device_slots=Counts(full, pick((full // 2, full)), pick((5, 40))),
        host_slots=Counts() if write_policy is WritePolicy.NONE else host,
        write_policy=write_policy,
        eviction_policy=pick(offer.eviction_policies),
        load_back_threshold_pages=pick(offer.load_back_thresholds_pages),
        events=pick(offer.events),
        slot_bytes=max(CacheConfig().slot_bytes, BYTES_A_TOKEN * page_size),
    )


def deep_config(pick: Pick, offer: Offer) -> CacheConfig:
    """Draw a configuration for one deep path, which takes little time for each page."""
    (full,) = FULL_SLOTS[Scale.DEEP]
    return _plain_config(pick, offer, full, min(offer.page_sizes))


def lengthy_config(pick: Pick, offer: Offer) -> CacheConfig | None:
    """Draw a configuration for one long prompt; None where its pages would be too many."""
    page_size = max(offer.page_sizes)
    pages = PAST_16_BITS // page_size + MORE_PAGES
    sizes = [n for n in FULL_SLOTS[Scale.LENGTHY] if pages <= n <= offer.most_slots]
    return _plain_config(pick, offer, sizes[0], page_size) if sizes else None


def busy_config(pick: Pick, offer: Offer) -> CacheConfig | None:
    """Draw a configuration whose copies are in flight together; None without a host tier."""
    (full,) = FULL_SLOTS[Scale.BUSY]
    policies = [each for each in BUSY_POLICIES if each in offer.write_policies]
    if not policies or not offer.least_slots <= full <= offer.most_slots:
        return None
    pools = Counts(full, full, full)
    return evolve(
        _plain_config(pick, offer, full, min(offer.page_sizes)),
        device_slots=pools,
        host_slots=pools,
        write_policy=policies[0],
        load_back_threshold_pages=min(offer.load_back_thresholds_pages),
    )


def lasting_config(pick: Pick, offer: Offer) -> CacheConfig:
    """Draw a small configuration of full data, on a host tier too where the cache offers one."""
    policies = [each for each in BUSY_POLICIES if each in offer.write_policies]
    lru = EvictionPolicy.LRU
    full = offer.least_slots + SPREAD
    plain = _plain_config(pick, offer, full, min(offer.page_sizes))
    pools = Counts(full, full, full)
    return evolve(
        plain,
        device_slots=pools,
        host_slots=pools if policies else Counts(),
        write_policy=policies[0] if policies else WritePolicy.NONE,
        # Of the policies, it tells most of the order of ticks.
        eviction_policy=lru if lru in offer.eviction_policies else plain.eviction_policy,
        events=max(offer.events),
    )


def _plain_config(pick: Pick, offer: Offer, full: int, page_size: int) -> CacheConfig:
    """Draw a configuration of full data alone, on the device alone, where the cache offers it."""
    drawn = any_config(pick, offer)
    pages = min(max(full, offer.least_slots), offer.most_slots)
    windows, policies = offer.windows_tokens, offer.write_policies
    return evolve(
        drawn,
        page_size=page_size,
        window_tokens=None if None in windows else drawn.window_tokens,
        mamba=min(offer.mamba),
        device_slots=Counts(pages, pages, 4),
        host_slots=Counts() if WritePolicy.NONE in policies else Counts(8, 8, 4),
        write_policy=WritePolicy.NONE if WritePolicy.NONE in policies else drawn.write_policy,
        max_pending_events=max(offer.event_logs),
        slot_bytes=max(CacheConfig().slot_bytes, BYTES_A_TOKEN * page_size),
    )


def usual_config() -> CacheConfig:
    """Return the configuration at which the judge's own speed is measured."""
    return CacheConfig(
        page_size=1,
        window_tokens=4,
        device_slots=Counts(full=20, swa=14, mamba=0),
        host_slots=Counts(full=20, swa=14, mamba=0),
        write_policy=WritePolicy.WRITE_THROUGH,
    )


def _small(offered: Sequence[Size], most: int) -> Sequence[Size]:
    """Return the sizes up to `most`, and None if offered; all sizes if none is that small."""
    small = [each for each in offered if each is None or each <= most]
    return small if any(each is not None for each in small) else offered


def _large(offered: Sequence[Size], most: int) -> Sequence[Size]:
    """Return the sizes beyond `most`, and None if offered; all sizes if none is that large."""
    large = [each for each in offered if each is None or each > most]
    return large if any(each is not None for each in large) else offered
