"""Exact actions on the store below the host: orders about a key that the action itself encodes.

Of the other actions on stores, each does one thing, and its picks say exactly which
(`store_actions`): an order goes on or ends, a page is lost or damaged, progress is taken.
"""

from __future__ import annotations

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.exact_actions import exact_key
from kvcanon.conformance.cases.store_actions import begin_prefetch, store_of
from kvcanon.conformance.protocol.adapter import Capability

EXACT_STORES: dict[str, ActionKind] = {}
"""Every exact action on stores by name."""

BY_THE_STORE = frozenset({"carry_out", "lose_stored", "damage_stored"})
"""The actions that call no method of the cache: something happens in the store."""


@enter(EXACT_STORES, 0, host=True)
def store_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Order the write of a key."""
    if (found := store_of(client)) is not None:
        found[0].store(exact_key(found[0].config, client.namespaces, (a, b, c)))


@enter(EXACT_STORES, 0, host=True)
def prefetch_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Order the fetch of a key."""
    if (found := store_of(client)) is not None:
        key = exact_key(found[0].config, client.namespaces, (a, b, c))
        begin_prefetch(client, found[0], key)


@enter(EXACT_STORES, 0, Capability.RESET, host=True)
def restart_exactly(client: Client, _a: int, _b: int, _c: int) -> None:
    """Reset, and keep the store: a new process over it begins so."""
    if (found := store_of(client)) is not None:
        found[0].reset(keep_store=True)
        client.prefetches.clear()
