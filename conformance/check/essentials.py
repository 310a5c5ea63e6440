"""The essentials: what a check must exercise before it may say that a cache holds.

A cache that refuses every insert, or that offers one configuration only, breaks few laws. So a
check also requires that each operation that all caches have was served, that matches found
prefixes, and that locks held something. A cache that fails here breaks no law; the check saw too
little of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.adapter import CacheKind
from kvcanon.spec.law import LAWS

OPERATIONS: Mapping[CacheKind, tuple[str, ...]] = {
    CacheKind.TREE: tree.ESSENTIAL,
    CacheKind.REQUEST: request.ESSENTIAL,
}
"""The operations that every cache must serve."""

ESSENTIAL_LAWS: Mapping[CacheKind, tuple[str, ...]] = {
    CacheKind.TREE: ("MATCH-1", "MATCH-3", "MATCH-6", "LOCK-9", "ALLOC-5"),
    CacheKind.REQUEST: ("MATCH-2", "ALLOC-5"),
}
"""Laws of hits, inserts, locks and slots; every cache can exercise them."""

OFFERED_SHARE = 1 / 10
"""The share of drawn cases that must be played; an `Offer` says which can be drawn."""


def missing(
    kind: CacheKind,
    tally: Tally,
    drawn: Tally,
    exercised: Collection[str],
    only: Collection[str] = (),
) -> tuple[str, ...]:
    """The essentials that were not exercised, a line each.

    `tally` counts all cases, and `drawn` the random ones. With `only`, no other laws are essential,
    and no operations are. If operations were not served, their laws are not listed.
    """
    found = [] if only else list(_not_served((*OPERATIONS[kind], *+tally.refused), tally))
    for law_id in () if found else ESSENTIAL_LAWS[kind]:
        if law_id not in exercised and (not only or law_id in only):
            found.append(f"{law_id} was never exercised, which takes {LAWS[law_id].premise.words}")
    cases = drawn.cases + drawn.unoffered
    if drawn.cases < cases * OFFERED_SHARE:
        found.append(f"{drawn.unoffered:,} of {cases:,} drawn cases were not offered")
    return tuple(found)


def always_refused(kind: CacheKind, tally: Tally) -> tuple[str, ...]:
    """The essential operations that a cache refused each time."""
    called = [name for name in OPERATIONS[kind] if tally.refused[name]]
    return tuple(_not_served(called, tally))


def _not_served(operations: Iterable[str], tally: Tally) -> Iterator[str]:
    """The operations that were never served, each with the reason."""
    for name in dict.fromkeys(operations):
        refused = tally.refused[name]
        if refused and not tally.served[name]:
            yield f"{name} was refused each of {refused:,} times"
        elif not tally.served[name]:
            yield f"{name} was never called"
