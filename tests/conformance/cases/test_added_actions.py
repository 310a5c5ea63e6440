"""Added actions reach what they are for, and change nothing where they call wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.added_actions import ADDED, BY_REQUESTS, DRAWN
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer, make_subject
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import AllBlocksCleared
from kvcanon.spec.operations import Evicted, Inserted, Receipt
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import GPU, MAMBA, Counts, Key, Slots, WritePolicy, make_key
from serving import ServingCache

CONFIG = CacheConfig(
    window_tokens=4,
    mamba=True,
    device_slots=Counts(24, 24, 4),
    host_slots=Counts(24, 24, 4),
    write_policy=WritePolicy.WRITE_THROUGH,
    max_pending_events=3,
)
PICKS = [(a, b, c) for a in range(4) for b in range(0, 60, 7) for c in range(2)]


class Heard(ReferenceCache):
    """Records its answers by operation."""

    def __init__(self, config: CacheConfig, engine: TransferEngine) -> None:
        super().__init__(config, engine)
        self.inserted: list[Inserted] = []
        self.evicted: list[Counts] = []
        self.allocated: list[Counts] = []

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        told = super().insert(
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=state_pages,
        )
        self.inserted.append(told)
        return told

    def allocate(self, counts: Counts) -> Slots:
        self.allocated.append(counts)
        return super().allocate(counts)

    def evict(self, counts: Counts) -> Evicted:
        evicted = super().evict(counts)
        self.evicted.append(evicted.freed)
        return evicted


def client_of(config: CacheConfig = CONFIG) -> tuple[Client, Heard]:
    """Return a client of a new cache."""
    subject = make_subject(Adapter("heard", Heard), config)
    assert isinstance(subject.cache, Heard)
    return Client(
        subject.cache, subject.can, subject.copies, Stamps(config.slot_bytes)
    ), subject.cache


def test_two_requests_compute_the_same_pages() -> None:
    """The slots of the second insert are duplicates, and are freed."""
    client, cache = client_of()
    assert act(client, "compute_twice", 0, 0, 1) is None
    first, second = cache.inserted
    assert (first.adopted.full, first.freed.full) == (1, 0)
    assert second.freed.full == 1


def test_several_states_are_allocated_and_evicted_at_once() -> None:
    """More states are asked for than are free, so that two leave in one call."""
    client, cache = client_of()
    for a, b, c in PICKS:
        act(client, "take_states", a, b, c)
        client.settle()
    assert {counts.mamba for counts in cache.allocated} >= {2, 3, 4}
    assert max(freed.mamba for freed in cache.evicted) >= 2
    assert not client.blocks


def test_a_full_log_is_cleared() -> None:
    """Events are given up, and the log begins anew with the reset."""
    client, cache = client_of()
    assert act(client, "clear_a_full_log", 0, 0, 0) is None
    assert cache.take_events() == (AllBlocksCleared(),)


def test_copies_are_polled_before_they_end() -> None:
    """Copies are in flight after the polls."""
    client, cache = client_of()
    assert act(client, "poll_early", 0, 1, 1) is None
    assert cache.snapshot().transfers


@pytest.mark.parametrize("name", ["hand_over_oddly", "fetch_wrongly"])
def test_wrong_calls_change_nothing(name: str) -> None:
    """Each call is refused, and nothing stays allocated."""
    client, cache = client_of()
    act(client, "compute_twice", 0, 0, 1)
    client.settle()
    cache.take_events()
    free = cache.snapshot().pools[MAMBA, GPU].free_set, cache.snapshot().nodes
    for picks in PICKS:
        assert act(client, name, *picks) is None
    assert (cache.snapshot().pools[MAMBA, GPU].free_set, cache.snapshot().nodes) == free
    assert not client.blocks


class KeepsWhatItTook(ReferenceCache):
    """Serves an insert of two states, which its client then no longer has."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        if len(slots.mamba) > 1:
            return Inserted(0, Counts(), slots.counts())
        return super().insert(
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=state_pages,
        )


def test_what_a_cache_took_is_not_freed_again() -> None:
    """The action ends at the first call that is served."""
    subject = make_subject(Adapter("keeps", KeepsWhatItTook), CONFIG)
    client = Client(subject.cache, subject.can, subject.copies, Stamps(CONFIG.slot_bytes))
    assert act(client, "hand_over_oddly", 0, 0, 0) is None
    assert not client.blocks


@pytest.mark.parametrize("name", ADDED)
def test_added_actions_are_total(name: str) -> None:
    """Without a window, states and a host, any picks call the cache or are refused."""
    client, _ = client_of(CacheConfig(device_slots=Counts(full=4)))
    for a, b, c in PICKS:
        refusal = act(client, name, a, b, c)
        assert refusal is None or isinstance(refusal, CacheError)
    assert set(ADDED) <= set(DRAWN)


# What the draws are for.


class LeaksDuplicates(ServingCache):
    """Leaks the pages that another request inserted since this one began."""

    def finish(self, request_id: int) -> None:
        served = self.get(request_id)
        twice = self.cache.match(served.key).device_pages - served.start_pages
        if twice <= 0:
            super().finish(request_id)
            return
        own = Slots(served.own.full[twice:], served.own.swa[twice:], served.own.mamba)
        self.cache.insert(served.key, served.start_pages + twice, own)
        self.end(request_id)


class EvictsOneState(ReferenceCache):
    """Evicts one state, however many are asked for."""

    def evict(self, counts: Counts) -> Evicted:
        return super().evict(Counts(counts.full, counts.swa, min(1, counts.mamba)))


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        (Adapter("leaks", LeaksDuplicates, kind=CacheKind.REQUEST), BY_REQUESTS[0]),
        (Adapter("one", EvictsOneState), "take_states"),
    ],
)
def test_added_actions_find_their_faults(adapter: Adapter, name: str) -> None:
    """A case that finds the fault has the action; without it the fault is not found there."""
    drawn = (draw_case(seed, Offer(), kind=adapter.kind) for seed in range(200))
    having = (case for case in drawn if any(action.name == name for action in case.actions))
    assert any(play(case, [adapter])[0] for case in having)


@pytest.mark.parametrize("issued", [4, 5, 6, 99])
def test_as_many_unlocks_are_tried_whatever_numbers_receipts_have(issued: int) -> None:
    """A cache whose receipt has the number of a copy gets as many calls as one where none has.

    Otherwise two caches that number them in other ways would be said to disagree.
    """
    key = make_key([1, 2], 1)
    tried: list[Receipt] = []
    client = SimpleNamespace(
        copies=SimpleNamespace(open_transfer_ids=[5]),
        cache=SimpleNamespace(unlock=tried.append),
        keys=[key],
        known=lambda _a, _b: key,
        requests=[],
        receipts=[Receipt(issued, key)],
        spent=[],
    )
    ADDED["unlock_copy"].do(cast("Client", client), 0, 0, 0)
    assert len(tried) == 3
    assert Receipt(issued, key) not in tried
