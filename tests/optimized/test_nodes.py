"""The nodes of a cache by handle, for a caller that keeps tables of slots and copies itself."""

from __future__ import annotations

import numpy as np
import pytest

from fast.caches import new_cache
from fast.nodes import CPU, FULL, MAMBA, SWA, end_of, listed, made, prompt
from kvcanon.optimized import _core
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, PrefixNotCached, ReceiptSpent
from kvcanon.spec.types import Counts, WritePolicy


def test_a_prompt_is_inserted_and_matched_by_node() -> None:
    """The end of an insert is the end of the match, and the rows are in the order of the pages."""
    _, nodes = made(page_size=2)
    done = nodes.insert(prompt(1, 2, 3, 4, 5, 6, 7))
    assert done.walked_pages == 0
    ((first, rows),) = done.full
    assert (first, rows.tolist()) == (0, [0, 1, 2])
    found = nodes.match(prompt(1, 2, 3, 4, 5, 6))
    assert (found.prefix_pages, found.device_pages, found.walked_pages) == (3, 3, 3)
    assert found.end == found.device_end == found.last == done.end
    assert nodes.slots(found.end, nodes.root()).tolist() == [0, 1, 2]
    # Pages that the tree has are duplicates, from those that the caller owns on.
    again = nodes.insert(prompt(*range(1, 11)), owned_pages=1)
    assert again.walked_pages == 3
    assert again.duplicates == [(1, 3)]
    assert [(first, rows.tolist()) for first, rows in again.full] == [(3, [3, 4])]


def test_a_cut_leaves_the_handle_to_the_lower_part() -> None:
    """A match that ends inside a node makes a new node above, and says so."""
    _, nodes = made()
    end = end_of(nodes, 1, 2, 3, 4)
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


def test_a_cache_with_an_engine_has_no_nodes_for_a_caller_that_copies() -> None:
    """Its engine would not know of what the caller does."""
    cache = new_cache(
        CacheConfig(
            device_slots=Counts(4),
            host_slots=Counts(4),
            write_policy=WritePolicy.WRITE_THROUGH,
        )
    )
    with pytest.raises(BadArgument, match="cache: has an engine"):
        _core.Nodes(cache)


def test_namespaces_are_added_by_the_nodes() -> None:
    """A name keeps its number while it is in use, and a number that was never given is unknown."""
    core, nodes = made()
    number, forgotten = nodes.add_namespace(b"tenant", bytes(32))
    assert (nodes.add_namespace(b"tenant", bytes(32)), forgotten) == ((number, []), [])
    assert core._use_namespace(number)
    assert nodes.use_namespace(number)
    assert not nodes.use_namespace(number + 1)
    end = nodes.insert(prompt(1, 2), number).end
    assert nodes.match(prompt(1, 2), number).end == end
    assert nodes.match(prompt(1, 2)).prefix_pages == 0


def test_a_handle_is_never_given_twice() -> None:
    """The handle of a node that is gone is refused, also where its place has another node."""
    _, nodes = made()
    seen = set()
    for _ in range(3):
        for tokens in ((1, 2), (3, 4)):
            end = end_of(nodes, *tokens)
            assert end not in seen
            seen.add(end)
        while nodes.evict_step(FULL).node:
            pass
        for gone in seen:
            with pytest.raises(BadArgument, match="is no node of this cache"):
                nodes.describe(gone)
    root = nodes.root()
    held = end_of(nodes, 7)
    nodes.lock(held)
    nodes.forget()
    assert nodes.root() != root
    assert end_of(nodes, 7) not in seen | {held, root}


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


def test_a_lost_window_is_healed_in_place() -> None:
    """The tree keeps its full data, and takes window data that the caller has."""
    _, nodes = made(window=2)
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


def test_what_a_lock_holds_is_told_from_the_rest_that_is_healed() -> None:
    """Nodes in a row that took window data are one stretch, up to where a lock holds them."""
    _, nodes = made(window=2)
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


def test_a_receipt_is_for_its_node_and_good_once() -> None:
    """A receipt that was given for another node, or is spent, releases nothing."""
    core, nodes = made()
    one, two = (end_of(nodes, *tokens) for tokens in ((1, 2), (3, 4)))
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
    _, nodes = made(page_size=2, bigram=True)
    assert nodes.insert(prompt(1)).walked_pages == 0
    end = end_of(nodes, 1, 2, 3, 4, 5, 6)
    assert nodes.describe(end)[:2] == (0, 2)
    assert nodes.match(prompt(1, 2, 3, 4, 5)).prefix_pages == 2
    # The second page has the bigram (4, 9), which the tree lacks.
    assert nodes.match(prompt(1, 2, 3, 4, 9)).prefix_pages == 1
    assert nodes.match(np.array([1, 2, 3], np.uint32)).prefix_pages == 1
    with pytest.raises(BadArgument, match="tokens"):
        nodes.match(prompt(-1, 2, 3))


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
    for wrong in (7, -1, "one"):
        with pytest.raises(BadArgument, match="component"):
            nodes.evict_step(wrong)  # type: ignore[arg-type]


