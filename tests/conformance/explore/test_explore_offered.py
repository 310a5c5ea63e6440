"""Only scopes that a cache offers, and in which its snapshots show enough, are explored."""

from __future__ import annotations

import pytest

from exploring import FULL, HOST, NAMESPACES, PLAIN, STATES, WINDOW, expander
from faulty import choosy
from kvcanon.conformance import Adapter, Offer
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.exploration import explore
from kvcanon.conformance.explore.offered_scopes import why_left_out
from kvcanon.conformance.explore.scope import Scope
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Need
from kvcanon.spec.types import WritePolicy


class Opaque(ReferenceCache):
    """Has its own copy control."""

    copies = object()

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)


@pytest.mark.parametrize(
    ("adapter", "scope", "why"),
    [
        (PLAIN, FULL, None),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(None,))), FULL, None),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(None,))), WINDOW, "window_tokens 1"),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(4,))), FULL, "window_tokens None"),
        (Adapter("few", ReferenceCache, Offer(mamba=(False,))), STATES, "mamba True"),
        (Adapter("few", ReferenceCache, Offer(page_sizes=(16,))), FULL, "page_size 1"),
        (Adapter("few", ReferenceCache, Offer(least_slots=20)), FULL, "at least 20"),
        (Adapter("few", ReferenceCache, Offer(namespaces=False)), NAMESPACES, "namespaces"),
        (Adapter("few", ReferenceCache, Offer(namespaces=False)), FULL, None),
        (Adapter("few", ReferenceCache, Offer(events=(False,))), FULL, "events True"),
        (
            Adapter("few", ReferenceCache, Offer(write_policies=(WritePolicy.NONE,))),
            HOST,
            "write_policy write_through",
        ),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.HITS})), FULL, None),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.HITS})), HOST, "do not show hits"),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.TRANSFERS})), FULL, None),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.TRANSFERS})), HOST, "transfers"),
        (Adapter("own", Opaque), FULL, None),
        (Adapter("own", Opaque), HOST, "about its copies itself"),
        (Adapter("choosy", choosy), STATES, "choosy is not made with this"),
    ],
)
def test_only_offered_scopes_are_explored(adapter: Adapter, scope: Scope, why: str | None) -> None:
    """A scope outside an offer, or whose states would look alike, is left out with the reason."""
    reason = why_left_out(adapter, scope)
    assert (reason is None) == (why is None)
    assert (why or "") in (reason or "")


@pytest.mark.parametrize(
    ("adapter", "scope", "said"),
    [
        (Adapter("opaque", ReferenceCache, hides=frozenset({Need.RECENCY})), STATES, "recency"),
        (Adapter("own", Opaque), HOST, "decides about its copies itself"),
        (Adapter("choosy", choosy), STATES, "cannot be explored there"),
    ],
)
def test_a_cache_that_cannot_be_explored_is_told_why(
    adapter: Adapter, scope: Scope, said: str
) -> None:
    """A cache that cannot be copied or compared is refused with the reason."""
    with pytest.raises(UsageError, match=said):
        explore(expander(scope, adapter))


def test_hidden_hits_change_nothing_where_no_policy_goes_by_them() -> None:
    """A cache that hides its hits is explored in as many states as one that shows them."""
    shy = Adapter("shy", ReferenceCache, hides=frozenset({Need.HITS, Need.AGES, Need.TRANSFERS}))
    found, plain = explore(expander(FULL, shy)), explore(expander(FULL))
    assert (found.states, found.edges, found.broken) == (plain.states, plain.edges, None)
    assert found.exhausted
