"""The checks of one operation, and how often each law was exercised in all operations.

A check exercises its law only where a faulty cache could have failed it: in a match that found a
page, or had to find one, but not in a match in an empty cache. A law is exercised at most once in
an operation, and not by an operation that broke a law.

A check that does not exercise its law still reports a cache that fails it.

Checks compare with what earlier answers said. So after a broken MUST law that ends nothing, as it
is known to be broken or is not checked, nothing more can be said about the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from attrs import Factory, define

from kvcanon.conformance.protocol.adapter import CacheKind
from kvcanon.spec.config import CacheConfig, Choosing, Profile
from kvcanon.spec.law import LAWS, Level, Violation


def left_to(profile: Profile, kind: CacheKind = CacheKind.TREE) -> frozenset[str]:
    """The laws that a profile leaves to its cache, where only answers and events are seen."""
    left = {law.law_id for law in LAWS.values() if not law.is_judged_under(profile)}
    if profile.recency is Choosing.OWN:
        left.add("REC-3")  # What was used when is not seen, and so not who is next.
    if profile.acts_unasked:
        left.update(_UNSEEN if kind is CacheKind.TREE else _UNSEEN_BY_REQUESTS)
    if kind is CacheKind.REQUEST and Choosing.OWN in (profile.admission, profile.retention):
        left.add("MATCH-6")  # What a finished request computed need not be kept.
    return frozenset(left)


_UNSEEN = (
    *("EVENT-4", "EVENT-5", "EVENT-10", "EVICT-1", "REC-3", "REFUSE-1", "RES-5"),
    *("ALLOC-3", "ALLOC-5", "ALLOC-6", "ALLOC-7", "ASYNC-1", "MATCH-7"),
)
"""The laws that cannot be judged from outside where a cache acts on its own: no answer says which
slots it freed or took, which copies it began, and what it evicted."""

_UNSEEN_BY_REQUESTS = tuple(
    each for each in _UNSEEN if each not in ("ALLOC-3", "ALLOC-5", "ALLOC-7", "REFUSE-1")
)
"""The same for a cache by requests: of those four laws, block tables show all that is judged."""


@define(eq=False)
class Checks:
    """The checks of one operation, and the counts of those before."""

    law_ids: Collection[str]
    """The ids of the laws that are checked."""
    left_to_cache: Collection[str] = ()
    """The ids of the laws of choices that the cache makes in a way of its own."""
    laws_exercised: Counter[str] = Factory(Counter)
    """In how many operations each law was exercised."""
    broken: list[Violation] = Factory(list)
    """What this operation has broken so far."""
    failed: bool = False
    """Whether this operation broke any law so far, also one that is not checked: what it answered
    cannot be relied on then."""
    lost: bool = False
    """Whether any operation broke a MUST law, so that later answers cannot be judged."""
    _met: set[str] = Factory(set)
    """The laws that this operation has exercised so far."""

    def note(self, law_id: str, problem: str | None, *, met: bool) -> None:
        """Note a check and its problem, if any; `met` says whether it exercises the law."""
        if law_id in self.left_to_cache:
            return
        if problem is not None:
            self.failed = True
            self.lost |= LAWS[law_id].level is Level.MUST
        if law_id not in self.law_ids:
            return
        if met:
            self._met.add(law_id)
        if problem is not None:
            self.broken.append(Violation(LAWS[law_id], problem))

    def close(self) -> list[Violation]:
        """End the operation; returns its violations."""
        broken, self.broken, self.failed = self.broken, [], False
        if not broken:
            self.laws_exercised.update(self._met)
        self._met.clear()
        return broken


def may_give_up_events(config: CacheConfig) -> bool:
    """Whether one operation may emit more events than may wait.

    Then not every event of an operation is seen, so that its checks have to do without.
    """
    slots = config.device_slots.full + config.host_slots.full
    return config.max_pending_events < 2 * slots
