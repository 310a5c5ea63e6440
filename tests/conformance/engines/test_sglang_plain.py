"""The older caches, whose nodes have no components, through their adapters, on fake trees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvcanon.conformance.engines.sglang.keys import Keys
from kvcanon.conformance.engines.sglang.radix import RadixTree, WindowTree
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import FULL, GPU, SWA, make_key

PROMPT = make_key([1, 2, 3], 1)
SLOTS = SimpleNamespace(slots=lambda tokens: None if tokens is None else tuple(tokens))


class Leads:
    """Maps full slots to window slots: ten higher."""

    def __getitem__(self, full: list[int]) -> list[int]:
        return [slot + 10 for slot in full]


def node(tokens: list[int], parent: Any = None, **more: object) -> Any:  # noqa: ANN401 # In miniature.
    """Make a node of an older cache, below another."""
    key = SimpleNamespace(token_ids=tokens, extra_key=None)
    made = SimpleNamespace(id=len(tokens), key=key, parent=parent, children={}, **more)
    if parent is not None:
        key = type("Key", (SimpleNamespace,), {"__len__": lambda self: len(self.token_ids)})(
            token_ids=tokens, extra_key=None
        )
        made.key = key
        parent.children[tokens[0]] = made
    return made


@pytest.fixture
def windowed() -> WindowTree:
    """Return two nodes: the upper one has lost its window data, the lower one is locked."""
    # Its root's key is a list.
    root = SimpleNamespace(id=0, key=[], parent=None, children={}, value=[])
    upper = node([1, 2], root, value=[4, 5], swa_tombstone=True, full_lock_ref=1, swa_lock_ref=0)
    lower = node([3], upper, value=[6], swa_tombstone=False, full_lock_ref=1, swa_lock_ref=1)
    upper.swa_uuid, lower.swa_uuid = None, 7
    chain = SimpleNamespace(prv="prev", head=object(), cache={upper.id, lower.id})
    chain.tail = SimpleNamespace(prev=upper)
    upper.prev, lower.prev = lower, chain.head
    windows = SimpleNamespace(prv="swa_prev", head=object(), cache={lower.id})
    windows.tail = SimpleNamespace(swa_prev=lower)
    lower.swa_prev = windows.head
    cache = SimpleNamespace(
        root_node=root,
        full_lru_list=chain,
        swa_lru_list=windows,
        full_evictable_size_=0,
        full_protected_size_=3,
        swa_evictable_size_=0,
        swa_protected_size_=1,
    )
    pools: Any = {(FULL, GPU): SLOTS, (SWA, GPU): SLOTS}
    return WindowTree(cache, Keys(1, "q"), {FULL: "full", SWA: "swa"}, pools, Leads())


def test_window_data_is_where_full_slots_lead(windowed: WindowTree) -> None:
    """Window data is shown in the slots to which full slots map, and not in tombstones."""
    upper, lower = (stop.node for stop in windowed.path(PROMPT))
    assert windowed.slots(upper, FULL, GPU) == (4, 5)
    assert windowed.slots(upper, SWA, GPU) == ()
    assert windowed.slots(lower, SWA, GPU) == (16,)
    assert windowed.slots(windowed.root, FULL, GPU) == ()


def test_window_locks_are_their_own(windowed: WindowTree) -> None:
    """Window locks and full locks are distinguished, and the window's mark is shown."""
    upper, lower = (stop.node for stop in windowed.path(PROMPT))
    assert (windowed.data(upper, FULL).lock_ref, windowed.data(upper, SWA).lock_ref) == (1, 0)
    assert windowed.data(lower, SWA).metadata["uuid"] == 7
    assert windowed.usage(FULL) == Usage(0, 3)
    assert windowed.usage(SWA) == Usage(0, 1)


def test_orders_are_those_of_the_lists(windowed: WindowTree) -> None:
    """Each LRU order is that of its own list, least recently used first."""
    upper, lower = (stop.node.id for stop in windowed.path(PROMPT))
    assert windowed.order(FULL, GPU) == [upper, lower]
    assert windowed.order(SWA, GPU) == [lower]


def test_clock_is_told_to_the_nanosecond() -> None:
    """Two nodes that are made one after the other have different ages."""
    root = node([], value=[], lock_ref=1)
    first = node([1], root, value=[1], lock_ref=0, creation_time=1e6)
    second = node([2, 3], root, value=[2, 3], lock_ref=2, creation_time=1e6 + 1e-6)
    cache = SimpleNamespace(root_node=root, evictable_size_=1, protected_size_=2)
    pools: Any = {(FULL, GPU): SLOTS}
    tree = RadixTree(cache, Keys(1, "q"), {FULL: "full"}, pools)
    assert tree.born(first) < tree.born(second)
    assert tree.usage(FULL) == Usage(1, 2)
    assert tree.data(second, FULL).lock_ref == 2
