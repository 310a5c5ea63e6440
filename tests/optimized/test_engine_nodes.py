"""The nodes of a cache with an engine's own objects, beside the nodes with rows."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fast.engine_nodes import (
    KINDS,
    RESULTS,
    FreeSlots,
    Inserted,
    InsertStep,
    Key,
    Params,
    Reader,
    Side,
    listed_by_kind,
)
from fast.nodes import FULL, MAMBA, listed, made
from kvcanon.optimized import _core
from kvcanon.optimized.sglang.slot_table import HostSlots
from kvcanon.spec.errors import BadArgument, CacheUnusable, OutOfSlots
from kvcanon.spec.types import WritePolicy


@pytest.mark.parametrize("on_device", [False, True])
def test_an_insert_places_the_slots_that_the_tree_took(on_device: bool) -> None:
    """Each path has the slots that its pages came with first; the tree keeps no duplicate."""
    side = Side(page_size=2, on_device=on_device)
    done = side.insert(torch.tensor([8, 9, 4, 5, 20, 21]), 1, 2, 3, 4, 5, 6)
    assert (done.adopted, done.duplicates, done.walked_pages) == (([(0, 3)], []), (), 0)
    assert side.slots_of(done.end) == [8, 9, 4, 5, 20, 21]
    again = side.insert(torch.arange(30, 38), 1, 2, 3, 4, 7, 8, 9, 10, prev_prefix_len=2)
    assert (again.adopted, again.duplicates, again.walked_pages) == (([(2, 4)], []), [(1, 2)], 2)
    assert side.slots_of(again.end) == [8, 9, 4, 5, 34, 35, 36, 37]
    # Nobody copies, so that nobody follows the cut.
    assert (again.cuts, again.wanted) == ((), ())
    # Slots of a type that C does not read are read by Python.
    last = side.insert(torch.arange(50, 54, dtype=torch.int32), 1, 2, 11, 12)
    assert side.slots_of(last.end) == [8, 9, 52, 53]
    assert side.begin(torch.tensor([1]), 1) is None
    assert side.slots_of(side.nodes.root()) == []


@pytest.mark.parametrize(
    "wrong", [torch.tensor([5, 6, 7]), torch.tensor([5, 6, 7, -1]), torch.tensor([5, 6, 7, 2**31])]
)
def test_slots_that_cannot_be_placed_refuse_the_insert(wrong: torch.Tensor) -> None:
    """A tree that took pages without their slots would serve another request's tokens."""
    side = Side()
    with pytest.raises(BadArgument, match="slots"):
        side.insert(wrong, 1, 2, 3, 4)
    assert side.match(1, 2, 3, 4).full_kv_hit_length == 0
    done = side.insert(torch.arange(100, 116), *range(16))
    assert side.slots_of(done.end) == [*range(100, 116)]
    with pytest.raises(OutOfSlots):
        side.insert(torch.arange(2), 50, 51)


def test_an_insert_that_leaves_nothing_to_do_is_the_engines_own() -> None:
    """With the prefix that was there and its end, and the slots that nodes had before."""
    side = Side(page_size=2, window=4)
    plain: dict[str, Any] = {"track_adopted_ranges": False}
    first = side.begin(torch.arange(4), 1, 2, 3, 4, frontier=4, **plain)
    assert isinstance(first, InsertStep)
    assert first == InsertStep([], Inserted(0, 0, first.result.end))
    step = side.begin(torch.arange(20, 24), 1, 2, 3, 4, **plain)
    assert isinstance(step, InsertStep)
    (action,) = step.actions
    assert isinstance(action, FreeSlots)
    ((freed,), kind) = action
    assert (freed.tolist(), kind) == ([0, 1, 2, 3], "full")
    assert step.result == Inserted(4, 0, first.result.end)
    # Duplicates, and what is asked for, are for Python.
    again = side.insert(torch.arange(30, 34), 1, 2, 3, 4, **plain)
    assert (again.duplicates, again.adopted) == ([(0, 2)], None)
    for asked in ({"swa_branching_seqlen": 4}, {"track_adopted_ranges": True}):
        side.insert(torch.arange(4), 7, 8, 9, 10, **{**plain, **asked})
    Side(mamba=True).insert(torch.arange(1), 1, **plain)


def test_an_insert_tells_who_copies_what_to_copy() -> None:
    """The nodes, and the cuts that copies in flight follow; the pages only where they are asked."""
    side = Side(policy=WritePolicy.WRITE_THROUGH)
    side.nodes.set_wanted_hits(1)
    first = side.insert(torch.arange(4), 1, 2, 3, 4)
    assert (first.wanted, first.wanted_end, first.cuts) == ([first.end], first.end, [])
    done = side.insert(torch.arange(4), 1, 2, 5, 6, track_adopted_ranges=False)
    ((upper, lower, pages),) = done.cuts
    assert (lower, pages, done.adopted) == (first.end, 2, None)
    assert (done.wanted, done.wanted_end) == ([upper, done.end], done.end)


