"""Actions: invalid calls are wrong in one slot and change nothing, exact ones spell their key."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from attrs import evolve

from kvcanon.conformance.cases.actions import ACTIONS, act
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.cases.corner_actions import TENANTS
from kvcanon.conformance.cases.exact_actions import EXACT, exact_action
from kvcanon.conformance.cases.prompts import LONGEST_PAGES
from kvcanon.conformance.cases.wide_actions import VAST_SLOTS
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, PrefixNotCached, ReceiptSpent, SlotNotHeld
from kvcanon.spec.operations import Inserted, Matched, Receipt
from kvcanon.spec.types import (
    CPU,
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
    """Records the last slots that were freed or inserted, and the keys of matches."""

    keys: tuple[Key, ...] = ()
    given = Slots()
    paired: tuple[bool, ...] = ()
    """Whether each of the last freed full slots had a window slot."""

    def match(self, key: Key) -> Matched:
        self.keys = (*self.keys, key)
        return super().match(key)

    def free(self, slots: Slots) -> None:
        self.given = slots
        self.paired = tuple(slot in self._state.swa_of_full for slot in slots.full)
        super().free(slots)

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
        self.given = slots
        return super().insert(
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=state_pages,
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


# Exact actions.

SMALL = CacheConfig(
    page_size=2,
    window_tokens=2,
    mamba=True,
    device_slots=Counts(4, 4, 2),
    host_slots=Counts(4, 4, 2),
    write_policy="write_back",
)


def test_an_action_spells_its_key_out() -> None:
    """Each encoding decodes to one key, and each key has one encoding."""
    client, cache = client_of(SMALL)
    spelled = [((), 0), ((0,), 0), ((1,), 0), ((0, 1), 0), ((1, 0), 0), ((1, 0), 2), ((3, 2, 1), 1)]
    for _ in range(2):
        for letters, namespace in spelled:
            act(client, *exact_action("match_exactly", letters, namespace))
    first, second = cache.keys[: len(spelled)], cache.keys[len(spelled) :]
    assert first == second
    assert len(set(first)) == len(spelled)
    assert first[-1] == Key(((3, 3), (2, 2), (1, 1)), NAMESPACES[1])


def test_a_bigram_key_is_made_of_bigrams() -> None:
    """Keys of a cache with bigrams have bigrams."""
    client = client_of(CacheConfig(page_size=2, bigram=True))[0]
    assert act(client, *exact_action("insert_exactly", (1, 0))) is None
    assert act(client, *exact_action("match_exactly", (1, 0))) is None
    assert client.cache.match(Key((((1, 1), (1, 1)),))).prefix_pages == 1


def test_what_was_put_is_there_with_its_stamps() -> None:
    """An insert has the pages that the action encodes, with written slots."""
    client, _ = client_of(SMALL)
    assert act(client, *exact_action("insert_exactly", (1, 0, 1))) is None
    key = Key(((1, 1), (0, 0), (1, 1)))
    found = client.cache.match(key)
    assert found.device_pages == 3
    stamps = client.stamps.of_key(FULL, key)
    assert [client.cache.read(FULL, GPU, slot) for slot in found.slots.full] == stamps


def test_pages_can_come_without_window_data() -> None:
    """Bare pages have no window data, and other pages have it."""
    client, _ = client_of(SMALL)
    act(client, *exact_action("allocate_exactly", (0, 1, 2), bare_pages=2))
    (request,) = client.requests
    assert request.slots.counts() == Counts(full=3, swa=1, mamba=1)
    act(client, *exact_action("allocate_exactly", (0, 1), start_pages=1))
    assert client.requests[1].start_pages == 1
    assert client.requests[1].slots.counts() == Counts(full=1, swa=1, mamba=1)


def test_a_put_that_is_refused_leaves_nothing_with_the_client() -> None:
    """The slots of a refused insert are freed."""
    client, _ = client_of(SMALL)
    refusal = act(client, *exact_action("insert_exactly", (0, 1), start_pages=1))
    assert isinstance(refusal, PrefixNotCached)
    assert not client.requests
    assert len(client.cache.free_slots(FULL, GPU)) == 4


def test_an_exact_action_makes_no_room() -> None:
    """An insert without enough free slots evicts nothing."""
    client, _ = client_of(SMALL)
    act(client, *exact_action("insert_exactly", (0, 1, 2)))
    assert isinstance(act(client, *exact_action("insert_exactly", (1, 1))), OutOfSlots)
    assert client.cache.match(Key(((0, 0), (1, 1), (2, 2)))).device_pages == 3


def test_what_is_held_can_be_released() -> None:
    """An exact lock is among the client's receipts."""
    client, _ = client_of(SMALL)
    act(client, *exact_action("insert_exactly", (0, 1)))
    assert act(client, *exact_action("lock_exactly", (0,))) is None
    assert len(client.receipts) == 1
    assert act(client, "unlock", 0, 0, 1) is None
    assert not client.cache.snapshot().holds


