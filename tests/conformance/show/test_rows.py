"""What a page keeps of states: rows, what a step changed of them, and how it is packed."""

from __future__ import annotations

from random import Random

import pytest
from attrs import evolve

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.show.event_rows import EventRows
from kvcanon.conformance.show.rows import SnapshotRows, StateRows, moved, runs
from kvcanon.conformance.show.shown_run import ShownStep
from kvcanon.conformance.show.step_packer import StepPacker
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.law import SITE, Need
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import CPU, GPU, Counts, Key
from shown_pages import broken_tree_run, hidden_run, replay_run, unpacked, vector_run, violation_run


def test_moves_give_the_order_before_and_after() -> None:
    """What left an order and what followed at its end lead from one order to the other and back."""
    random = Random(5)
    before = tuple(range(12))
    for _ in range(300):
        after = list(before)
        for _ in range(random.randrange(4)):
            each = after.pop(random.randrange(len(after)))
            if random.random() < 0.7:
                after.append(each)
        if random.random() < 0.3:
            random.shuffle(after)
        after += [max(before, default=0) + 1] * (random.random() < 0.5)
        left, tail = moved(before, after)
        assert isinstance(left, list)
        assert isinstance(tail, list)
        kept = [each for at, each in enumerate(before) if at not in {at for at, _ in left}]
        assert kept + tail == after
        back = list(after[: len(after) - len(tail)])
        for at, each in left:
            back.insert(at, each)
        assert tuple(back) == before
        before = tuple(after) or (0,)


def test_runs_are_short() -> None:
    """Numbers that count up are one run; their order is kept."""
    assert runs((0, 1, 2, 9, 3, 4)) == "0-2 9 3-4"
    assert runs(()) == ""


def served_states() -> list[Snapshot]:
    """The states of a small cache that serves two prompts and evicts."""
    cache = ReferenceCache(CacheConfig(window_tokens=2, device_slots=Counts(full=8, swa=8)))
    states = [cache.snapshot()]
    for tokens in ((1, 2, 3), (1, 2, 4, 5)):
        key = Key(tuple((token,) for token in tokens))
        start = cache.match(key).device_pages
        slots = cache.allocate(Counts(full=len(key) - start, swa=len(key) - start))
        cache.insert(key, start, slots)
        states.append(cache.snapshot())
    cache.evict(Counts(full=1))
    return [*states, cache.snapshot()]


def test_deltas_lead_to_the_same_rows() -> None:
    """The rows after each step are those of its state, whichever state came before."""
    followed = SnapshotRows()
    for state in served_states():
        followed.move_to(state)
        anew = SnapshotRows()
        anew.move_to(state)
        assert followed.now.rows == anew.now.rows
        assert followed.now.recency == anew.now.recency
        assert followed.now.pools == anew.now.pools


def test_trees_that_are_none_are_said_to_be() -> None:
    """A child that its parent does not list, and a parent that is gone, are named in the rows."""
    state = served_states()[2]
    leaf = max(state.nodes)
    parent = state.nodes[leaf].parent_id
    assert parent is not None
    unlisted = evolve(state.nodes[parent], child_ids=())
    rows = SnapshotRows()
    rows.move_to(state)
    rows.move_to(evolve(state, nodes={**state.nodes, parent: unlisted}))
    assert rows.now.rows[leaf][-1] == f"node {parent} does not list it as a child"
    orphan = evolve(state.nodes[leaf], parent_id=99)
    rows.move_to(evolve(state, nodes={**state.nodes, leaf: orphan}))
    assert rows.now.rows[leaf][-1] == "its parent 99 is not in the tree"


def test_events_make_a_tree() -> None:
    """Pages that events store are nodes, and leave when no medium and no page below needs them."""
    rows = EventRows()
    first = BlockStored(b"a", None, (1,), GPU)
    second = BlockStored(b"b", b"a", (2,), GPU)
    rows.move_to([AllBlocksCleared(), first, second, evolve(first, medium=CPU)])
    assert [row[:5] for row in rows.now.rows.values()] == [
        [-1, 0, "", 0, 0],
        [0, 0, "1", "?", "?"],
        [1, 0, "2", "?", 0],
    ]
    rows.move_to([BlockRemoved(b"a", GPU), BlockRemoved(b"a", CPU)])
    assert len(rows.now.rows) == 3, "a page below it is still there"
    rows.move_to([BlockRemoved(b"b", GPU)])
    assert list(rows.now.rows) == [0]
    rows.move_to([BlockStored(b"c", b"gone", (3,), GPU), AllBlocksCleared()])
    assert list(rows.now.rows) == [0]


