"""The nodes of a cache by handle, for a caller that keeps tables of slots and copies itself."""

from __future__ import annotations

import numpy as np
import pytest

from array_api import new_cache
from kvcanon.optimized import _core
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, PrefixNotCached, ReceiptSpent
from kvcanon.spec.types import Counts, WritePolicy
from node_cores import FULL, MAMBA, SWA, made, prompt, sound


def test_a_prompt_is_inserted_and_matched_by_node() -> None:
    """The end of an insert is the end of the match, and the rows are in the order of the pages."""
    core, nodes = made(page_size=2)
    done = nodes.insert(prompt(1, 2, 3, 4, 5, 6, 7))
    assert done.walked_pages == 0
    ((first, rows),) = done.full
    assert (first, rows.tolist()) == (0, [0, 1, 2])
    found = nodes.match(prompt(1, 2, 3, 4, 5, 6))
    assert (found.prefix_pages, found.device_pages, found.walked_pages) == (3, 3, 3)
    assert found.end == found.device_end == found.last == done.end
    assert nodes.slots(found.end, nodes.root()).tolist() == [0, 1, 2]
    sound(core)


def test_a_cut_leaves_the_handle_to_the_lower_part() -> None:
    """A match that ends inside a node makes a new node above, and says so."""
    core, nodes = made()
    end = nodes.insert(prompt(1, 2, 3, 4)).end
    found = nodes.match(prompt(1, 2, 9))
    assert found.cuts == [(found.end, end, 2)]
    with pytest.raises(BadArgument, match="above"):
        nodes.slots(found.end, end)
    assert found.last == found.end
    assert nodes.parent(end) == found.end
    assert nodes.children(found.end) == [end]
    assert nodes.describe(end)[:2] == (2, 4)
    assert nodes.slots(end, found.end).tolist() == nodes.slots(end).tolist() == [2, 3]
    assert nodes.slots(end, nodes.root()).runs() == [(0, 4)]
    assert len(nodes.slots(end, end)) == 0
    assert nodes.all() == [nodes.root(), found.end, end]
    sound(core)


def test_a_handle_is_never_given_twice() -> None:
    """The handle of a node that is gone is refused, also where its place has another node."""
    _, nodes = made()
    seen = set()
    for _ in range(3):
        for tokens in ((1, 2), (3, 4)):
            end = nodes.insert(prompt(*tokens)).end
            assert end not in seen
            seen.add(end)
        while nodes.evict_step(FULL).node:
            pass
        for gone in seen:
            with pytest.raises(BadArgument, match="is no node of this cache"):
                nodes.describe(gone)
    root = nodes.root()
    held = nodes.insert(prompt(7)).end
    nodes.lock(held)
    nodes.forget()
    assert nodes.root() != root
    assert nodes.insert(prompt(7)).end not in seen | {held, root}


def test_the_caller_gives_what_the_tree_lacks_and_keeps_the_rest() -> None:
    """Pages that the tree has are duplicates, from those that the caller owns on."""
    core, nodes = made(slots=8)
    nodes.insert(prompt(1, 2, 3, 4))
    again = nodes.insert(prompt(1, 2, 3, 4, 5, 6), owned_pages=1)
    assert again.walked_pages == 4
    assert again.duplicates == [(1, 4)]
    assert [(first, rows.tolist()) for first, rows in again.full] == [(4, [4, 5])]
    sound(core)


def test_an_insert_is_refused_as_a_whole() -> None:
    """A refused insert changes nothing: neither the tree nor the rows."""
    core, nodes = made(slots=4)
    nodes.insert(prompt(1, 2, 3))
    with pytest.raises(OutOfSlots):
        nodes.insert(prompt(5, 6))
    with pytest.raises(PrefixNotCached):
        nodes.insert(prompt(8, 9), owned_pages=1)
    with pytest.raises(BadArgument, match="owned_pages: is 3"):
        nodes.insert(prompt(8, 9), owned_pages=3)
    with pytest.raises(BadArgument, match="counted_pages"):
        nodes.insert(prompt(8, 9), counted_pages=-1)
    assert core.free_slot_counts() == (1, 0, 0)
    assert len(nodes.all()) == 2
    sound(core)


