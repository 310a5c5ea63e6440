"""Exact actions: their calls depend on their picks only, not on earlier calls."""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.actions import ACTIONS, act
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.cases.exact_actions import EXACT, exact_action
from kvcanon.conformance.cases.prompts import LONGEST_PAGES
from kvcanon.conformance.protocol.adapter import Adapter, make_subject
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots, PrefixNotCached
from kvcanon.spec.operations import Matched
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key

CONFIG = CacheConfig(
    page_size=2,
    window_tokens=2,
    mamba=True,
    device_slots=Counts(4, 4, 2),
    host_slots=Counts(4, 4, 2),
    write_policy="write_back",
)


class Overheard(ReferenceCache):
    """Records the keys of matches."""

    keys: tuple[Key, ...] = ()

    def match(self, key: Key) -> Matched:
        """Record the key, and match it."""
        self.keys = (*self.keys, key)
        return super().match(key)


def client_of(config: CacheConfig = CONFIG) -> Client:
    """Return a client of a new cache."""
    subject = make_subject(Adapter("overheard", Overheard), config)
    return Client(subject.cache, subject.can, subject.copies, Stamps(config.slot_bytes))


def test_an_action_spells_its_key_out() -> None:
    """Each encoding decodes to one key, and each key has one encoding."""
    client = client_of()
    spelled = [((), 0), ((0,), 0), ((1,), 0), ((0, 1), 0), ((1, 0), 0), ((1, 0), 2), ((3, 2, 1), 1)]
    for _ in range(2):
        for letters, namespace in spelled:
            act(client, *exact_action("match_exactly", letters, namespace))
    assert isinstance(client.cache, Overheard)
    first, second = client.cache.keys[: len(spelled)], client.cache.keys[len(spelled) :]
    assert first == second
    assert len(set(first)) == len(spelled)
    assert first[-1] == Key(((3, 3), (2, 2), (1, 1)), NAMESPACES[1])


def test_a_bigram_key_is_made_of_bigrams() -> None:
    """Keys of a cache with bigrams have bigrams."""
    client = client_of(CacheConfig(page_size=2, bigram=True))
    assert act(client, *exact_action("insert_exactly", (1, 0))) is None
    assert act(client, *exact_action("match_exactly", (1, 0))) is None
    assert client.cache.match(Key((((1, 1), (1, 1)),))).prefix_pages == 1


def test_what_was_put_is_there_with_its_stamps() -> None:
    """An insert has the pages that the action encodes, with written slots."""
    client = client_of()
    assert act(client, *exact_action("insert_exactly", (1, 0, 1))) is None
    key = Key(((1, 1), (0, 0), (1, 1)))
    found = client.cache.match(key)
    assert found.device_pages == 3
    stamps = client.stamps.of_key(FULL, key)
    assert [client.cache.read(FULL, GPU, slot) for slot in found.slots.full] == stamps


def test_pages_can_come_without_window_data() -> None:
    """Bare pages have no window data, and other pages have it."""
    client = client_of()
    act(client, *exact_action("allocate_exactly", (0, 1, 2), bare_pages=2))
    (request,) = client.requests
    assert request.slots.counts() == Counts(full=3, swa=1, mamba=1)
    act(client, *exact_action("allocate_exactly", (0, 1), start_pages=1))
    assert client.requests[1].start_pages == 1
    assert client.requests[1].slots.counts() == Counts(full=1, swa=1, mamba=1)


def test_a_put_that_is_refused_leaves_nothing_with_the_client() -> None:
    """The slots of a refused insert are freed."""
    client = client_of()
    refusal = act(client, *exact_action("insert_exactly", (0, 1), start_pages=1))
    assert isinstance(refusal, PrefixNotCached)
    assert not client.requests
    assert len(client.cache.free_slots(FULL, GPU)) == 4


def test_an_exact_action_makes_no_room() -> None:
    """An insert without enough free slots evicts nothing."""
    client = client_of()
    act(client, *exact_action("insert_exactly", (0, 1, 2)))
    assert isinstance(act(client, *exact_action("insert_exactly", (1, 1))), OutOfSlots)
    assert client.cache.match(Key(((0, 0), (1, 1), (2, 2)))).device_pages == 3


def test_what_is_held_can_be_released() -> None:
    """An exact lock is among the client's receipts."""
    client = client_of()
    act(client, *exact_action("insert_exactly", (0, 1)))
    assert act(client, *exact_action("lock_exactly", (0,))) is None
    assert len(client.receipts) == 1
    assert act(client, "unlock", 0, 0, 1) is None
    assert not client.cache.snapshot().holds


def test_what_was_fetched_can_be_brought_back() -> None:
    """A host insert has the pages that the action encodes."""
    client = client_of()
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
    client = client_of()
    refusal = act(client, *exact_action("insert_host_exactly", (0, 1, 2), start_pages=1))
    assert isinstance(refusal, PrefixNotCached)


def test_exact_actions_are_never_drawn() -> None:
    """Exact actions are not drawn, and share no name with drawn ones."""
    assert not EXACT.keys() & ACTIONS.keys()
    assert all(kind.weight == 0 for kind in EXACT.values())


@pytest.mark.parametrize("name", EXACT)
def test_exact_actions_are_total(name: str) -> None:
    """With any picks an exact action calls the cache or is refused."""
    client = client_of()
    for picks in range(0, 1 << 12, 97):
        act(client, *Action(name, picks, picks * 7, picks * 13))
        for request in list(client.requests):
            client.abort(request)
    assert client.cache.free_slots(FULL, GPU) is not None


def test_a_key_is_never_longer_than_any_other() -> None:
    """A picked key is never longer than the longest prompt."""
    client = client_of()
    act(client, *Action("match_exactly", 1 << 11))
    assert isinstance(client.cache, Overheard)
    assert len(client.cache.keys[0]) <= LONGEST_PAGES


def test_an_insert_of_nothing_is_none() -> None:
    """An empty prompt is not inserted."""
    client = client_of()
    assert act(client, *exact_action("insert_exactly", ())) is None
    assert not client.requests
