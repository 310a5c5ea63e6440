"""A plain cache with all components and a host tier, for tests of the guard, and requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from kvcanon.conformance.cases.stamps import write_stamps
from kvcanon.conformance.judge.by_states.guard import GuardedCache, guard_states
from kvcanon.reference import InlineEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import Kind, Law, LawClass, Level, Need, Premise
from kvcanon.spec.types import Counts, Key, WritePolicy, make_key
from kvcanon.spec.views import Step

CONFIG = CacheConfig(
    page_size=2,
    window_tokens=4,
    mamba=True,
    device_slots=Counts(16, 16, 4),
    host_slots=Counts(16, 16, 4),
    write_policy=WritePolicy.WRITE_THROUGH,
)
KEY = make_key([1, 2, 3, 4, 5, 6], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6, 7, 8], 2)
OTHER = make_key([1, 2, 9, 9], 2)


def reference(config: CacheConfig = CONFIG) -> ReferenceCache:
    """A plain cache whose copies are done at the next poll."""
    return ReferenceCache(config, InlineEngine())


def serve(cache: Cache, key: Key, *, write: bool = True) -> None:
    """Serve one request as an engine does."""
    matched = cache.match(key)
    receipt = cache.lock(key.prefix(matched.device_pages))
    missing = len(key) - matched.device_pages
    slots = cache.allocate(Counts(missing, missing, 1))
    if write:
        write_stamps(cache, key, slots)
    cache.insert(key, matched.device_pages, slots)
    cache.unlock(receipt)
    cache.poll()


class Script:
    """Replaces the guard's random numbers: the test chooses which steps are judged."""

    def __init__(self, judged: Sequence[bool]) -> None:
        self._judged = list(judged)

    def random(self) -> float:
        """Below the rate if the next operation is to be judged."""
        return 0.0 if self._judged.pop(0) else 1.0


def scripted(cache: Cache, *judged: bool) -> GuardedCache:
    """A guard that judges the operations that a test chooses."""
    guarded = guard_states(cache, rate=0.5)
    guarded._random = Script(judged)  # type: ignore[assignment]
    return guarded


def asking(check: Callable[[Step], Iterator[str]]) -> Law:
    """A law of a test, which is not in `LAWS`."""
    always = Premise[Step]("anything", lambda _: True)
    needs = frozenset[Need]()
    return Law(
        *("TEST-1", Kind.STEP, LawClass.SOUND, always, Level.MUST, needs),
        *("asking", "A.", "B", "C", check),
    )