def test_a_lost_window_is_healed_in_place() -> None:
    """The tree keeps its full data, and takes window data that the caller has."""
    core, nodes = made(window=2)
    nodes.insert(prompt(1, 2, 3, 4), window_from=4)
    assert nodes.match(prompt(1, 2, 3, 4)).prefix_pages == 0
    done = nodes.insert(prompt(1, 2, 3, 4), window_from=1)
    assert done.full == []
    ((node, _, first, last, locked),) = done.windows
    assert (first, last, locked) == (1, 4, False)
    assert [(page, rows.tolist()) for page, rows in done.healed] == [(1, [1, 2, 3])]
    assert done.duplicates == [(0, 1)]
    assert nodes.has(node, SWA)
    assert nodes.match(prompt(1, 2, 3, 4)).prefix_pages == 4
    sound(core)


def test_what_a_lock_holds_is_told_from_the_rest_that_is_healed() -> None:
    """Nodes in a row that took window data are one stretch, up to where a lock holds them."""
    core, nodes = made(window=2)
    upper = nodes.insert(prompt(1, 2), window_from=2).end
    middle = nodes.insert(prompt(1, 2, 3), window_from=3).end
    receipt, _, _ = nodes.lock(upper)
    done = nodes.insert(prompt(1, 2, 3, 4))
    assert done.windows == [(upper, nodes.root(), 0, 2, True), (done.end, upper, 2, 4, False)]
    assert [(page, rows.tolist()) for page, rows in done.healed] == [(2, [2])]
    assert [(page, len(rows)) for page, rows in done.full] == [(3, 1)]
    assert done.duplicates == []
    assert nodes.parent(done.end) == middle
    nodes.unlock(upper, receipt)
    sound(core)


def test_new_window_data_is_cut_into_windows() -> None:
    """A long new leaf keeps its last window in a node of its own, so that a lock holds no more."""
    core, nodes = made(window=2)
    done = nodes.insert(prompt(1, 2, 3, 4, 5))
    assert done.windows == [(done.end, nodes.root(), 0, 5, False)]
    ((upper, lower, pages),) = done.cuts
    assert (nodes.parent(done.end), lower, pages) == (upper, done.end, 3)
    receipt, newly, below_root = nodes.lock(done.end)
    assert (newly, below_root) == (5, True)
    assert _core.Tree(core).usage(SWA) == (3, 2)
    nodes.unlock_window(done.end, receipt)
    assert _core.Tree(core).usage(SWA) == (5, 0)
    assert _core.Tree(core).usage(FULL) == (0, 5)
    nodes.unlock(done.end, receipt)
    assert _core.Tree(core).usage(FULL) == (5, 0)
    sound(core)


def test_a_lock_cuts_no_node() -> None:
    """The window of a lock begins with a node, even if it is longer then."""
    core, nodes = made(window=1)
    end = nodes.insert(prompt(1, 2, 3, 4), window_from=0).end
    parent = nodes.parent(end)
    assert parent is not None
    before = nodes.all()
    receipt, _, _ = nodes.lock(parent)
    assert nodes.all() == before
    assert _core.Tree(core).usage(SWA) == (1, 3)
    nodes.unlock(parent, receipt)
    sound(core)


def test_a_lock_may_leave_the_state_out() -> None:
    """A hold without the state lets it be evicted; a state is also released alone."""
    core, nodes = made(mamba=True)
    end = nodes.insert(prompt(1, 2), state=True).end
    receipt, _, _ = nodes.lock(end, state=False)
    assert _core.Tree(core).usage(MAMBA) == (1, 0)
    nodes.unlock(end, receipt)
    receipt, _, _ = nodes.lock(end)
    assert _core.Tree(core).usage(MAMBA) == (0, 1)
    nodes.unlock_state(end, receipt)
    nodes.unlock_state(end, receipt)
    assert _core.Tree(core).usage(MAMBA) == (1, 0)
    step = nodes.evict_step(MAMBA)
    assert (step.node, step.whole) == (end, False)
    assert step.device[MAMBA] is not None
    nodes.unlock(end, receipt)
    sound(core)


