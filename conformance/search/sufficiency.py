"""Essentials: what has to have come up before a check may say that a cache holds.

A cache that refuses every insert, or that can be made with one configuration only, breaks few laws.
So it is asked besides whether each operation that every cache has was served, whether an operation
was refused every time, and whether matches found something and locks held something.

What readers get wrong: this is no law, and a cache that fails here has broken none. The check has
seen too little of it to say anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.adapter import CacheKind
from kvcanon.conformance.search.finding import Tally
from kvcanon.spec.law import LAWS

OPERATIONS: Mapping[CacheKind, tuple[str, ...]] = {
    CacheKind.TREE: tree.ESSENTIAL,
    CacheKind.REQUEST: request.ESSENTIAL,
}
"""What every cache has to have served."""

ESSENTIAL_LAWS: Mapping[CacheKind, tuple[str, ...]] = {
    CacheKind.TREE: ("MATCH-1", "MATCH-3", "MATCH-6", "LOCK-9", "ALLOC-5"),
    CacheKind.REQUEST: ("MATCH-2", "ALLOC-5"),
}
"""Laws of hits, inserts, locks and slots, which every cache has to come to, whatever it shows."""

OFFERED_SHARE = 1 / 10
"""The share of drawn cases that has to be played; an `Offer` says which can be drawn."""


def missing(
    kind: CacheKind,
    tally: Tally,
    drawn: Tally,
    exercised: Collection[str],
    only: Collection[str] = (),
) -> tuple[str, ...]:
    """What has to come up for a cache to hold and did not, in all cases and in those drawn for it.

    Where only some laws are asked, only these have to come up. Where operations are not served, the
    laws that want them go without saying.
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
    """The operations that every cache has, and that this one refused whenever it was asked."""
    called = [name for name in OPERATIONS[kind] if tally.refused[name]]
    return tuple(_not_served(called, tally))


def _not_served(operations: Iterable[str], tally: Tally) -> Iterator[str]:
    """Those of some operations that were never served, each with the reason."""
    for name in dict.fromkeys(operations):
        refused = tally.refused[name]
        if refused and not tally.served[name]:
            yield f"{name} was refused each of {refused:,} times"
        elif not tally.served[name]:
            yield f"{name} was never called"
