"""Scenes for the table of emission: for each row, calls that exercise that row alone.

A scene lists the events of its last operation of a kind: what happens, the medium, and the pages.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve, frozen

from kvcanon.conformance.protocol.adapter import Subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.lab.variants.variant import varied
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import (
    Done,
    Evict,
    EvictHost,
    Flush,
    Insert,
    InsertHost,
    LoadBack,
    Operation,
    Poll,
    Reset,
    TakeEvents,
)
from kvcanon.spec.types import Counts, make_key
from kvcanon.spec.views import Step
from scenes import fetch, put

CACHES = {
    "reference": load_adapter("reference"),
    "optimized": load_adapter("optimized"),
    "loads_announced_early": varied("loads_announced_early", ["loads_announced_early"]),
    "exclusive_host": varied("exclusive_host", ["exclusive_host"]),
}


class Witness(WrappedCache):
    """A cache that records every step; only this wrapper may call the inner cache."""

    def __init__(self, of: Cache) -> None:
        super().__init__(of)
        self.steps: list[Step] = []
        self._last = of.snapshot()

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        try:
            return call(*args, **kwargs)
        finally:
            before, self._last = self._last, self._cache.snapshot()
            taken = isinstance(operation, TakeEvents)
            events = () if taken else self._last.events[len(before.events) :]
            self.steps.append(Step(before, operation, Done(), self._last, events))


THROUGH = CacheConfig(
    device_slots=Counts(full=6), host_slots=Counts(full=3), write_policy="write_through"
)
BACK = evolve(THROUGH, write_policy="write_back")
A, B, C = ([1, 2, 3], [4, 5, 6], [7, 8, 9])


@frozen
class Scene:
    """Calls, and the events that the last call of kind `sends` emits."""

    sends: type[Operation]
    config: CacheConfig
    play: Callable[[Cache, Subject], object]
    said: str
    """The events: what happens, the medium, and the tokens of the pages in order."""
    caches: tuple[str, ...] = tuple(CACHES)


CANON_ALONE = ("reference", "optimized")
EARLY_ALONE = ("loads_announced_early",)
EXCLUSIVE_ALONE = ("exclusive_host",)


def demote(cache: Cache, tokens: list[int]) -> None:
    """Leave a prompt on the host alone."""
    put(cache, tokens)
    cache.flush()
    cache.evict(Counts(full=len(tokens)))


def insert_new(cache: Cache, _: Subject) -> None:
    """Insert a new prompt."""
    put(cache, A)


def insert_half(cache: Cache, _: Subject) -> None:
    """Insert a prompt whose beginning is on the device and whose middle is on the host alone."""
    put(cache, [1])
    put(cache, [1, 2])
    cache.flush()
    cache.evict(Counts(full=1))
    put(cache, A)


def insert_beside(cache: Cache, _: Subject) -> None:
    """Insert a new prompt whose backup evicts another prompt from the host."""
    demote(cache, A)
    put(cache, B)


def fetch_new(cache: Cache, _: Subject) -> None:
    """Prefetch a prompt, which evicts another from the host."""
    demote(cache, A)
    fetch(cache, B)


def refill(cache: Cache, _: Subject) -> None:
    """Prefetch a prompt whose beginning is on the device alone."""
    put(cache, [1, 2])
    fetch(cache, A)


def evict_all(cache: Cache, _: Subject) -> None:
    """Evict two nodes of one prompt from the device."""
    put(cache, [1, 2])
    put(cache, A)
    cache.flush()
    cache.evict(Counts(full=3))


def evict_for_host_room(cache: Cache, _: Subject) -> None:
    """Evict a victim whose backup evicts another prompt from the host."""
    demote(cache, A)
    put(cache, B)
    cache.evict(Counts(full=3))


def evict_above_host_only(cache: Cache, _: Subject) -> None:
    """Evict a node above host pages, for whose window data the host has no slots."""
    put(cache, [1, 2])
    put(cache, A, window_pages=0)
    cache.evict(Counts(full=1))
    cache.evict(Counts(full=2))


def evict_from_host(cache: Cache, _: Subject) -> None:
    """Evict a prompt from the host."""
    demote(cache, A)
    cache.evict_host(Counts(full=3))


def load_beside(cache: Cache, _: Subject) -> None:
    """Load a prompt, which evicts another from the device, perhaps with a backup to the host."""
    for tokens in (C, A):
        demote(cache, tokens)
    put(cache, B)
    put(cache, [10, 11, 12])
    cache.flush()
    cache.load_back(make_key(A, 1))


def load(cache: Cache, _: Subject) -> None:
    """Load a prompt into free slots."""
    demote(cache, A)
    cache.load_back(make_key(A, 1))


def load_and_flush(cache: Cache, subject: Subject) -> None:
    """Load a prompt, and finish the copy."""
    load(cache, subject)
    cache.flush()


def load_and_fail(cache: Cache, subject: Subject) -> None:
    """Load a prompt, and let the copy fail."""
    load(cache, subject)
    assert subject.copies is not None
    subject.copies.fail(subject.copies.open_transfer_ids[0])
    cache.poll()


def back_up(cache: Cache, _: Subject) -> None:
    """Back up a prompt, and finish the copy."""
    put(cache, A)
    cache.flush()


def back_up_and_fail(cache: Cache, subject: Subject) -> None:
    """Back up a prompt, and let the copy fail."""
    put(cache, A)
    assert subject.copies is not None
    subject.copies.fail(subject.copies.open_transfer_ids[0])
    cache.poll()


def reset(cache: Cache, _: Subject) -> None:
    """Reset a cache that has pages."""
    put(cache, A)
    cache.flush()
    cache.reset()


WIDE = evolve(THROUGH, host_slots=Counts(full=12))
SCENES = [
    Scene(Insert, THROUGH, insert_new, "stored GPU 1 2 3"),
    Scene(Insert, THROUGH, insert_half, "stored GPU 2 3"),
    Scene(Insert, THROUGH, insert_beside, "stored GPU 4 5 6, removed CPU 3 2 1"),
    Scene(InsertHost, THROUGH, fetch_new, "removed CPU 3 2 1, stored CPU 4 5 6"),
    Scene(InsertHost, BACK, refill, "stored CPU 1 2 3"),
    Scene(Evict, THROUGH, evict_all, "removed GPU 3 2 1"),
    Scene(Evict, BACK, evict_all, "stored CPU 3 1 2, removed GPU 3 2 1"),
    Scene(
        Evict, BACK, evict_for_host_room, "removed CPU 3 2 1, stored CPU 4 5 6, removed GPU 6 5 4"
    ),
    Scene(
        Evict,
        evolve(BACK, window_tokens=2, device_slots=Counts(6, 6)),
        evict_above_host_only,
        "removed CPU 3, removed GPU 2 1",
    ),
    Scene(EvictHost, THROUGH, evict_from_host, "removed CPU 3 2 1"),
    Scene(LoadBack, WIDE, load_beside, "removed GPU 6 5 4", CANON_ALONE),
    Scene(
        LoadBack,
        evolve(BACK, host_slots=Counts(full=6)),
        load_beside,
        "removed CPU 9 8 7, stored CPU 4 5 6, removed GPU 6 5 4",
        CANON_ALONE,
    ),
    Scene(LoadBack, THROUGH, load, "", CANON_ALONE),
    Scene(LoadBack, WIDE, load_beside, "removed GPU 6 5 4, stored GPU 1 2 3", EARLY_ALONE),
    Scene(Flush, THROUGH, load_and_flush, "stored GPU 1 2 3", CANON_ALONE),
    Scene(Flush, THROUGH, load_and_flush, "", EARLY_ALONE),
    Scene(Flush, BACK, load_and_flush, "stored GPU 1 2 3", CANON_ALONE),
    Scene(Flush, BACK, load_and_flush, "stored GPU 1 2 3, removed CPU 3 2 1", EXCLUSIVE_ALONE),
    Scene(Poll, THROUGH, load_and_fail, "", CANON_ALONE),
    Scene(Poll, THROUGH, load_and_fail, "removed GPU 3 2 1", EARLY_ALONE),
    Scene(Flush, THROUGH, back_up, "stored CPU 1 2 3"),
    Scene(Poll, THROUGH, back_up_and_fail, ""),
    Scene(Reset, THROUGH, reset, "cleared"),
]
