"""HiRadixCache, the older cache with a host tier, through its adapter, on a small fake."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field

from fakes.peers import install
from kvcanon.conformance.engines.sglang import hicache, release
from kvcanon.conformance.engines.sglang.factory import World
from kvcanon.conformance.engines.sglang.hi_radix import (
    HierarchicalCache,
    HierarchicalTree,
    PlainCopies,
    forget_at_exit,
)
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.operations import Evicted, Matched
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Slots, WritePolicy, make_key

PROMPT = make_key([1, 2, 3], 1)
CONFIG = CacheConfig(
    device_slots=Counts(full=8),
    host_slots=Counts(full=8),
    write_policy=WritePolicy.WRITE_THROUGH,
)


class Tokens(list[int]):
    """Slots of tokens, like a tensor of them."""

    def tolist(self) -> list[int]:
        """Return the slots as numbers."""
        return list(self)


class RadixKey(SimpleNamespace):
    """A key."""

    token_ids: list[int]

    def __len__(self) -> int:
        return len(self.token_ids)


@define
class Pool:
    """A pool whose slots are numbered as SGLang's are."""

    free: list[int] = field(factory=lambda: list(range(8)))
    page_size: int = 1
    capacity: int = 8

    def free_slots(self) -> tuple[int, ...]:
        """Return the free slots."""
        return tuple(self.free)

    def slots(self, tokens: list[int] | None) -> tuple[int, ...] | None:
        """Return the slots of tokens."""
        return None if tokens is None else tuple(tokens)

    slots_of = slots
    tokens = staticmethod(Tokens)


def node(number: int, tokens: list[int], parent: Any, **has: object) -> Any:  # noqa: ANN401 # In miniature.
    """Make a node below another."""
    made = SimpleNamespace(id=number, parent=parent, children={}, lock_ref=0, hit_count=1, **has)
    made.key = RadixKey(token_ids=tokens, extra_key=None)
    if parent is not None:
        parent.children[tokens[0]] = made
    return made


class Small:
    """A fake HiRadixCache with two nodes: one on both media, and one on the host only."""

    def __init__(self) -> None:
        self.root_node = node(0, [], None, value=[], host_value=[])
        self.upper = node(1, [1, 2], self.root_node, value=[4, 5], host_value=[0, 1])
        self.lower = node(2, [3], self.upper, value=None, host_value=[2])
        self.ongoing_write_through: dict[int, object] = {}
        self.ongoing_load_back: dict[int, object] = {}
        self.device, self.host = Pool([0, 1, 2, 3, 6, 7]), Pool([3, 4, 5, 6, 7])

    def match_prefix(self, _params: object) -> object:
        """Return all of the prompt, and the root as the last node with a host copy."""
        return SimpleNamespace(
            device_indices=Tokens(self.upper.value),
            host_hit_length=1,
            last_device_node=self.upper,
            best_match_node=self.root_node,
        )

    def insert(self, params: Any) -> object:  # noqa: ANN401 # The peer's.
        """Insert all tokens after those present, free nothing, and copy it to the host."""
        added = node(3, params.key.token_ids[2:], self.upper, value=params.value[2:])
        added.host_value = [self.host.free.pop(0)]
        self.ongoing_write_through[added.id] = (added, 1, [added])
        return SimpleNamespace(mamba_exist=False)

    def evict_host(self, num_tokens: int) -> None:
        """Free this many tokens, and return nothing."""
        self.host.free += self.lower.host_value[:num_tokens]

    def shutdown(self) -> None:
        """Do nothing."""


def insert_params(key: object, value: list[int]) -> SimpleNamespace:
    """Return the arguments of an insert that the adapter reads."""
    return SimpleNamespace(key=key, value=value)


