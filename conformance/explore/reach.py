"""What a scope must exercise: every law that can apply in it, or the laws that it is made for.

Each law says itself where it can apply (`Law.enabled_if`).
"""

from __future__ import annotations

from kvcanon.conformance.explore.scope import Scope
from kvcanon.spec.law import LAWS, Bounds


def has_to_come_up(scope: Scope, law_id: str) -> bool:
    """Whether exploring a whole scope has to exercise a law."""
    if scope.made_for:
        return law_id in scope.made_for
    return LAWS[law_id].enabled_if(bounds_of(scope))


def bounds_of(scope: Scope) -> Bounds:
    """The bounds of runs in a scope, for `Law.enabled_if`."""
    return Bounds(
        config=scope.config,
        pages=scope.pages,
        receipts=scope.receipts,
        requests=scope.requests,
        fetches=scope.fetches,
    )
