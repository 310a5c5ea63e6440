"""Scopes that take seconds, for tests of the explorer, and walks through them."""

from __future__ import annotations

from functools import cache

from kvcanon.conformance.explore.expansion import Expander
from kvcanon.conformance.explore.exploration import Exploration, explore
from kvcanon.conformance.explore.frontier import Path
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

PLAIN = Adapter("reference", ReferenceCache)

FULL = Scope("tiny_full", "", CacheConfig(device_slots=Counts(3)), fans=(2, 1), receipts=1)
WINDOW = Scope(
    "tiny_window",
    "",
    CacheConfig(window_tokens=1, device_slots=Counts(3, 2)),
    fans=(1, 2),
    bare_pages=(0, 1),
)
HOST = Scope(
    "tiny_host",
    "",
    CacheConfig(device_slots=Counts(1), host_slots=Counts(2), write_policy="write_through"),
    fans=(1, 1),
    fetches=True,
    early_bytes=True,
)
WRITE_BACK = Scope(
    "tiny_write_back",
    "",
    CacheConfig(device_slots=Counts(2), host_slots=Counts(1), write_policy="write_back"),
    fans=(2, 1),
    receipts=0,
)
STATES = Scope(
    "tiny_states",
    "",
    CacheConfig(mamba=True, device_slots=Counts(2, 0, 1)),
    fans=(1, 1),
)
NAMESPACES = Scope(
    "tiny_namespaces",
    "",
    CacheConfig(device_slots=Counts(2)),
    fans=(1, 1),
    namespaces=(1, 2),
    receipts=2,
    requests=1,
)
TINY = (FULL, WINDOW, HOST, WRITE_BACK, STATES, NAMESPACES)


def expander(scope: Scope, adapter: Adapter = PLAIN) -> Expander:
    """An expander for a scope."""
    return Expander(adapter, scope)


@cache
def explored(scope: Scope) -> Exploration:
    """Explore a scope."""
    return explore(expander(scope))


@cache
def paths_in(scope: Scope) -> tuple[Path, ...]:
    """A path to each state of a scope, the shortest first."""
    by, paths = expander(scope), list[Path]([()])
    seen = {by.digest(by.origin.empty())}
    for path in paths:
        for _, edge in by.expand([path]).edges:
            if edge.digest not in seen:
                seen.add(edge.digest)
                paths.append((*path, edge.action))
    return tuple(paths)