def test_a_receipt_is_for_its_node_and_good_once() -> None:
    """A receipt that was given for another node, or is spent, releases nothing."""
    core, nodes = made()
    one, two = (nodes.insert(prompt(*tokens)).end for tokens in ((1, 2), (3, 4)))
    receipt, _, _ = nodes.lock(one)
    for release in (nodes.unlock, nodes.unlock_window, nodes.unlock_state):
        with pytest.raises(BadArgument, match=f"was given for node {one}"):
            release(two, receipt)
    nodes.unlock(one, receipt)
    with pytest.raises(ReceiptSpent):
        nodes.unlock(one, receipt)
    assert _core.Tree(core).usage(FULL) == (4, 0)


def test_bigrams_are_read_from_the_tokens_of_a_prompt() -> None:
    """A prompt of n + 1 tokens has n bigrams; those that begin alike share pages."""
    core, nodes = made(page_size=2, bigram=True)
    assert nodes.insert(prompt(1)).walked_pages == 0
    end = nodes.insert(prompt(1, 2, 3, 4, 5, 6)).end
    assert nodes.describe(end)[:2] == (0, 2)
    assert nodes.match(prompt(1, 2, 3, 4, 5)).prefix_pages == 2
    # The second page has the bigram (4, 9), which the tree lacks.
    assert nodes.match(prompt(1, 2, 3, 4, 9)).prefix_pages == 1
    assert nodes.match(np.array([1, 2, 3], np.uint32)).prefix_pages == 1
    with pytest.raises(BadArgument, match="tokens"):
        nodes.match(prompt(-1, 2, 3))
    sound(core)


def test_calls_that_copy_or_hand_over_slots_are_left_to_the_caller() -> None:
    """A cache whose caller copies asks no engine, and its slots never leave the tree."""
    core, nodes = made(policy=WritePolicy.WRITE_BACK)
    nodes.insert(prompt(1, 2))
    row = np.array([0], np.int32)
    for call in (
        lambda: core.evict(1),
        lambda: core.load_back(prompt(1)),
        lambda: core.insert(prompt(1), 0, row),
        lambda: core.allocate(1),
        lambda: core.free(row),
        lambda: core.reserve_host(1),
        lambda: core._commit_host(prompt(1), 0, row),
        lambda: core.abort_host(row),
        lambda: core._insert_host(prompt(1), 0, (1, 0, 0)),
        lambda: core.evict_host(1),
    ):
        with pytest.raises(BadArgument, match="call the methods of `Nodes`"):
            call()
    sound(core)


def test_any_cache_shows_its_nodes() -> None:
    """The nodes of a cache that owns its copies can be matched and locked, too."""
    cache = new_cache(CacheConfig(device_slots=Counts(full=4)))
    nodes = _core.Nodes(cache)
    (full, _, _) = cache.allocate(2)
    cache.insert(np.array([1, 2], np.uint32), 0, full)
    end = nodes.match(np.array([1, 2], np.uint32)).end
    receipt, newly, _ = nodes.lock(end)
    assert newly == 2
    assert cache.evict(2) == [0, 0, 0]
    nodes.unlock(end, receipt)
    assert cache.evict(2) == [2, 0, 0]


@pytest.mark.parametrize("wrong", [7, -1, "one"])
def test_what_is_no_component_is_refused(wrong: object) -> None:
    """Components are counted from 0 to 2."""
    _, nodes = made()
    with pytest.raises(BadArgument, match="component"):
        nodes.evict_step(wrong)  # type: ignore[arg-type]