def test_violation_is_at_its_step() -> None:
    """The step that breaks a law has the law and what is wrong, and is the last one."""
    run = violation_run()
    table = unpacked(run, "steps")
    ((step, breaches),) = table["breaches"]
    assert step == run.breaks_at == run.steps == len(table["steps"])
    assert {each["law"] for each in breaches} >= {"ALLOC-3"}
    assert "came free" in breaches[0]["text"]
    assert table["steps"][-1][2] == "cache.free(slots_1)"


def test_hidden_state_is_noted() -> None:
    """A cache without snapshots is shown by its events, and the page says so."""
    run = hidden_run()
    assert unpacked(run, "steps")["drawn"] == "events"
    assert any("does not show its state" in note for note in run.notes)
    changes = unpacked(run, "changes-0")
    assert sum(len(each.get("d", {}).get("n", ())) for each in changes) == 3


@pytest.mark.parametrize(
    ("hides", "drawn", "says"),
    [
        ({Need.SNAPSHOT}, "events", "does not show its state"),
        ({Need.SNAPSHOT, Need.EVENTS}, "nothing", "there is no tree"),
    ],
)
def test_replay_of_a_hidden_state_is_noted(hides: set[Need], drawn: str, says: str) -> None:
    """A replay says what its cache does not show, and what would show it."""
    adapter = Adapter("secretive", ReferenceCache, hides=frozenset(hides))
    run = replay_run(steps=30, adapter=adapter)
    assert unpacked(run, "steps")["drawn"] == drawn
    assert any(says in note and f"{SITE}adapters.html" in note for note in run.notes)


def test_replay_is_bounded() -> None:
    """A replay shows so many calls one by one, charts all requests, and says what is left out."""
    run = replay_run(steps=30)
    assert run.steps == 30
    (note,) = run.notes
    assert note.startswith("30 of ")
    rate = next(chart for chart in run.charts if chart.title == "Hit rate")
    assert len(rate.lines["all so far"]) > 20
    assert rate.over_groups


@pytest.mark.parametrize("steps", [0, 1])
def test_shortest_runs_are_packed(steps: int) -> None:
    """A run of no step or of one has all parts that the page asks for."""
    run = replay_run(steps=steps)
    assert {"steps", "state-0", "changes-0"} <= run.parts.keys()
    assert len(unpacked(run, "changes-0")) == steps


def test_unreadable_states_are_noted() -> None:
    """A state that cannot be read leaves the last one, with a note."""
    good = served_states()[1]
    packer = StepPacker(good)
    bad = evolve(good, nodes={1: "nonsense"})  # type: ignore[dict-item]  # It is to be wrong.
    packer.add(ShownStep(0, 1, "match(key)", "done", state=bad))
    assert any("a state could not be read" in note for note in packer.notes)
    assert packer.now.rows == _rows_of(good)


def _rows_of(state: Snapshot) -> dict[int, list[object]]:
    rows = SnapshotRows()
    rows.move_to(state)
    return rows.now.rows


def test_whole_states_are_as_the_changes_say() -> None:
    """Each whole state is that to which the changes before it lead."""
    run = replay_run()
    table = unpacked(run, "steps")
    assert len(table["states"]) > 1
    last, _ = table["states"][-1]
    again = StateRows()
    first = unpacked(run, "state-0")
    again.rows = {row[0]: row[1:] for row in first["rows"]}
    for part in range(last):
        for change in unpacked(run, f"changes-{part}"):
            for node_id, _, row in change.get("d", {}).get("n", ()):
                again.change({node_id: row or None})
            for node_id, *values in change.get("d", {}).get("c", ()):
                row = list(again.rows[node_id])
                for at in range(0, len(values), 3):
                    assert row[values[at]] == values[at + 1]
                    row[values[at]] = values[at + 2]
                again.change({node_id: row})
    whole = {row[0]: row[1:] for row in unpacked(run, f"state-{last}")["rows"]}
    assert again.rows == whole


def test_pages_have_what_they_need() -> None:
    """The runs of the browser tests are packed, a broken tree and a vector too."""
    assert vector_run().steps == 9
    assert broken_tree_run().parts