def test_a_match_has_the_fields_of_the_engine() -> None:
    """Prefix, ends, branch and cuts are where SGLang looks for them."""
    side = Side(page_size=2, window=4, mamba=True)
    end = side.insert(torch.arange(8), *range(8), frontier=6).end
    found = side.match(*range(8))
    # No window of four tokens is there, and no state: nothing can be used.
    root = side.nodes.root()
    assert found == (0, root, root, root, 0, 0, 8, 0, 8, None, 8, [], end, None)
    assert side.match(*range(6), 50).mamba_branching_seqlen == 4
    assert side.match(*range(3)).mamba_branching_seqlen is None
    assert side.match(7) == (0, root, root, root, 0, 0, None, 0, None, None, 0, [], None, None)
    state = side.insert(torch.arange(8), *range(8), mamba_value=torch.tensor([3]))
    assert state.adopted is not None
    assert (state.state, state.adopted[1] != []) == (0, True)
    found = side.match(*range(8))
    assert found[:6] == (8, end, end, end, 0, 0)
    assert (found.swa_branching_seqlen, found.mamba_branching_seqlen) == (None, None)


def test_cuts_of_a_match_are_told() -> None:
    """A match that cuts a node has the actions that the core makes of it."""
    side = Side()
    side.insert(torch.arange(6), *range(6))
    found = side.match(0, 1, 2, 3, 40)
    ((upper, _, pages),) = side.reader.told[0]
    assert (len(side.reader.told), upper, pages) == (1, found.best_match_node, 4)
    assert (found.cache_actions, found.device_prefix_len) == (["cut"], 4)


def test_a_key_that_is_not_plain_is_read_by_the_core() -> None:
    """Namespaces, salts, limits and bigrams are the core's; a match finds its own alone."""
    side = Side()
    side.insert(torch.arange(4), 1, 2, 3, 4)
    for key in (
        Key(array("q", [1, 2, 3, 4]), extra_key="lora"),
        Key(array("q", [1, 2, 3, 4]), cache_salt="salt"),
    ):
        side.reader.number, _ = side.nodes.add_namespace(repr(key).encode(), b"", b"")
        assert side.engine.match(side.reader, Params(key)).full_kv_hit_length == 0  # type: ignore[attr-defined]
    side.reader.number = 0
    limited = Params(Key(array("q", [1, 2, 3, 4]), limit=3))
    assert side.engine.match(side.reader, limited).device_prefix_len == 3  # type: ignore[attr-defined]
    pairs = Side(bigram=True)
    done = pairs.insert(torch.arange(3), 1, 2, 3, 4)
    assert done.adopted == ([(0, 3)], [])
    assert pairs.match(1, 2, 3).device_prefix_len == 2
    assert pairs.match(1).device_prefix_len == 0


@pytest.mark.parametrize("on_device", [False, True])
def test_victims_give_their_slots_back(on_device: bool) -> None:
    """By component, as tensors, with how many tokens; window data by its full slots."""
    side = Side(page_size=2, window=2, mamba=True, on_device=on_device)
    done = side.insert(torch.arange(10, 14), 1, 2, 3, 4, mamba_value=torch.tensor([1]))
    states = side.device[2]
    assert states is not None
    states.put(side.nodes.slots(done.end, None, MAMBA), torch.tensor([7]))
    step = side.evict(MAMBA, 1)
    assert (step.cache_actions, step.node_id, step.made_progress, step.lost) == ([], None, True, 2)
    # The node of the last window, and its state.
    freed = listed_by_kind(step.device)
    assert freed == {"swa": [[12, 13]], "mamba": [[7]], "full": [[12, 13]]}
    # SGLang finds the slots of windows by full slots, so that those are freed first.
    assert (next(iter(freed)), step.tokens) == ("swa", {"swa": 2, "mamba": 1, "full": 2})


def test_no_victim_and_no_amount() -> None:
    """Nothing to evict is an answer; no amount, and no such component, are refused."""
    side = Side()
    assert side.evict(FULL, 5) == ({}, {}, {}, [], None, False, 0)
    for component, amount in ((FULL, 0), (FULL, -1), (3, 1), (-1, 1)):
        with pytest.raises(BadArgument):
            side.engine.evict_step(component, amount)
    with pytest.raises(BadArgument, match="no node of this cache"):
        side.engine.evict_node(77, FULL)
    with pytest.raises(BadArgument, match="no node of this cache"):
        side.engine.slots(77, side.nodes.root())