@pytest.fixture(autouse=True)
def _miniatures(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the objects that the adapter looks up by name."""
    release._found.cache_clear()  # Another test may have filled it.
    install(monkeypatch)
    base = sys.modules["sglang.srt.mem_cache.base_prefix_cache"]
    monkeypatch.setattr(base, "InsertParams", insert_params)
    yield
    release._found.cache_clear()


@pytest.fixture
def small() -> Small:
    """Return the fake cache."""
    return Small()


@pytest.fixture
def cache(small: Small) -> HierarchicalCache:
    """Return the adapter of the fake cache."""
    pools: Any = {(FULL, GPU): small.device, (FULL, CPU): small.host}

    def free(slots: list[int]) -> None:
        small.device.free += slots

    allocator = SimpleNamespace(free=free)
    world = World(CONFIG, small, allocator, None, pools)
    tree = HierarchicalTree.of(world)
    tree.kinds = {FULL: "full"}
    return HierarchicalCache(world, Profile(), tree)


@pytest.fixture(autouse=True)
def _kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the names of components, which are not SGLang's here."""
    place = "kvcanon.conformance.engines.sglang.snapshot.kinds_of"
    monkeypatch.setattr(place, lambda _config: {FULL: "full"})


def test_match_reaches_beyond_what_it_names(cache: HierarchicalCache) -> None:
    """A match reaches as far as the device, beyond the last node with a host copy."""
    assert cache.match(PROMPT) == Matched(3, 2, Slots((4, 5)))


def test_nodes_have_slots_on_both_media(cache: HierarchicalCache) -> None:
    """A node shows its device slots and its host slots."""
    upper, lower = (stop.node for stop in cache.tree.path(PROMPT))
    assert [cache.tree.slots(upper, FULL, medium) for medium in (GPU, CPU)] == [(4, 5), (0, 1)]
    assert [cache.tree.slots(lower, FULL, medium) for medium in (GPU, CPU)] == [(), (2,)]


def test_host_eviction_counts_what_came_free(cache: HierarchicalCache) -> None:
    """A host eviction answers with the slots that came free, not with the argument."""
    assert cache.evict_host(Counts(full=2)) == Evicted(Counts(full=1))


def test_insert_frees_what_is_there_and_notes_the_copy(
    cache: HierarchicalCache, small: Small
) -> None:
    """An insert frees duplicate slots, and notes the copy to the host."""
    key = make_key([1, 2, 9], 1)
    small.device.free = [0, 1, 2]
    cache.held[FULL].update({3, 6, 7})
    answer = cache.insert(key, 0, Slots((3, 6, 7)))
    assert (answer.present_pages, answer.adopted.full, answer.freed.full) == (2, 1, 2)
    assert small.device.free == [0, 1, 2, 3, 6]
    (copy,) = cache.in_flight.flying
    assert answer.backups == (copy.transfer_id,)
    assert (copy.sources, copy.targets) == ({FULL: (7,)}, {FULL: (3,)})


def test_what_was_left_out_goes_by_the_hits_that_are_shown(
    cache: HierarchicalCache, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Declined backups are found by the hits that every core shows."""
    small.upper.host_value = None
    for exchangeable, hits, pages in ((False, 0, 0), (False, 1, 2), (True, 0, 2)):
        monkeypatch.setattr(hicache, "has", lambda _name, answer=exchangeable: answer)
        small.upper.hit_count = hits
        assert cache._left_out(PROMPT) == pages


@pytest.mark.parametrize("parts", [True, False])
def test_copies_are_known_by_their_nodes(
    cache: HierarchicalCache, small: Small, parts: bool
) -> None:
    """Copies are found in the records of both kinds of releases, and end."""
    books = small.ongoing_write_through
    books[2] = (small.lower, 3, [small.upper, small.lower]) if parts else small.lower
    small.ongoing_load_back[1] = small.upper
    copies = cache.in_flight
    assert isinstance(copies, PlainCopies)
    (backup,), (load,) = map(copies.new_entries, Direction)
    assert backup.nodes == ([small.upper, small.lower] if parts else [small.lower])
    assert (backup.locked, load.locked) == (small.lower, small.upper)
    hold: Any = cache._hold(7, small.lower, backup.lock)
    number = copies.add(Direction.BACKUP, backup, ({}, {}), hold)
    assert not copies.new_entries(Direction.BACKUP)
    assert not copies.settle().transfers
    books.clear()
    assert [done for done, _ in copies.settle().transfers] == [number]


def test_cache_is_let_go(
    cache: HierarchicalCache, small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache without references is garbage-collected."""
    forgotten: list[object] = []
    monkeypatch.setattr(atexit, "unregister", forgotten.append)
    forget_at_exit(small)
    assert forgotten == [small.shutdown]
