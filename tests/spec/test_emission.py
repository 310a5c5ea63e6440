"""The table of events: caches emit what it says, row by row, and nothing else.

Each row has a play of a few calls, and so has the silence of window data and mamba states. Then
cases are drawn, and every event in them has its row, its place in the order, its hash and its
parent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache as remembered
from itertools import groupby, product
from typing import get_args

import pytest
from attrs import evolve, frozen

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.protocol.adapter import Offer, make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.lab.variants.variant import varied
from kvcanon.spec import operations as op
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hash
from kvcanon.spec.laws import event as chapter
from kvcanon.spec.laws.emission import EMISSIONS, Emission, Order, emissions, table
from kvcanon.spec.laws.page_hashes import PageHashes
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium, WritePolicy
from kvcanon.spec.views import COLUMN, PageRow, Step
from paths import DOCS
from scenes import Scene
from states import EVERYTHING

CACHES = {
    "reference": load_adapter("reference"),
    "optimized": load_adapter("optimized"),
    "loads_announced_early": varied("loads_announced_early", ["loads_announced_early"]),
    "exclusive_host": varied("exclusive_host", ["exclusive_host"]),
}
each_cache = pytest.mark.parametrize("name", CACHES)


class Witness(WrappedCache):
    """A cache that records every step; only this wrapper may call the inner cache."""

    def __init__(self, of: Cache) -> None:
        super().__init__(of)
        self.steps: list[Step] = []
        self._last = of.snapshot()

    def _around(
        self,
        operation: op.Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        try:
            return call(*args, **kwargs)
        finally:
            before, self._last = self._last, self._cache.snapshot()
            taken = isinstance(operation, op.TakeEvents)
            events = () if taken else self._last.events[len(before.events) :]
            self.steps.append(Step(before, operation, op.Done(), self._last, events))


THROUGH = CacheConfig(
    device_slots=Counts(full=6), host_slots=Counts(full=3), write_policy="write_through"
)
WIDE = evolve(THROUGH, host_slots=Counts(full=12))
BACK = evolve(THROUGH, write_policy="write_back")
BACK_WIDER = evolve(BACK, host_slots=Counts(full=6))
BACK_WINDOW = evolve(BACK, window_tokens=2, device_slots=Counts(6, 6))


@frozen
class Play:
    """Calls, and the events that the last call of kind `sends` emits."""

    sends: type[op.Operation]
    config: CacheConfig
    script: str
    said: str
    """The events: what happens, the medium, and the tokens of the pages in order."""
    caches: tuple[str, ...] = tuple(CACHES)


CANON, EARLY, EXCLUSIVE = (
    ("reference", "optimized"),
    ("loads_announced_early",),
    ("exclusive_host",),
)
DEMOTED = "put 123; flush; evict full=3"
LOADED = f"{DEMOTED}; load 123"
BESIDE = f"put 789; flush; evict full=3; {DEMOTED}; put 456; put abc; flush; load 123"
TWO_NODES = "put 12; put 123; flush; evict full=3"
BACKED = "removed CPU 3 2 1, stored CPU 4 5 6"

PLAYS = [
    Play(op.Insert, THROUGH, "put 123", "stored GPU 1 2 3"),
    Play(op.Insert, THROUGH, "put 1; put 12; flush; evict full=1; put 123", "stored GPU 2 3"),
    Play(op.Insert, THROUGH, f"{DEMOTED}; put 456", "stored GPU 4 5 6, removed CPU 3 2 1"),
    Play(op.InsertHost, THROUGH, f"{DEMOTED}; fetch 456", BACKED),
    Play(op.InsertHost, BACK, "put 12; fetch 123", "stored CPU 1 2 3"),
    Play(op.Evict, THROUGH, TWO_NODES, "removed GPU 3 2 1"),
    Play(op.Evict, BACK, TWO_NODES, "stored CPU 3 1 2, removed GPU 3 2 1"),
    Play(op.Evict, BACK, f"{DEMOTED}; put 456; evict full=3", f"{BACKED}, removed GPU 6 5 4"),
    Play(
        op.Evict,
        BACK_WINDOW,
        "put 12; put 123 window=0; evict full=1; evict full=2",
        "removed CPU 3, removed GPU 2 1",
    ),
    Play(op.EvictHost, THROUGH, f"{DEMOTED}; evict_host full=3", "removed CPU 3 2 1"),
    Play(op.LoadBack, WIDE, BESIDE, "removed GPU 6 5 4", CANON),
    Play(
        op.LoadBack,
        BACK_WIDER,
        BESIDE,
        "removed CPU 9 8 7, stored CPU 4 5 6, removed GPU 6 5 4",
        CANON,
    ),
    Play(op.LoadBack, THROUGH, LOADED, "", CANON),
    Play(op.LoadBack, WIDE, BESIDE, "removed GPU 6 5 4, stored GPU 1 2 3", EARLY),
    Play(op.Flush, THROUGH, f"{LOADED}; flush", "stored GPU 1 2 3", CANON),
    Play(op.Flush, THROUGH, f"{LOADED}; flush", "", EARLY),
    Play(op.Flush, BACK, f"{LOADED}; flush", "stored GPU 1 2 3", CANON),
    Play(op.Flush, BACK, f"{LOADED}; flush", "stored GPU 1 2 3, removed CPU 3 2 1", EXCLUSIVE),
    Play(op.Poll, THROUGH, f"{LOADED}; fail", "", CANON),
    Play(op.Poll, THROUGH, f"{LOADED}; fail", "removed GPU 3 2 1", EARLY),
    Play(op.Flush, THROUGH, "put 123; flush", "stored CPU 1 2 3"),
    Play(op.Poll, THROUGH, "put 123; fail", ""),
    Play(op.Reset, THROUGH, "put 123; flush; reset", "cleared"),
]


def row_of(step: Step, event: Event) -> Emission | None:
    """The row that an event belongs to; None where it is in none."""
    state, medium = step.after, None if isinstance(event, AllBlocksCleared) else event.medium
    rows = emissions(type(step.operation), FULL, state.config, state.profile)
    found = [row for row in rows if (row.event, row.medium) == (type(event), medium)]
    assert len(found) <= 1
    return found[0] if found else None


PLAYED = [(name, play) for play in PLAYS for name in play.caches]
each_play = pytest.mark.parametrize(
    ("name", "play"), PLAYED, ids=[f"{play.script}-{name}" for name, play in PLAYED]
)


def last_step(name: str, play: Play) -> tuple[Step, str]:
    """The step that a play is about, and what was heard in it."""
    subject = make_subject(CACHES[name], play.config)
    assert subject.copies is not None
    witness = Witness(subject.cache)
    scene = Scene(witness, subject.copies)
    scene.play(play.script)
    steps = list(witness.steps)
    step = [each for each in steps if isinstance(each.operation, play.sends)][-1]
    for each in steps:
        heard = scene.told(each.events)
        if each is step:
            return step, heard
    raise AssertionError


@each_play
def test_play_sends_what_it_says(name: str, play: Play) -> None:
    """The operation of a play emits these events, for these pages, in this order."""
    assert last_step(name, play)[1] == play.said


@each_play
def test_play_goes_through_the_rows_in_their_order(name: str, play: Play) -> None:
    """The table lists the rows of an operation in the order of its events for a victim."""
    step, _ = last_step(name, play)
    rows = [row_of(step, event) for event in step.events]
    places = [row and EMISSIONS.index(row) for row, _ in groupby(rows)]
    one_victim = len(places) == len(set(places))
    assert None not in places
    assert not one_victim or places == sorted(places, key=lambda each: each or 0)


def test_every_row_has_a_play() -> None:
    """Every row of the table has a play."""
    steps = [last_step(name, play)[0] for name, play in PLAYED]
    rows = {row_of(step, event) for step in steps for event in step.events}
    # `test_tier` plays those of the store below the host, which not every cache has.
    of_stores = {op.PollStore, op.EndPrefetch}
    assert rows == {row for row in EMISSIONS if of_stores.isdisjoint(row.operations or of_stores)}


@each_cache
@pytest.mark.parametrize("config", [THROUGH, BACK])
def test_a_new_cache_sends_the_row_of_no_operation(name: str, config: CacheConfig) -> None:
    """A new cache emits exactly the row without an operation."""
    (row,) = emissions(None, FULL, config, CACHES[name].profile)
    events = make_subject(CACHES[name], config).cache.take_events()
    assert [type(event) for event in events] == [row.event]


# Window data and states.


def moves(step: Step, component: Component, medium: Medium) -> bool:
    """Whether a component's data comes to a medium, leaves it, or is no longer waited for."""

    def there(row: PageRow | None) -> tuple[object, ...]:
        if row is None:
            return (None, None)
        pending = row.loading if medium is GPU else row.backing
        return row.slot(component, medium), pending[COLUMN[component]]

    before, after = step.changed
    return any(there(before.get(n)) != there(after.get(n)) for n in {*before, *after})


