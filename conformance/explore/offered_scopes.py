"""Scopes that a cache can be explored in: those of its offer, in which its snapshots show enough.

An exploration takes two states that look alike for one. So a snapshot must show everything that
decides what the cache does next: recency and open receipts always, hits and ages if the policy goes
by them, transfers if there is a host tier.
"""

from __future__ import annotations

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    Subject,
    Unoffered,
    make_subject,
)
from kvcanon.conformance.protocol.offered import not_offered
from kvcanon.reference import ManualEngine
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Need
from kvcanon.spec.types import EvictionPolicy

BY_AGE = (EvictionPolicy.FIFO, EvictionPolicy.FILO, EvictionPolicy.PRIORITY)


def needed_for(config: CacheConfig) -> frozenset[Need]:
    """Return what a snapshot must show so that states which look alike are alike."""
    needed = {Need.SNAPSHOT, Need.RECENCY, Need.HOLDS}
    if config.goes_by_hits:
        needed.add(Need.HITS)
    if config.eviction_policy in BY_AGE:
        needed.add(Need.AGES)
    if config.host_tier:
        needed.add(Need.TRANSFERS)
    return frozenset(needed)


def why_left_out(adapter: Adapter, scope: Scope) -> str | None:
    """Return why a cache is not explored in a scope, or None.

    Raises: UsageError: it can be explored in no scope.
    """
    if adapter.kind is CacheKind.REQUEST:
        raise UsageError(
            f"{adapter.name} is used by requests; explore needs a cache that is used by prefixes"
        )
    problem = not_offered(adapter.offer, scope.config)
    if problem is None and set(scope.namespaces) != {0} and not adapter.offer.namespaces:
        problem = "namespaces"
    if problem is not None:
        return f"it does not offer {problem}"
    try:
        explorable(adapter, scope)
    except Unoffered as refusal:
        return str(refusal)
    return None


def explorable(adapter: Adapter, scope: Scope) -> tuple[Subject, ManualEngine, ManualQueue | None]:
    """Make a cache whose states can be told apart, with what decides about its copies and orders.

    Raises: Unoffered: not in this scope. UsageError: in none.
    """
    config = scope.config
    subject = make_subject(adapter, config, store=scope.store)
    if Need.SNAPSHOT not in subject.shows:
        raise UsageError(
            f"{adapter.name} shows no snapshot; a cache is explored by its states, and two that "
            "look alike would be taken for one (`kvcanon check` judges it by its answers)"
        )
    hidden = sorted(need.value for need in needed_for(config) - subject.shows)
    if hidden:
        raise Unoffered(
            f"its snapshots do not show {', '.join(hidden)}, which decide what happens there"
        )
    queue = subject.store if isinstance(subject.store, ManualQueue) else None
    if isinstance(subject.copies, ManualEngine):
        return subject, subject.copies, queue
    if subject.copies is not None and config.host_tier:
        raise Unoffered("it decides about its copies itself; let its factory take `engine`")
    # Nothing is copied: the control of a cache's own copies is not used.
    return subject, ManualEngine(), queue