@pytest.mark.parametrize("on_device", [False, True])
def test_a_window_that_comes_back_brings_its_full_slots(on_device: bool) -> None:
    """The nodes take them, and what they had before comes free, in the order of the path."""
    side = Side(page_size=2, window=4, on_device=on_device)
    side.insert(torch.arange(4), 1, 2, 3, 4, frontier=4)
    side.insert(torch.arange(10, 18), *range(1, 9), frontier=8)
    assert side.match(*range(1, 9)).device_prefix_len == 0
    done = side.insert(torch.arange(20, 28), *range(1, 9), frontier=2)
    assert (done.adopted, done.locked) == (([(1, 4)], [(1, 4)]), ())
    assert done.replaced is not None
    assert done.replaced.tolist() == [2, 3, 14, 15, 16, 17]
    assert done.duplicates == [(0, 1)]
    assert side.slots_of(done.end) == [0, 1, *range(22, 28)]


@pytest.mark.parametrize("on_device", [False, True])
def test_what_a_lock_holds_keeps_its_full_slots(on_device: bool) -> None:
    """The tree names the node, its slots, and the pages whose windows the request has."""
    side = Side(window=2, on_device=on_device)
    upper = side.insert(torch.arange(2), 1, 2, frontier=2).end
    side.insert(torch.arange(10, 13), 1, 2, 3, frontier=3)
    receipt, _, _ = side.nodes.lock(upper)
    done = side.insert(torch.arange(20, 24), 1, 2, 3, 4)
    ((node, kept, first, last),) = done.locked
    assert (node, kept.tolist(), first, last) == (upper, [0, 1], 0, 2)
    assert done.adopted == ([(3, 4), (2, 3)], [(0, 2), (2, 4)])
    assert done.replaced is not None
    assert done.replaced.tolist() == [12]
    assert side.slots_of(done.end) == [0, 1, 22, 23]
    side.nodes.unlock(upper, receipt)


def pages_of(taken: list[tuple[int, _core.Rows]]) -> list[tuple[int, int]]:
    """The pages of rows: first, one past the last."""
    return [(first, first + len(rows)) for first, rows in taken]


PROMPTS = st.lists(st.integers(1, 3), max_size=7)
STEPS = st.lists(st.tuples(st.sampled_from("mie"), PROMPTS, st.integers(0, 3)), max_size=25)


@pytest.mark.parametrize("window", [0, 2])
@pytest.mark.parametrize("on_device", [False, True])
@given(steps=STEPS)
def test_engine_nodes_do_what_nodes_do(
    steps: list[tuple[str, list[int], int]], *, window: int, on_device: bool
) -> None:
    """The same calls on two caches, by rows and by an engine's objects, end in the same tree."""
    side = Side(window=window, on_device=on_device, slots=12)
    _, nodes = made(window=window, slots=12)
    for at, (what, tokens, number) in enumerate(steps):
        words = array("q", tokens)
        if what == "m":
            found, seen = nodes.match(words), side.match(*tokens)
            assert seen.device_prefix_len == found.device_pages
            assert (seen.best_match_node, seen.full_kv_hit_length) == (
                found.end,
                found.walked_pages,
            )
        elif what == "i":
            given_slots = torch.arange(100 * at, 100 * at + len(tokens))
            owned = min(number, len(tokens))
            try:
                done = nodes.insert(words, window_from=owned) if tokens else None
            except OutOfSlots:
                with pytest.raises(OutOfSlots):
                    side.insert(given_slots, *tokens, frontier=owned)
                continue
            if done is None:
                assert side.begin(given_slots, *tokens, frontier=owned) is None
                continue
            placed = side.insert(given_slots, *tokens, frontier=owned)
            assert placed.adopted is not None
            full, windows = placed.adopted
            assert full == [*pages_of(done.full), *pages_of(done.healed)]
            assert windows == [(first, last) for _, _, first, last, _ in done.windows]
            fields = ("end", "walked_pages", "state")
            assert [getattr(placed, name) for name in fields] == [
                getattr(done, name) for name in fields
            ]
            assert list(placed.duplicates) == done.duplicates
            path = side.slots_of(placed.end)
            for first, last in full:
                assert path[first:last] == given_slots[first:last].tolist()
        else:
            step = nodes.evict_step(FULL, number + 1)
            left = side.evict(FULL, number + 1)
            assert (left.made_progress, left.lost) == (step.node != 0, step.lost)
            counts = [None if rows is None else len(rows) for rows in listed(step.device)]
            assert [left.tokens.get(kind) for kind in KINDS] == counts
            sizes = {kind: sum(map(len, each)) for kind, each in left.device.items()}
            assert sizes == left.tokens


def test_a_cache_that_is_closed_refuses() -> None:
    """As every call of it."""
    core, nodes = made()
    rest = KINDS, (HostSlots(16, 1), None, None), (None, None, None)
    engine = _core.EngineNodes(nodes, RESULTS, *rest, 1)
    core._close()
    with pytest.raises((BadArgument, CacheUnusable)):
        engine.insert(Reader(), Params(Key(array("q", [1]))), torch.tensor([1]), 0)
    with pytest.raises(BadArgument, match="14 fields of a match"):
        _core.EngineNodes(nodes, RESULTS._replace(match=Params), *rest, 1)
    with pytest.raises(BadArgument, match="state_grid"):
        _core.EngineNodes(nodes, RESULTS, *rest, 0)
