"""The actions: an invalid call is wrong in one slot, and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.cases.wide_actions import VAST_SLOTS
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, SlotNotHeld
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import (
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Slot,
    Slots,
    WritePolicy,
)

CONFIG = CacheConfig(window_tokens=4, mamba=True, device_slots=Counts(24, 24, 4))
PICKS = tuple(product(range(2), range(12), range(12)))
each_way = pytest.mark.parametrize("name", ["free_wrongly", "insert_wrongly"])


class Overheard(ReferenceCache):
    """Records the last slots that were freed or inserted."""

    given = Slots()
    paired: tuple[bool, ...] = ()
    """Whether each of the last freed full slots had a window slot."""

    def free(self, slots: Slots) -> None:
        """Record the slots, and free them."""
        self.given = slots
        self.paired = tuple(slot in self._state.swa_of_full for slot in slots.full)
        super().free(slots)

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Record the slots, and insert them."""
        self.given = slots
        return super().insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )


def client_of(config: CacheConfig, *prompts: tuple[int, int, int]) -> tuple[Client, Overheard]:
    """Return a client of a new cache, with a request for each of some prompts."""
    subject = make_subject(Adapter("overheard", Overheard), config)
    assert isinstance(subject.cache, Overheard)
    client = Client(subject.cache, subject.can, subject.copies, Stamps(config.slot_bytes))
    for picks in prompts:
        assert act(client, "admit", *picks) is None
    return client, subject.cache


def held_by(client: Client, component: Component) -> list[Slot]:
    """Return the slots that requests hold."""
    return [slot for request in client.requests for slot in request.slots[component]]


@pytest.mark.parametrize(
    ("name", "never"),
    [("free_wrongly", set()), ("insert_wrongly", {(MAMBA, BadArgument)})],
)
def test_one_slot_is_wrong_and_the_others_are_held(
    name: str, never: set[tuple[Component, type]]
) -> None:
    """An invalid call is refused, and does not change the client."""
    client, cache = client_of(CONFIG, (0, 0, 4), (0, 1, 3))
    books = [request.slots for request in client.requests]
    before = cache.snapshot()
    held = {component: held_by(client, component) for component in (FULL, SWA, MAMBA)}
    seen: set[tuple[Component, type]] = set()
    for a, b, c in PICKS:
        refusal = act(client, name, a, b, c)
        foreign = {each for each, some in cache.given if not set(some) <= set(held[each])}
        twice = {each for each, some in cache.given if len(set(some)) < len(some)}
        (component,) = foreign | twice
        assert isinstance(refusal, SlotNotHeld if foreign else BadArgument)
        assert sum(len(set(some) & set(held[each])) for each, some in cache.given) > 2
        seen.add((component, type(refusal)))
    assert seen == set(product((FULL, SWA, MAMBA), (SlotNotHeld, BadArgument))) - never
    assert [request.slots for request in client.requests] == books
    assert cache.snapshot() == before


def test_wrong_slot_is_anywhere_among_the_others() -> None:
    """The wrong slot is neither always the first nor always the last."""
    client, cache = client_of(CacheConfig(device_slots=Counts(full=12)), (0, 0, 3))
    (request,) = client.requests
    places = set()
    for b in range(8):
        act(client, "free_wrongly", 0, b, 0)
        assert set(cache.given.full) > set(request.slots.full)
        places.add(
            next(at for at, slot in enumerate(cache.given.full) if slot not in request.slots.full)
        )
    assert places == set(range(len(request.slots.full) + 1))


@each_way
def test_where_requests_hold_every_slot_another_is_made_up(name: str) -> None:
    """If requests hold every slot, the wrong slot is outside the pool."""
    client, cache = client_of(CacheConfig(device_slots=Counts(full=2)), (0, 0, 0))
    assert sorted(held_by(client, FULL)) == [0, 1]
    assert isinstance(act(client, name, 0, 0, 0), SlotNotHeld)
    assert 2 in cache.given.full


@each_way
def test_without_slots_nothing_is_handed_over(name: str) -> None:
    """Without requests, no slots are inserted."""
    client, cache = client_of(CONFIG)
    assert act(client, name, 1, 2, 3) is None
    assert cache.given == Slots()


def test_slots_with_and_without_a_window_are_freed_in_one_call() -> None:
    """One call frees full slots with window slots and full slots without, in both orders."""
    client, cache = client_of(CONFIG)
    before = cache.snapshot()
    orders = set()
    for c in range(4):
        assert act(client, "free_together", 2, 1, c) is None
        assert (len(cache.given.full), len(cache.given.swa)) == (5, 3)
        orders.add(cache.paired)
        assert cache.snapshot().pools[FULL, GPU].free_set == before.pools[FULL, GPU].free_set
    assert orders == {(True,) * 3 + (False,) * 2, (False,) * 2 + (True,) * 3}


def test_more_nodes_are_made_than_a_byte_can_number() -> None:
    """`sprout` makes more than 256 nodes."""
    client, cache = client_of(CacheConfig(device_slots=Counts(full=VAST_SLOTS)))
    assert act(client, "sprout", 1, 0, 0) is None
    assert len(cache.snapshot().nodes) > 256


def test_fetched_pages_go_on_where_the_host_lacks_those_before() -> None:
    """`fetch_beyond` inserts below a page for which the host has no free slot."""
    room = Counts(full=12)
    config = CacheConfig(
        device_slots=room,
        host_slots=Counts(full=1),
        write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE,
    )
    client, cache = client_of(config)
    assert act(client, "fetch_beyond", 0, 1, 0) is None
    state = cache.snapshot()
    assert [node[FULL].host for node in state.below_root()] == [None]


def test_a_fetch_is_asked_of_a_cache_without_a_host() -> None:
    """`fetch_beyond` calls a cache without a host tier, too."""
    client, _ = client_of(CONFIG)
    refusals = {str(act(client, "ask_nonsense", 0, 0, c)) for c in range(40)}
    assert any("insert_host" in each for each in refusals)