# Evictions and copies node by node


def test_a_step_evicts_one_victim() -> None:
    """Each step frees one node, the least recent first, and names the rows."""
    _, nodes = made()
    old, new = (end_of(nodes, *tokens) for tokens in ((1, 2), (3, 4, 5)))
    step = nodes.evict_step(FULL)
    assert (step.node, step.whole, step.copy_first, step.lost) == (old, True, False, 2)
    assert listed(step.device)[FULL] == [0, 1]
    assert (step.device[SWA], step.host) == (None, (None, None, None))
    receipt, _, _ = nodes.lock(new)
    assert nodes.evict_step(FULL).node == 0
    with pytest.raises(BadArgument, match="it is locked"):
        nodes.evict_node(new, FULL)
    nodes.unlock(new, receipt)
    assert nodes.evict_step(FULL).node == new
    assert nodes.all() == [nodes.root()]


@pytest.mark.parametrize(("asked", "leave"), [(1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (99, 4)])
def test_a_step_evicts_until_it_is_enough(asked: int, leave: int) -> None:
    """A step for so many slots frees what as many steps of one victim would, and no more."""
    cores = [made(), made()]
    for _, nodes in cores:
        for tokens in ((1, 2), (3, 4, 5), (6,), (7, 8)):
            nodes.insert(prompt(*tokens))
    (_, together), (_, single) = cores
    freed: list[int] = []
    for _ in range(leave):
        step = single.evict_step(FULL)
        freed += listed(step.device)[FULL] or []
    at_once = together.evict_step(FULL, asked)
    assert listed(at_once.device)[FULL] == freed
    assert (at_once.node, at_once.lost) == (step.node, len(freed))
    assert together.all() == single.all()
    with pytest.raises(BadArgument, match="slots: is 0; at least 1"):
        together.evict_step(FULL, 0)


def test_a_step_ends_before_a_victim_that_must_be_copied() -> None:
    """Under write_back the victims before it leave; the next step names it."""
    _, nodes = made(policy=WritePolicy.WRITE_BACK)
    copied, plain = (end_of(nodes, *tokens) for tokens in ((1, 2), (3, 4)))
    nodes.add_host_copy([copied], [FULL])
    step = nodes.evict_step(FULL, 4)
    assert (step.node, step.copy_first, listed(step.device)[FULL]) == (copied, False, [0, 1])
    step = nodes.evict_step(FULL, 2)
    assert (step.node, step.copy_first, step.device[FULL]) == (plain, True, None)


def test_rows_are_given_in_a_row_where_there_are_enough() -> None:
    """A node gets consecutive rows before it gets the lowest ones, so that a table is cut once."""
    _, nodes = made(slots=200)
    ends = [nodes.insert(prompt(*range(at, at + 20))).end for at in range(0, 200, 20)]
    for end in (ends[1], ends[4], ends[5], ends[6]):
        nodes.evict_node(end, FULL)
    long = nodes.insert(prompt(*range(1000, 1050)))
    assert nodes.slots(long.end).runs() == [(80, 50)]
    rest = nodes.insert(prompt(*range(2000, 2030)))
    assert nodes.slots(rest.end).runs() == [(20, 20), (130, 10)]


def test_window_slots_that_come_free_are_named_by_their_full_slots() -> None:
    """An engine whose window slots are found through full slots frees them so."""
    _, nodes = made(window=1)
    nodes.insert(prompt(1, 2), window_from=2)
    nodes.insert(prompt(1, 2, 3, 4))
    step = nodes.evict_step(SWA)
    assert not step.whole
    assert step.device[FULL] is None
    assert listed(step.device)[SWA] == nodes.slots(step.node).tolist()


def test_write_back_names_a_victim_that_has_no_copy() -> None:
    """The caller copies between two steps; with the copy the node stays, on the host."""
    _, nodes = made(policy=WritePolicy.WRITE_BACK)
    end = end_of(nodes, 1, 2)
    step = nodes.evict_step(FULL)
    assert (step.node, step.copy_first, step.whole) == (end, True, True)
    assert list(step.lacks) == [2, 0, 0]
    assert nodes.has(end, FULL)
    placed, stored = nodes.add_host_copy([end], [FULL])
    assert (listed(placed), stored) == ([[0, 1], None, None], [end])
    left = nodes.evict_node(end, FULL)
    assert (left.lost, left.whole) == (0, True)
    assert nodes.describe(end)[2:] == ((False, False, False), (True, False, False))
    found = nodes.match(prompt(1, 2))
    assert (found.prefix_pages, found.device_pages, list(found.host_only)) == (2, 0, [2, 0, 0])


def test_write_back_names_a_window_whose_state_has_no_copy() -> None:
    """An inner node's state leaves with its window, so that it is copied first."""
    _, nodes = made(window=1, mamba=True, policy=WritePolicy.WRITE_BACK)
    inner = nodes.insert(prompt(1), state=True).end
    nodes.insert(prompt(1, 2), state=True)
    nodes.add_host_copy([inner], [FULL, SWA])
    step = nodes.evict_step(SWA)
    assert (step.node, step.copy_first, step.whole) == (inner, True, False)
    assert list(step.lacks) == [0, 0, 1]
    nodes.add_host_copy([inner], [MAMBA])
    step = nodes.evict_step(SWA)
    assert (step.node, step.copy_first) == (inner, False)
    assert [len(rows or []) for rows in listed(step.device)] == [0, 1, 1]


def test_a_victim_that_could_not_be_copied_leaves_with_all_below_it() -> None:
    """Without a copy a leaf is lost, and so are nodes below it that only the host has."""
    _, nodes = made(policy=WritePolicy.WRITE_BACK)
    upper = end_of(nodes, 1, 2)
    lower = end_of(nodes, 1, 2, 3)
    nodes.add_host_copy([lower], [FULL])
    nodes.evict_node(lower, FULL)
    step = nodes.evict_node(upper, FULL)
    assert step.lost == 2
    assert listed(step.host)[FULL] == [0]
    assert nodes.all() == [nodes.root()]


def test_an_insert_says_what_to_copy() -> None:
    """Under write_through the nodes without a copy are named, the upper first."""
    _, nodes = made(policy=WritePolicy.WRITE_THROUGH)
    nodes.set_wanted_hits(2)
    one = nodes.insert(prompt(1, 2))
    assert (one.wanted, one.wanted_end) == ([], 0)
    two = nodes.insert(prompt(1, 2, 3))
    assert two.wanted == [one.end]
    nodes.set_wanted_hits(1)
    three = nodes.insert(prompt(1, 2, 3, 4), counted_pages=3)
    assert three.wanted == [one.end, two.end, three.end]
    assert three.wanted_end == three.end
    nodes.add_host_copy([one.end], [FULL])
    assert nodes.insert(prompt(1, 2, 3, 4)).wanted == [two.end, three.end]


def test_a_copy_to_the_host_is_announced_when_the_caller_says_so() -> None:
    """Slots on the host are given at once; the event comes with `emit_host_store`."""
    core, nodes = made(policy=WritePolicy.WRITE_THROUGH)
    end = end_of(nodes, 1, 2)
    core.take_events()
    assert listed(nodes.slots_to_back_up([end])[0]) == [[0, 1], None, None]
    nodes.add_host_copy([end], [FULL])
    assert listed(nodes.slots_to_back_up([end])[0]) == [None, None, None]
    assert core.take_events() == []
    nodes.emit_host_store(end)
    (event,) = core.take_events()
    assert (event.kind, event.medium, event.pages) == ("stored", "CPU_PINNED", 2)


def test_what_the_host_has_is_loaded_by_its_end() -> None:
    """The parts to load are those that the end needs, root first; they get device slots."""
    core, nodes = made(window=1, mamba=True, policy=WritePolicy.WRITE_THROUGH)
    end = nodes.insert(prompt(1, 2, 3), state=True).end
    upper = nodes.parent(end)
    assert upper is not None
    on_host, stored = nodes.add_host_copy([upper, end], [FULL, SWA, MAMBA])
    assert stored == [upper, end]
    for node in (end, upper):
        nodes.evict_node(node, FULL)
    core.take_events()
    full, swa, states = listed(nodes.slots_to_load(end))
    # The window of the upper node was copied as well, and its end does not need it.
    assert [full, (swa or [])[-1:], states] == [*listed(on_host)[:1], swa, listed(on_host)[2]]
    placed, paired = nodes.add_device_copy(end, [FULL, SWA, MAMBA])
    assert [len(rows or []) for rows in listed(placed)] == [3, 1, 1]
    assert paired is not None
    assert paired.tolist() == (listed(placed)[FULL] or [])[-1:]
    assert listed(nodes.slots_to_load(end)) == [None, None, None]
    assert nodes.match(prompt(1, 2, 3)).device_pages == 3
    assert [(event.kind, event.pages) for event in core.take_events()] == [
        ("stored", 2),
        ("stored", 1),
    ]


def test_the_host_gives_up_what_it_has_for_longest() -> None:
    """An eviction from the host names the host slots, also of a node that leaves the tree."""
    _, nodes = made(policy=WritePolicy.WRITE_THROUGH)
    end = end_of(nodes, 1, 2)
    nodes.add_host_copy([end], [FULL])
    assert nodes.evict_host(FULL, 1)[1][FULL] is None
    nodes.evict_node(end, FULL)
    device, host = nodes.evict_host(FULL, 1)
    assert device == (None, None, None)
    assert listed(host)[FULL] == [0, 1]
    assert nodes.all() == [nodes.root()]


def test_a_lock_of_several_nodes_holds_their_windows() -> None:
    """A copy of a path reads window data above the last window: its lock holds that as well."""
    _, nodes = made(window=1, policy=WritePolicy.WRITE_THROUGH)
    done = nodes.insert(prompt(1, 2, 3))
    upper = nodes.parent(done.end)
    assert upper is not None
    assert sorted(done.wanted) == sorted([upper, done.wanted_end])
    receipt, _, _ = nodes.lock(done.wanted_end, windows_of=done.wanted)
    assert nodes.evict_step(SWA).node == 0
    nodes.unlock(done.wanted_end, receipt)
    nodes.lock(done.wanted_end)
    assert nodes.evict_step(SWA).node == upper


def test_a_number_out_of_range_is_found_at_every_place_of_a_prompt() -> None:
    """Tokens of 64 bits are narrowed in wide vectors, with what is left over one by one."""
    _, nodes = made(slots=80)
    for length in (1, 3, 4, 5, 16, 17, 67):
        tokens = prompt(*range(2**32 - length, 2**32))
        end = nodes.insert(tokens).end
        assert nodes.match(tokens).device_pages == length
        for at in range(length):
            for wrong in (-1, 2**32, 2**63 - 1, -(2**63)):
                damaged = prompt(*tokens)
                damaged[at] = wrong
                with pytest.raises(BadArgument, match="must be integers in 0"):
                    nodes.match(damaged)
        nodes.evict_node(end, FULL)


def test_a_copy_needs_the_full_data_of_its_pages() -> None:
    """Neither medium takes a state or a window whose full data it would lack."""
    _, nodes = made(window=2, mamba=True, policy=WritePolicy.WRITE_THROUGH)
    end = nodes.insert(prompt(1, 2), state=True).end
    for components in ([MAMBA], [SWA], [SWA, MAMBA]):
        with pytest.raises(BadArgument, match="leave out full data"):
            nodes.add_host_copy([end], components)
    assert nodes.describe(end)[3] == (False, False, False)
    nodes.add_host_copy([end], [FULL, SWA, MAMBA])
    assert nodes.describe(end)[3] == (True, True, True)
    nodes.evict_node(end, FULL)
    for component in (SWA, MAMBA):
        with pytest.raises(BadArgument, match="leave out full data"):
            nodes.add_device_copy(end, [component])
        with pytest.raises(BadArgument, match="no full data on the device"):
            nodes.add_device_data(end, component)
    nodes.add_device_copy(end, [FULL, MAMBA])
    assert nodes.describe(end)[2] == (True, False, True)


def test_a_host_copy_needs_that_of_the_pages_before() -> None:
    """Except under write_back, where data comes as it leaves the device."""
    for policy in (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK):
        _, nodes = made(policy=policy)
        upper = nodes.insert(prompt(1, 2)).end
        lower = nodes.insert(prompt(1, 2, 3)).end
        if policy is WritePolicy.WRITE_BACK:
            nodes.add_host_copy([lower], [FULL])
            continue
        with pytest.raises(BadArgument, match="no copy of the pages before them"):
            nodes.add_host_copy([lower], [FULL])
        # One call may copy both.
        nodes.add_host_copy([upper, lower], [FULL])
        assert nodes.has(lower, FULL, CPU)


def test_a_victim_is_copied_as_a_whole() -> None:
    """Under write_back, also where the state that leaves has a copy, and its window has none."""
    _, nodes = made(window=2, mamba=True, policy=WritePolicy.WRITE_BACK)
    upper = nodes.insert(prompt(1, 2), state=True).end
    nodes.insert(prompt(1, 2, 3, 4), state=True)
    nodes.add_host_copy([upper], [FULL, MAMBA])
    step = nodes.evict_step(MAMBA)
    assert (step.node, step.copy_first, step.whole, step.lacks) == (upper, True, False, (0, 2, 0))
    nodes.add_host_copy([upper], [SWA])
    step = nodes.evict_step(MAMBA)
    assert (step.node, step.copy_first) == (upper, False)