@each_cache
@pytest.mark.parametrize("component", [SWA, MAMBA])
def test_window_data_and_states_are_silent_in_every_cell(name: str, component: Component) -> None:
    """Window data or a mamba state that comes, leaves or is copied alone emits no event."""
    pools = Counts(full=9, swa=9, mamba=4)
    config = evolve(EVERYTHING, device_slots=pools, host_slots=pools)
    subject = make_subject(CACHES[name], config)
    assert subject.copies is not None
    cache = Witness(subject.cache)
    scene, short = Scene(cache, subject.copies), f"{component.value}=1"
    scene.play("put 12; put 1234; flush")
    told, silent = len(cache.snapshot().events), len(cache.steps)
    scene.play(f"evict {short}; evict_host {short}; put 12 start=0; flush; hit 1234; evict {short}")
    scene.play(f"load 12; flush; hit 1234; evict {short}; evict_host {short}")
    scene.fetch("12", window=2, state=True)
    steps = cache.steps[silent:]
    met = {
        (type(step.operation), medium)
        for step, medium in product(steps, (GPU, CPU))
        if moves(step, component, medium)
    }
    assert met == {
        (op.Insert, GPU),
        (op.Insert, CPU),
        (op.InsertHost, CPU),
        (op.Evict, GPU),
        (op.EvictHost, CPU),
        (op.LoadBack, GPU),
        (op.Flush, GPU),
        (op.Flush, CPU),
    }
    assert not any(moves(step, FULL, medium) for step, medium in product(steps, (GPU, CPU)))
    assert len(cache.snapshot().events) == told
    assert not any(
        emissions(operation, component, config, CACHES[name].profile)
        for operation in get_args(op.Operation)
    )