def test_what_was_fetched_can_be_brought_back() -> None:
    """A host insert has the pages that the action encodes."""
    client, _ = client_of(SMALL)
    act(client, *exact_action("insert_host_exactly", (0, 1, 2), start_pages=0, bare_pages=1))
    state = client.cache.snapshot()
    slots = {
        c: sum(len(n[c].slots(CPU) or ()) for n in state.below_root()) for c in (FULL, SWA, MAMBA)
    }
    assert slots == {FULL: 3, SWA: 2, MAMBA: 1}
    assert act(client, *exact_action("load_back_exactly", (0, 1, 2))) is None
    client.cache.flush()
    key = Key(((0, 0), (1, 1), (2, 2)))
    found = client.cache.match(key)
    assert [client.cache.read(FULL, GPU, slot) for slot in found.slots.full] == (
        client.stamps.of_key(FULL, key)
    )


def test_a_fetch_starts_where_it_says() -> None:
    """A host insert places no other pages."""
    client, _ = client_of(SMALL)
    refusal = act(client, *exact_action("insert_host_exactly", (0, 1, 2), start_pages=1))
    assert isinstance(refusal, PrefixNotCached)


def test_exact_actions_are_never_drawn() -> None:
    """Exact actions are not drawn, and share no name with drawn ones."""
    assert not EXACT.keys() & ACTIONS.keys()
    assert all(kind.weight == 0 for kind in EXACT.values())


@pytest.mark.parametrize("name", EXACT)
def test_exact_actions_are_total(name: str) -> None:
    """With any picks an exact action calls the cache or is refused."""
    client, _ = client_of(SMALL)
    for picks in range(0, 1 << 12, 97):
        act(client, *Action(name, picks, picks * 7, picks * 13))
        for request in list(client.requests):
            client.abort(request)
    assert client.cache.free_slots(FULL, GPU) is not None


def test_a_key_is_never_longer_than_any_other() -> None:
    """A picked key is never longer than the longest prompt."""
    client, cache = client_of(SMALL)
    act(client, *Action("match_exactly", 1 << 11))
    assert len(cache.keys[0]) <= LONGEST_PAGES


def test_an_insert_of_nothing_is_none() -> None:
    """An empty prompt is not inserted."""
    client, _ = client_of(SMALL)
    assert act(client, *exact_action("insert_exactly", ())) is None
    assert not client.requests


HOSTED = CacheConfig(
    device_slots=Counts(full=24), host_slots=Counts(full=24), write_policy=WritePolicy.WRITE_THROUGH
)


@pytest.mark.parametrize(
    ("name", "config", "refusal"),
    [
        ("write_too_much", CONFIG, BadArgument),
        ("release_wrongly", CONFIG, ReceiptSpent),
        ("settle_wrongly", HOSTED, BadArgument),
    ],
)
def test_wrong_calls_are_refused_and_change_nothing(
    name: str, config: CacheConfig, refusal: type
) -> None:
    """Forged receipts, long writes and wrong names are refused, each way."""
    client, cache = client_of(config, (0, 0, 4), (0, 1, 3))
    before = cache.snapshot()
    refusals = {type(act(client, name, a, b, c)) for a, b, c in PICKS}
    assert refusals <= {refusal, type(None)}
    assert refusal in refusals
    assert cache.snapshot() == before


class Released(ReferenceCache):
    """Records what is released; the numbers of receipts are `stride` after the last number."""

    stride = 0
    released = 0

    def lock(self, key: Key) -> Receipt:
        self._state.next_id += self.stride
        return super().lock(key)

    def unlock(self, receipt: Receipt) -> None:
        self.released += 1
        super().unlock(receipt)

    def unlock_window(self, receipt: Receipt) -> None:
        self.released += 1
        super().unlock_window(receipt)


class Strided(Released):
    """As another cache may number its receipts."""

    stride = 1


def test_how_a_cache_numbers_receipts_changes_no_call() -> None:
    """A wrong release is made of every cache, whichever numbers its receipts and copies have."""
    begin = [Action(name, 1) for name in ("know_exactly", "allocate_exactly")]
    begin += [Action("finish"), Action("lock_exactly", 1)]
    config = evolve(HOSTED, window_tokens=4, device_slots=Counts(24, 24), host_slots=Counts(24, 24))
    for a, b, c in PICKS:
        made = []
        for kind in (Released, Strided):
            subject = make_subject(Adapter("released", kind), config)
            client = Client(subject.cache, subject.can, subject.copies, Stamps(config.slot_bytes))
            for action in (*begin, Action("release_wrongly", a, b, c)):
                act(client, *action)
            assert isinstance(subject.cache, Released)
            made.append(subject.cache.released)
        assert made == [1, 1], (a, b, c)


def test_tenants_share_nothing() -> None:
    """Each pair of tenants has two namespaces."""
    assert all(one != other for one, other in TENANTS)


def test_settle_settles_what_has_arrived() -> None:
    """Copies that have ended are settled by their names."""
    client, cache = client_of(HOSTED)
    assert act(client, "serve", 0, 5, 4) is None
    assert client.copies is not None
    for transfer_id in client.copies.open_transfer_ids:
        client.copies.acknowledge(transfer_id)
    assert cache.snapshot().transfers
    assert act(client, "settle", 1, 1, 0) is None
    assert not cache.snapshot().transfers
