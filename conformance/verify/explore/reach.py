"""What a scope must exercise: every law that can come up in it, or those that it is made for.

Which laws can come up, each law says itself (`Law.enabled_if`).
"""

from __future__ import annotations

from kvcanon.conformance.verify.explore.scope import Scope
from kvcanon.spec.law import LAWS, Bounds


def has_to_come_up(scope: Scope, law_id: str) -> bool:
    """Whether a scope that is explored to its end has to exercise a law."""
    if scope.made_for:
        return law_id in scope.made_for
    return LAWS[law_id].enabled_if(bounds_of(scope))


def bounds_of(scope: Scope) -> Bounds:
    """How far a run in a scope can go, as laws see it."""
    return Bounds(
        config=scope.config,
        pages=scope.pages,
        receipts=scope.receipts,
        requests=scope.requests,
        fetches=scope.fetches,
    )
