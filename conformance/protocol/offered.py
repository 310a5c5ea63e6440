"""Offered: whether an offer has a configuration, and if not, which field it lacks."""

from __future__ import annotations

from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import CacheConfig

ALL = Offer()
"""An offer with this value in a field sets no limit there."""


def not_offered(offer: Offer, config: CacheConfig) -> str | None:
    """Return what of a configuration an offer does not have, and what it has; None if nothing."""
    chosen: tuple[tuple[str, object, tuple[object, ...], tuple[object, ...]], ...] = (
        ("page_size", config.page_size, offer.page_sizes, ALL.page_sizes),
        ("window_tokens", config.window_tokens, offer.windows_tokens, ALL.windows_tokens),
        ("mamba", config.mamba, offer.mamba, ALL.mamba),
        ("bigram", config.bigram, offer.bigram, ALL.bigram),
        ("write_policy", config.write_policy, offer.write_policies, ALL.write_policies),
        ("eviction_policy", config.eviction_policy, offer.eviction_policies, ALL.eviction_policies),
        ("events", config.events, offer.events, ALL.events),
    )
    for name, value, offered, unlimited in chosen:
        if value not in offered and offered != unlimited:
            values = ", ".join(str(each) for each in dict.fromkeys(offered))
            return f"{name} {value}; it offers {values}"
    slots = config.device_slots.full
    if slots < offer.least_slots != ALL.least_slots:
        return f"a pool of {slots} full slots; it offers at least {offer.least_slots}"
    if slots > offer.most_slots != ALL.most_slots:
        return f"a pool of {slots} full slots; it offers at most {offer.most_slots}"
    return None
