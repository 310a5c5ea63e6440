"""Fits a case to a store: what the store does not offer is left out.

A case is drawn or written for any store, and a witness shows its fault in all that have the ability
it takes, so that each store plays what it can of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import evolve

from kvcanon.conformance.stores.adapter import StoreOffer
from kvcanon.conformance.stores.case import StoreCase
from kvcanon.conformance.stores.prompts import FORKS
from kvcanon.spec.stores.calls import Ability


def fitted(case: StoreCase, offer: StoreOffer) -> StoreCase:
    """The case without what a store does not offer: pools, namespaces, identities, page sizes.

    A store of files that is neither durable nor shared has one writer of each identity: another
    process has another store.
    """
    actions: Iterable[Any] = case.actions
    sizes = offer.page_bytes
    if Ability.NAMESPACES not in offer.abilities:
        named = [(each, getattr(each, "prompt", None)) for each in actions]
        actions = [
            each if prompt is None else evolve(each, prompt=prompt % len(FORKS))
            for each, prompt in named
        ]
    other = case.other if case.other in offer.identity_fields else ""
    writers = case.writers
    if not offer.abilities & {Ability.DURABLE, Ability.SHARED} and Ability.FILES in offer.abilities:
        writers = min(writers, 2 if other else 1)
    return evolve(
        case,
        actions=tuple(actions),
        writers=writers,
        pools=case.pools if Ability.POOLS in offer.abilities else 1,
        other=other,
        page_bytes=case.page_bytes if case.page_bytes in sizes else min(sizes),
    )
