"""Coverage: why a law was not exercised, and which methods a cache needs for it.

Caches with snapshots are judged by every law. All others are judged in black-box mode, by the laws
that answers, events and bytes show (`Law.from_outside`). Calls by request show fewer of them
(`SHOWN_BY_REQUESTS`): a scheduler that admits and ends requests never names a lock, for example.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product

from kvcanon.conformance.protocol.adapter import CacheKind, Offer
from kvcanon.conformance.protocol.adapter import Capability as Can
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Bounds, Law, Need

OFFERS_ALL = Offer()
MANY = 1 << 20
"""More pages, locks or requests than a law can ask for."""

SHOWN_BY_REQUESTS: Mapping[str, tuple[Can, ...]] = {
    **dict.fromkeys(("ALLOC-1", "ALLOC-5", "LOCK-10", "REFUSE-1"), ()),
    **dict.fromkeys(("MATCH-1", "MATCH-2", "MATCH-3", "MATCH-6"), ()),
    "ALLOC-3": (Can.EVICT,),
    "ALLOC-7": (Can.RESET,),
    "DATA-1": (Can.READ, Can.WRITE),
    "EVICT-1": (Can.EVICT, Can.TAKE_EVENTS),
    "LOCK-4": (Can.TAKE_EVENTS,),
    **dict.fromkeys(("EVENT-1", "EVENT-2", "EVENT-4", "EVENT-5"), (Can.TAKE_EVENTS,)),
    **dict.fromkeys(("EVENT-6", "EVENT-9", "EVENT-10", "EVENT-12"), (Can.TAKE_EVENTS,)),
    "EVENT-8": (Can.RESET, Can.TAKE_EVENTS),
}
"""The laws that are checked of a cache by request without snapshots, and the methods they need."""


def why_not_exercised(
    law: Law,
    lacks: Collection[str],
    kind: CacheKind = CacheKind.TREE,
    offer: Offer = OFFERS_ALL,
) -> str:
    """Return why a law was not exercised: the cache lacks something, or no call met the premise.

    It lacks a method, or offers no configuration in which the law can come up.
    """
    hidden: list[str] = sorted(need.value for need in law.needs if need.value in lacks)
    if Need.SNAPSHOT.value in hidden:
        hidden = (
            _missing_by_requests(law, lacks) if kind is CacheKind.REQUEST else _missing(law, lacks)
        )
    if hidden:
        return f"not offered: the cache has no {' and no '.join(hidden)}"
    if not can_come_up(law, offer):
        return f"not offered: the Offer has no configuration for {law.premise.words}"
    return f"never came up: {law.premise.words}"


def can_come_up(law: Law, offer: Offer) -> bool:
    """Whether a run of some configuration that is offered can exercise a law."""
    choices = product(
        dict.fromkeys(offer.windows_tokens),
        dict.fromkeys(offer.mamba),
        dict.fromkeys(offer.write_policies),
        dict.fromkeys(offer.eviction_policies),
    )
    offers = {"states_within": offer.states_within, "stores": offer.stores}
    configs = (
        CacheConfig(min(offer.page_sizes), window, mamba, write_policy=write, eviction_policy=evict)
        for window, mamba, write, evict in choices
    )
    return any(
        law.enabled_if(Bounds(config, MANY, MANY, MANY, fetches=True, **offers))
        for config in configs
    )


def _missing(law: Law, lacks: Collection[str]) -> list[str]:
    """Return the methods that a cache by prefixes without snapshots lacks for a law."""
    return [Need.SNAPSHOT.value] if law.from_outside is None else missing_for(law, lacks)


def _missing_by_requests(law: Law, lacks: Collection[str]) -> list[str]:
    """Return the methods that a cache by request without snapshots lacks for a law."""
    if law.law_id not in SHOWN_BY_REQUESTS:
        return [Need.SNAPSHOT.value]
    return [each.value for each in SHOWN_BY_REQUESTS[law.law_id] if each.value in lacks]


def missing_for(law: Law, lacks: Collection[str]) -> list[str]:
    """Return the methods that a cache lacks for a law in black-box mode, as "a or b"."""
    groups = [[method.__name__ for method in group] for group in law.from_outside or ()]
    return [" or ".join(names) for names in groups if all(name in lacks for name in names)]