# Drawn cases.

CASES = 3
"""Of each write policy."""
WITHOUT_A_ROW = (op.Match, op.Lock, op.Unlock, op.UnlockWindow, op.Allocate, op.Free, op.TakeEvents)


@remembered
def drawn_steps(name: str) -> tuple[Step, ...]:
    """What a cache does in some cases."""
    pools, steps = Counts(full=9, swa=6, mamba=3), list[Step]()
    for policy, seed in product(WritePolicy, range(CASES)):
        config = CacheConfig(
            page_size=2,
            window_tokens=3,
            mamba=True,
            device_slots=pools,
            host_slots=Counts() if policy is WritePolicy.NONE else pools,
            write_policy=policy,
        )
        case, subject = draw_case(seed, Offer(), config), make_subject(CACHES[name], config)
        witness, stamps = Witness(subject.cache), Stamps(config.slot_bytes)
        client = Client(witness, subject.can, subject.copies, stamps, NAMESPACES)
        for action in case.actions:
            act(client, *action)
        client.drain(case.drain)
        steps.extend(witness.steps)
    return tuple(steps)


def parents_of(step: Step, *, within_nodes: bool) -> dict[bytes, bytes | None]:
    """The hash of the page before each page that may have changed."""
    parents: dict[bytes, bytes | None] = {}
    for state, changed in zip((step.before, step.after), step.changed, strict=True):
        names = PageHashes(state)
        for node_id in {row.node_id for row in changed.values()}:
            node = state.nodes[node_id]
            above = None if within_nodes else names.before(node)
            for name in names.of(node):
                parents.setdefault(name, above)
                above = name
    return parents


@each_cache
def test_every_event_has_a_row(name: str) -> None:
    """Every event that a cache emits has a row."""
    steps = drawn_steps(name)
    assert all(row_of(step, event) is not None for step in steps for event in step.events)
    silent = [step for step in steps if isinstance(step.operation, WITHOUT_A_ROW)]
    assert silent
    assert not any(step.events for step in silent)
    assert not {row for row in EMISSIONS if set(row.operations) & set(WITHOUT_A_ROW)}


@each_cache
def test_events_come_in_the_order_of_their_row(name: str) -> None:
    """A page is stored after the page before it, and removed before it."""
    compared = Counter[Order]()
    for step in drawn_steps(name):
        sent: dict[Emission, list[bytes]] = {}
        for event in step.events:
            row = row_of(step, event)
            if row is not None and not isinstance(event, AllBlocksCleared):
                sent.setdefault(row, []).append(event.block_hash)
        for row, pages in sent.items():
            closed = row.medium is GPU or step.after.config.backed_parents
            parents = parents_of(step, within_nodes=not closed)
            at = {page: place for place, page in enumerate(pages)}
            for page in pages:
                parent = parents.get(page)
                if parent in at:
                    compared[row.order] += 1
                    assert (at[parent] < at[page]) is (row.order is Order.ROOT_FIRST)
    assert min(compared[Order.ROOT_FIRST], compared[Order.LEAF_FIRST]) > 0


@each_cache
def test_hash_and_parent_are_of_the_chain(name: str) -> None:
    """A store has the hash of its page, and that of the page before it as parent."""
    stored = 0
    for step in drawn_steps(name):
        expected = parents_of(step, within_nodes=False)
        for event in step.events:
            if isinstance(event, BlockStored):
                stored += 1
                before = event.parent_hash or namespace_seed(event.namespace)
                assert event.block_hash == page_hash(before, event.page)
                assert event.parent_hash == expected[event.block_hash]
    assert stored > 0


# Where it is printed.


def test_table_stands_in_the_chapter() -> None:
    """The docstring of the EVENT module has the current table."""
    assert "\n".join([f"    {line}".rstrip() for line in table()]) in (chapter.__doc__ or "")


def test_table_stands_in_the_docs() -> None:
    """docs/events.md has the table that `kvcanon laws --emissions` prints."""
    page = (DOCS / "events.md").read_text("utf-8")
    assert "```\n" + "\n".join(table()) + "\n```" in page
