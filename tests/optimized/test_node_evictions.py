"""Evictions and copies node by node, for a caller that copies itself."""

from __future__ import annotations

import pytest

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import WritePolicy
from node_cores import FULL, MAMBA, SWA, listed, made, prompt, sound


def test_a_step_evicts_one_victim() -> None:
    """Each step frees one node, the least recent first, and names the rows."""
    core, nodes = made()
    old, new = (nodes.insert(prompt(*tokens)).end for tokens in ((1, 2), (3, 4, 5)))
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
    sound(core)


@pytest.mark.parametrize(("asked", "leave"), [(1, 1), (2, 1), (3, 2), (5, 2), (6, 3), (99, 4)])
def test_a_step_evicts_until_it_is_enough(asked: int, leave: int) -> None:
    """A step for so many slots frees what as many steps of one victim would, and no more."""
    cores = [made(), made()]
    for _, nodes in cores:
        for tokens in ((1, 2), (3, 4, 5), (6,), (7, 8)):
            nodes.insert(prompt(*tokens))
    (core, together), (_, single) = cores
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
    sound(core)


def test_a_step_ends_before_a_victim_that_must_be_copied() -> None:
    """Under write_back the victims before it leave; the next step names it."""
    core, nodes = made(policy=WritePolicy.WRITE_BACK)
    copied, plain = (nodes.insert(prompt(*tokens)).end for tokens in ((1, 2), (3, 4)))
    nodes.add_host_copy([copied], [FULL])
    step = nodes.evict_step(FULL, 4)
    assert (step.node, step.copy_first, listed(step.device)[FULL]) == (copied, False, [0, 1])
    step = nodes.evict_step(FULL, 2)
    assert (step.node, step.copy_first, step.device[FULL]) == (plain, True, None)
    sound(core)


def test_rows_are_given_in_a_row_where_there_are_enough() -> None:
    """A node gets consecutive rows before it gets the lowest ones, so that a table is cut once."""
    core, nodes = made(slots=200)
    ends = [nodes.insert(prompt(*range(at, at + 20))).end for at in range(0, 200, 20)]
    for end in (ends[1], ends[4], ends[5], ends[6]):
        nodes.evict_node(end, FULL)
    long = nodes.insert(prompt(*range(1000, 1050)))
    assert nodes.slots(long.end).runs() == [(80, 50)]
    rest = nodes.insert(prompt(*range(2000, 2030)))
    assert nodes.slots(rest.end).runs() == [(20, 20), (130, 10)]
    sound(core)


def test_window_slots_that_come_free_are_named_by_their_full_slots() -> None:
    """An engine whose window slots are found through full slots frees them so."""
    core, nodes = made(window=1)
    nodes.insert(prompt(1, 2), window_from=2)
    nodes.insert(prompt(1, 2, 3, 4))
    step = nodes.evict_step(SWA)
    assert not step.whole
    assert step.device[FULL] is None
    assert listed(step.device)[SWA] == nodes.slots(step.node).tolist()
    sound(core)


def test_write_back_names_a_victim_that_has_no_copy() -> None:
    """The caller copies between two steps; with the copy the node stays, on the host."""
    core, nodes = made(policy=WritePolicy.WRITE_BACK)
    end = nodes.insert(prompt(1, 2)).end
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
    sound(core)


def test_write_back_names_a_window_whose_state_has_no_copy() -> None:
    """An inner node's state leaves with its window, so that it is copied first."""
    core, nodes = made(window=1, mamba=True, policy=WritePolicy.WRITE_BACK)
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
    sound(core)


def test_a_victim_that_could_not_be_copied_leaves_with_all_below_it() -> None:
    """Without a copy a leaf is lost, and so are nodes below it that only the host has."""
    core, nodes = made(policy=WritePolicy.WRITE_BACK)
    upper = nodes.insert(prompt(1, 2)).end
    lower = nodes.insert(prompt(1, 2, 3)).end
    nodes.add_host_copy([lower], [FULL])
    nodes.evict_node(lower, FULL)
    step = nodes.evict_node(upper, FULL)
    assert step.lost == 2
    assert listed(step.host)[FULL] == [0]
    assert nodes.all() == [nodes.root()]
    sound(core)


def test_an_insert_says_what_to_copy() -> None:
    """Under write_through the nodes without a copy are named, the upper first."""
    core, nodes = made(policy=WritePolicy.WRITE_THROUGH)
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
    sound(core)


def test_a_copy_to_the_host_is_announced_when_the_caller_says_so() -> None:
    """Slots on the host are given at once; the event comes with `emit_host_store`."""
    core, nodes = made(policy=WritePolicy.WRITE_THROUGH)
    end = nodes.insert(prompt(1, 2)).end
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
    sound(core)


def test_the_host_gives_up_what_it_has_for_longest() -> None:
    """An eviction from the host names the host slots, also of a node that leaves the tree."""
    core, nodes = made(policy=WritePolicy.WRITE_THROUGH)
    end = nodes.insert(prompt(1, 2)).end
    nodes.add_host_copy([end], [FULL])
    assert nodes.evict_host(FULL, 1)[1][FULL] is None
    nodes.evict_node(end, FULL)
    device, host = nodes.evict_host(FULL, 1)
    assert device == (None, None, None)
    assert listed(host)[FULL] == [0, 1]
    assert nodes.all() == [nodes.root()]
    sound(core)


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
