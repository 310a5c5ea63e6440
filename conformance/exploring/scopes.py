"""The scopes that have names.

What readers get wrong: these are not the smallest in which something can go wrong, which are in
`founding`, nor the largest that can be exhausted. They are as much as a few minutes go through; and
those that are called large, a night.
"""

from __future__ import annotations

from kvcanon.conformance.exploring.scope import Scope
from kvcanon.conformance.faults import Fault
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

_SCOPES = (
    Scope(
        "full",
        "full data alone: 6 slots, and 6 prompts of 2 pages that share their first",
        CacheConfig(device_slots=Counts(6)),
        fans=(3, 2),
        requests=1,
    ),
)

SCOPES = {scope.name: scope for scope in _SCOPES}
"""Every scope by name."""


def scope_named(name: str) -> Scope:
    """The scope of this name. Raises: Fault."""
    if name not in SCOPES:
        raise Fault(f"there is no scope {name!r}; name {', '.join(SCOPES)}")
    return SCOPES[name]
