"""Checks of arguments: refusals that an engine's cache leaves to its scheduler.

An engine never frees a slot twice or asks for -1 slots, so its cache does not check that. The judge
does ask, and the adapter refuses for the cache. Each function raises the refusal, or has no effect.
They look at the arguments alone, never at the cache, so that they cannot hide what it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.operations import HostPayload, InsertHost
from kvcanon.spec.refusals.inserts import wrong_payload
from kvcanon.spec.refusals.keys import wrong_key
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import FULL, Component, Counts, Key, Slots

FULL_ALONE = (FULL,)
"""The components of a cache without a window and without mamba states."""


def check_key(config: CacheConfig, key: Key) -> None:
    """Check that a key is cut into pages of the cache, and made of its units.

    Raises: BadArgument: a page has another size, or a unit is no token (or no bigram).
    """
    problem = wrong_key(config, key)
    if problem is not None:
        raise BadArgument("key", problem)


def check_allocate(counts: Counts, components: Collection[Component] = FULL_ALONE) -> None:
    """Check the counts of an allocation.

    Raises: BadArgument: a count is negative, or of a component that the cache lacks, or there are
        more window slots than pages.
    """
    check_evict(counts)
    for component in Component:
        if counts[component] and component not in components:
            raise BadArgument("counts", f"have {counts[component]} {component} slots; give 0")
    if counts.swa > counts.full:
        raise BadArgument("counts", f"have {counts.swa} window slots for {counts.full} pages")


def check_evict(counts: Counts) -> None:
    """Check the counts of an eviction; a component that the cache lacks frees nothing.

    Raises: BadArgument: a count is negative.
    """
    for component in Component:
        if counts[component] < 0:
            raise BadArgument(
                "counts", f"have {counts[component]} {component} slots; give 0 or more"
            )


def check_insert(key: Key, start_pages: int, slots: Slots, counted_pages: int = 0) -> None:
    """Check that the numbers of an insert fit its key, before any slot moves.

    Whether requests hold the slots is for `SlotLedger.check_held`.

    Raises: BadArgument: a number is outside the key, or the slots are not those of its pages.
    """
    for name, number in (("start_pages", start_pages), ("counted_pages", counted_pages)):
        if not 0 <= number <= len(key):
            raise BadArgument(name, f"is {number}; the key has {len(key)} pages")
    pages = len(key) - start_pages
    if len(slots.full) != pages:
        raise BadArgument(
            "slots.full", f"has {len(slots.full)} slots; give one for each of {pages}"
        )
    if len(slots.swa) > pages:
        raise BadArgument("slots.swa", f"has {len(slots.swa)} slots for {pages} pages")
    if len(slots.mamba) > min(1, len(key)):
        raise BadArgument("slots.mamba", f"has {len(slots.mamba)} states; give one at most")


def check_load_back(config: CacheConfig, key: Key, quota_pages: int | None = None) -> None:
    """Check the key and the quota of a load-back.

    Raises: BadArgument: as `check_key`, or the quota is negative.
    """
    check_key(config, key)
    if quota_pages is not None and quota_pages < 0:
        raise BadArgument("quota_pages", f"is {quota_pages}; give 0 or more, or None")


def check_insert_host(
    config: CacheConfig, key: Key, start_pages: int, payload: HostPayload
) -> None:
    """Check that fetched bytes fit a key, before any is stored.

    Raises: BadArgument: as `check_key`, or there is no host tier, or the bytes do not fit.
    """
    check_key(config, key)
    problem = wrong_payload(config, InsertHost(key, start_pages, payload))
    if problem is not None:
        raise BadArgument("payload", problem)


def check_settle(
    completions: Sequence[Completion], arrived: Iterable[Sequence[Completion]]
) -> None:
    """Check completions against what `arrived` has, given by direction, each in order.

    Raises: BadArgument: a transfer is not there, is named twice or before an earlier one of its
        direction, or is named as done and failed.
    """
    named = {each.transfer_id for each in completions}
    if len(named) < len(completions):
        raise BadArgument("completions", "name a transfer twice")
    ends: dict[int, bool] = {}
    for queue in arrived:
        for before, each in zip([None, *queue], queue, strict=False):
            ends[each.transfer_id] = each.ok
            if each.transfer_id in named and before and before.transfer_id not in named:
                raise BadArgument(
                    "completions",
                    f"name transfer {each.transfer_id} without {before.transfer_id} before it",
                )
    for each in completions:
        if each.transfer_id not in ends:
            raise BadArgument("completions", f"name transfer {each.transfer_id}; it has not ended")
        if each.ok and not ends[each.transfer_id]:
            raise BadArgument("completions", f"name transfer {each.transfer_id} as done; it failed")


def check_prompt(key: Key) -> None:
    """Check that a request has a page, for an engine that admits no empty prompt.

    Raises: BadArgument: the key is empty.
    """
    if not len(key):
        raise BadArgument("key", "is empty; this engine admits no request without a page")


def check_room(pool: str, asked_slots: int, free_slots: int) -> None:
    """Check that a pool has enough free slots. Raises: OutOfSlots."""
    if asked_slots > free_slots:
        raise OutOfSlots(pool, asked_slots, free_slots)
