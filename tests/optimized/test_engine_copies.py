"""Copies between an engine's slots on the device and on the host, and room for them there."""

from __future__ import annotations

from contextlib import suppress

import pytest
import torch
from attrs import define
from hypothesis import example, given
from hypothesis import strategies as st

from fast.engine_nodes import KINDS, Side, StepResult, listed_by_kind
from fast.nodes import FULL, MAMBA, SWA
from kvcanon.optimized.native_types import SlotLists, SlotsEvicted, VictimToCopy
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import EvictionPolicy, WritePolicy

PROMPT = (1, 2, 3, 4)


def hybrid(*, on_device: bool = False, policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> Side:
    """A cache of two tokens a page, with windows, states and a host."""
    return Side(page_size=2, window=4, mamba=True, policy=policy, on_device=on_device)


def inserted(side: Side) -> int:
    """Insert the prompt with slots 10 to 13 and state 7; returns its node."""
    state = torch.tensor([7])
    end: int = side.insert(torch.arange(10, 14), *PROMPT, mamba_value=state).end
    states = side.device[2]
    assert states is not None
    states.put(side.nodes.slots(end, None, MAMBA), state)
    return end


def listed(slots: tuple[torch.Tensor | None, ...]) -> list[list[int] | None]:
    """Tensors as lists."""
    return [None if each is None else each.tolist() for each in slots]


def copied(side: Side, end: int) -> list[int]:
    """Copy the prompt to slots 100 to 103, windows to 200 to 203 and the state to 300."""
    given = torch.arange(100, 104), torch.arange(200, 204), torch.tensor([300])
    return side.engine.add_host_copy([end], *given)


@pytest.mark.parametrize("on_device", [False, True])
def test_a_copy_reads_what_the_host_lacks(on_device: bool) -> None:
    """Full slots, those of the pages of windows, and states: each until the host has it."""
    side = hybrid(on_device=on_device)
    end = inserted(side)
    slots = [10, 11, 12, 13]
    assert listed(side.engine.read_for_backup([end])) == [slots, slots, [7]]
    assert side.engine.add_host_copy([end], torch.arange(100, 104), None, None) == [end]
    assert listed(side.engine.read_for_backup([end])) == [None, slots, [7]]
    # The host has its full data: the second copy announces nothing.
    rest = torch.arange(200, 204, dtype=torch.int32), torch.tensor([300])
    assert side.engine.add_host_copy([end], None, *rest) == []
    assert listed(side.engine.read_for_backup([end])) == [None, None, None]


@pytest.mark.parametrize("on_device", [False, True])
def test_what_was_copied_is_read_and_loaded(on_device: bool) -> None:
    """A load reads the slots that the copy wrote, and the tree has those that it was given."""
    side = hybrid(on_device=on_device)
    end = inserted(side)
    assert copied(side, end) == [end]
    step = side.evict(FULL, 4)
    assert (step.lost, listed_by_kind(step.device)["full"]) == (0, [[10, 11, 12, 13]])
    found = side.match(*PROMPT)
    waits = (found.host_hit_length, found.swa_host_hit_length, found.mamba_host_hit_length)
    assert waits == (4, 4, 1)
    read = listed(side.engine.read_for_load(end))
    assert read == [[100, 101, 102, 103], [200, 201, 202, 203], [300]]
    given = torch.arange(40, 44), torch.arange(50, 54), torch.tensor([9])
    paired = side.engine.add_device_copy(end, *given)
    assert listed((paired,)) == [[40, 41, 42, 43]]
    assert side.slots_of(end) == [40, 41, 42, 43]
    assert listed(side.engine.read_for_load(end)) == [None, None, None]


def test_the_host_gives_its_slots_back() -> None:
    """What leaves the host names its own token slots there, by component, and its rows."""
    side = hybrid()
    end = inserted(side)
    copied(side, end)
    rows = side.nodes.slots(end, None, FULL, 1).runs()
    side.engine.evict_step(FULL, 4)
    device, host, freed, reclaimed, fits = side.engine.make_room((4, 0, 0), (0, 0, 0))
    assert (device, freed, fits) == ({}, {"full": 4, "swa": 4, "mamba": 1}, True)
    assert listed_by_kind(host) == {
        "full": [[100, 101, 102, 103]],
        "swa": [[200, 201, 202, 203]],
        "mamba": [[300]],
    }
    assert reclaimed == [rows[0][0], 2]
    assert side.engine.make_room((2, 0, 0), (0, 0, 0)) == ({}, {}, {}, [], False)


def test_room_that_is_there_evicts_nothing() -> None:
    """Only what is short is evicted; what came free with another component counts."""
    side = hybrid()
    end = inserted(side)
    copied(side, end)
    side.engine.evict_step(FULL, 4)
    assert side.engine.make_room((4, 4, 1), (4, 4, 1)) == ({}, {}, {}, [], True)
    assert side.engine.make_room((0, 0, 0), (0, 0, 0)) == ({}, {}, {}, [], True)
    # The leaf has the windows and the state that are asked for besides.
    _, host, freed, _, fits = side.engine.make_room((3, 4, 1), (1, 0, 0))
    assert (freed, fits) == ({"full": 4, "swa": 4, "mamba": 1}, True)
    assert sorted(host) == ["full", "mamba", "swa"]


def test_free_tokens_count_by_whole_pages() -> None:
    """Of three free tokens a page of two can be used; three wanted are two pages."""
    for wanted, free in ((4, 3), (3, 2)):
        side = hybrid()
        copied(side, inserted(side))
        side.evict(FULL, 4)
        _, _, freed, _, fits = side.engine.make_room((wanted, 0, 0), (free, 0, 0))
        assert (freed["full"], fits) == (4, True)


def test_a_pool_that_stays_short_costs_no_other_its_data() -> None:
    """Full data has nothing to give: windows and states, asked for after it, stay."""
    side = hybrid()
    end = inserted(side)
    copied(side, end)
    # What the device has, too, may not leave the host under this policy.
    assert side.engine.make_room((4, 4, 1), (0, 0, 0)) == ({}, {}, {}, [], False)
    assert side.nodes.has(end, SWA, 1)


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("short", range(3))
def test_too_few_slots_are_refused(short: int, on_device: bool) -> None:
    """Of any component, before anything changes: the same call can then be made right."""
    side = hybrid(on_device=on_device)
    end = inserted(side)
    given = [torch.arange(100, 104), torch.arange(200, 204), torch.tensor([300])]
    given[short] = given[short][:-1]
    with pytest.raises(BadArgument, match="pages; the rows need"):
        side.engine.add_host_copy([end], *given)
    assert listed(side.engine.read_for_backup([end]))[2] == [7]
    assert not any(side.nodes.has(end, kind, 1) for kind in (FULL, SWA, MAMBA))
    copied(side, end)
    side.engine.evict_step(FULL, 4)
    with pytest.raises(BadArgument, match="pages; the rows need"):
        side.engine.add_device_copy(end, torch.arange(40, 43), torch.arange(50, 54), None)
    assert not side.nodes.has(end, FULL)
    side.engine.add_device_copy(end, torch.arange(40, 44), torch.arange(50, 54), None)
    assert side.slots_of(end) == [40, 41, 42, 43]


def test_a_number_out_of_range_is_refused() -> None:
    """A slot below 0, or above 31 bits, is of no pool."""
    side = hybrid()
    end = inserted(side)
    for wrong in (-1, 1 << 40):
        with pytest.raises(BadArgument):
            side.engine.add_host_copy([end], torch.tensor([100, 101, wrong, 103]), None, None)
        assert not side.nodes.has(end, FULL, 1)
    with pytest.raises(BadArgument, match="no node of this cache"):
        side.engine.add_host_copy([77], torch.arange(100, 104), None, None)
    with pytest.raises(BadArgument, match="no node of this cache"):
        side.engine.read_for_load(77)


def test_a_tree_without_rows_refuses() -> None:
    """The rows of the host run out before the engine's slots do; what is there stays."""
    side = Side(slots=4, host_slots=4, policy=WritePolicy.WRITE_BACK)
    first = side.insert(torch.arange(3), 1, 2, 3).end
    side.engine.add_host_copy([first], torch.arange(100, 103), None, None)
    side.engine.evict_step(FULL, 3)
    second = side.insert(torch.arange(3), 4, 5, 6).end
    with pytest.raises(OutOfSlots):
        side.engine.add_host_copy([second], torch.arange(200, 203), None, None)
    assert not side.nodes.has(second, FULL, 1)
    assert listed(side.engine.read_for_load(first))[0] == [100, 101, 102]


def windowed(
    host: int = 16, *, mamba: bool = False, eviction: EvictionPolicy = EvictionPolicy.LRU
) -> Side:
    """A cache with windows of two tokens that copies what leaves."""
    return Side(
        window=2,
        policy=WritePolicy.WRITE_BACK,
        host_slots=host,
        mamba=mamba,
        eviction=eviction,
    )


def test_victims_that_a_walk_needs_are_named_together() -> None:
    """With what they need on the host in all; one that has a copy, or is not needed, is not."""
    side = windowed()
    first = side.insert(torch.arange(2), 1, 2).end
    second = side.insert(torch.arange(10, 12), 3, 4).end
    side.insert(torch.arange(20, 22), 5, 6)
    alone = side.to_copy(SWA, 3, together=False)
    assert (alone.node, alone.as_leaf, alone.with_it, alone.needed) == (first, True, [], (2, 2, 0))
    step = side.to_copy(SWA, 3)
    assert (step.node, step.as_leaf, step.with_it) == (first, True, [second])
    assert step.needed == (4, 4, 0)
    # Of full data, who leaves next depends on who has left.
    assert side.to_copy(FULL, 5).with_it == []
    # One that needs no copy would leave between the two.
    side.engine.add_host_copy([second], torch.arange(100, 102), torch.arange(200, 202), None)
    assert side.to_copy(SWA, 6).with_it == []


def test_a_victim_that_may_lose_its_copy_to_another_is_copied_apart() -> None:
    """Full data of the first would take the place of what the host has of the second."""
    side = windowed(host=4)
    first = side.insert(torch.arange(2), 1, 2).end
    second = side.insert(torch.arange(10, 12), 3, 4).end
    side.engine.add_host_copy([second], torch.arange(100, 102), None, None)
    assert side.to_copy(SWA, 4).with_it == []
    # The other way round each has what it needs.
    side.match(1, 2)
    step = side.to_copy(SWA, 4)
    assert (step.node, step.with_it, step.needed) == (second, [first], (2, 4, 0))


def bare(side: Side, *tokens: int) -> int:
    """A node without window data, which has one below it."""
    end = side.insert(torch.arange(2), *tokens, frontier=2).end
    side.insert(torch.arange(4), *tokens, 90, 91, frontier=4)
    return end


def test_a_victim_whose_parent_may_be_a_leaf_by_then_is_copied_apart() -> None:
    """The copy of the node above is then that of a leaf, and another one makes room."""
    side = windowed(host=6)
    older, newer = bare(side, 1, 2), side.insert(torch.arange(2), 3, 4, frontier=2).end
    first = side.insert(torch.arange(4), 3, 4, 5, 6, frontier=2).end
    newest = bare(side, 7, 8)
    side.insert(torch.arange(2), 9, 10)
    side.engine.add_host_copy([older, newer, newest], torch.arange(6), None, None)
    step = side.to_copy(SWA, 4)
    assert (step.node, step.with_it) == (first, [])


def test_a_victim_makes_no_room_for_another() -> None:
    """What the host has of it stays while it is copied, so that it cannot be counted on."""
    side = windowed(host=4)
    backed = side.insert(torch.arange(2), 1, 2).end
    side.insert(torch.arange(4), 1, 2, 90, 91, frontier=4)
    kept = side.insert(torch.arange(2), 5, 6, frontier=2).end
    side.nodes.lock(kept)
    side.insert(torch.arange(2), 9, 10)
    side.engine.add_host_copy([backed, kept], torch.arange(4), None, None)
    step = side.to_copy(SWA, 4)
    assert (step.node, step.with_it, step.needed) == (backed, [], (0, 2, 0))


def test_sixteen_victims_at_most_are_copied_together() -> None:
    """Each is compared with all before it; the rest is named once these have left."""
    side = Side(window=2, policy=WritePolicy.WRITE_BACK, slots=40, host_slots=40)
    for at in range(20):
        side.insert(torch.arange(2), 2 * at, 2 * at + 1)
    step = side.to_copy(SWA, 40)
    assert (len(step.with_it), step.needed) == (15, (32, 32, 0))
    nodes = [step.node, *step.with_it]
    side.engine.add_host_copy(nodes, torch.arange(32), torch.arange(32), None)
    assert side.evict(SWA, 40).tokens["swa"] == 32
    assert len(side.to_copy(SWA, 8).with_it) == 3


@pytest.mark.parametrize("locks", [False, True])
def test_room_for_several_ends_at_the_one_that_has_none(locks: bool) -> None:
    """What was made for those before it stays free, and nothing is held any more."""
    side = windowed(host=3)
    ends = [side.insert(torch.arange(2), at, at + 1).end for at in (1, 3, 5)]
    side.engine.add_host_copy(ends[2:], torch.arange(100, 102), None, None)
    _, _, freed, _, fits = side.engine.make_room_for(ends[:2], (1, 3, 0), locks)
    assert (freed, fits) == ({"full": 2}, False)
    side.engine.add_host_copy(ends[:1], torch.arange(100, 102), None, None)
    assert side.engine.make_room((3, 0, 0), (1, 0, 0))[4]
    with pytest.raises(BadArgument, match="no node of this cache"):
        side.engine.make_room_for([77], (0, 0, 0), locks)


def test_room_for_several_may_be_made_of_the_window_before_one() -> None:
    """Each keeps what is copied of it while room is made for the next, and nothing above."""
    side = Side(window=2, policy=WritePolicy.WRITE_THROUGH)
    above = side.insert(torch.arange(2), 1, 2).end
    bare_end = side.insert(torch.arange(3), 1, 2, 3, frontier=3).end
    side.engine.add_host_copy([above], torch.arange(2), torch.arange(2), None)
    side.evict(SWA, 2)
    end = side.insert(torch.arange(5), 1, 2, 3, 4, 5, frontier=3).end
    _, _, freed, _, fits = side.engine.make_room_for([bare_end, end], (3, 0, 0), locks=True)
    assert (freed, fits) == ({"swa": 2}, True)
    assert side.nodes.describe(above)[2:] == ((True, False, False), (True, False, False))


@define
class Walk:
    """A cache whose windows are evicted as by SGLang's controller, and what is free on its host."""

    side: Side
    together: bool
    free: list[int]
    copies: int = 0

    def insert(self, at: int, tokens: list[int]) -> None:
        """Insert a prompt of which the first windows are gone; evict where there is no room."""
        frontier = (at * 5) % (len(tokens) + 1)
        for amount in (0, 6, 16):
            self.evict(amount)
            try:
                self.side.insert(torch.arange(len(tokens)) + 10 * at, *tokens, frontier=frontier)
            except OutOfSlots:
                continue
            return

    def load(self, tokens: list[int]) -> None:
        """Load what the host alone has of a prompt; the host keeps its copies."""
        found, engine = self.side.match(*tokens), self.side.engine
        end = found.best_match_node
        if not (found.host_hit_length or found.swa_host_hit_length):
            return
        given = (
            None if each is None else torch.arange(len(each)) for each in engine.read_for_load(end)
        )
        with suppress(OutOfSlots):
            engine.add_device_copy(end, *given)

    def evict(self, amount: int) -> None:
        """Evict windows, and copy them first."""
        left, engine = amount, self.side.engine
        while left > 0:
            step: object = engine.evict_step(SWA, left, self.together)
            if isinstance(step, VictimToCopy):
                self._copy([step.node, *step.with_it])
                step = engine.evict_node(step.node, FULL if step.as_leaf else SWA)
            assert isinstance(step, (StepResult, SlotsEvicted))
            if not step.tokens:
                return
            self._count(step.host)
            left -= step.tokens.get("swa", 0)

    def _copy(self, nodes: list[int]) -> None:
        engine = self.side.engine
        _, host, _, _, fits = engine.make_room_for(nodes, self.free, locks=False)
        self._count(host)
        assert fits or len(nodes) == 1
        if not fits:
            return
        full, windows, states = (
            None if each is None else torch.arange(len(each))
            for each in engine.read_for_backup(nodes)
        )
        engine.add_host_copy(nodes, full, windows, states)
        self.copies += 1
        for at, each in enumerate((full, windows, states)):
            self.free[at] -= 0 if each is None else len(each)

    def _count(self, host: SlotLists) -> None:
        for at, kind in enumerate(KINDS):
            self.free[at] += sum(map(len, host.get(kind, [])))

    def tree(self) -> list[tuple[object, ...]]:
        """What each node has where."""
        nodes = self.side.nodes
        return [(each, *nodes.describe(each)[2:]) for each in nodes.all()]


PROMPTS = st.lists(st.integers(1, 3), min_size=1, max_size=6)


@given(
    prompts=st.lists(st.tuples(PROMPTS, st.integers(0, 9)), min_size=1, max_size=12),
    host=st.integers(1, 14),
    mamba=st.booleans(),
    eviction=st.sampled_from(EvictionPolicy),
)
# The copy of the first victim leaves the host before what is there, and would make room.
@example(
    prompts=[
        ([1], 0),
        ([1], 0),
        ([1], 0),
        ([2, 1, 1], 0),
        ([3, 1, 1, 1], 0),
        ([1] * 6, 0),
        ([1] * 5, 5),
    ],
    host=8,
    mamba=False,
    eviction=EvictionPolicy.MRU,
)
def test_victims_copied_together_leave_as_one_by_one(
    prompts: list[tuple[list[int], int]], host: int, mamba: bool, eviction: EvictionPolicy
) -> None:
    """The device and the host end with the same data, whatever the host has room for."""
    walks = [
        Walk(windowed(host, mamba=mamba, eviction=eviction), together, [host, host, host * mamba])
        for together in (False, True)
    ]
    for at, (tokens, amount) in enumerate(prompts):
        for walk in walks:
            walk.insert(at, tokens)
            walk.load(prompts[at * amount % (at + 1)][0])
            walk.side.match(*tokens[: amount % 4])
            walk.evict(amount)
        assert walks[0].tree() == walks[1].tree()
        assert walks[0].free == walks[1].free
        assert walks[0].copies >= walks[1].copies
