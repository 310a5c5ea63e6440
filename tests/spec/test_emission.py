"""The table of events: caches emit what it says, row by row, and nothing else.

Each row has a scene of a few calls, and so has the silence of window data and mamba states. Then
cases are drawn, and every event in them has its row, its place in the order, its hash and its
parent.
"""

from __future__ import annotations

from collections import Counter
from functools import cache as remembered
from itertools import groupby, product
from typing import get_args

import pytest

from emitting import BACK, CACHES, SCENES, THROUGH, Scene, Witness
from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.client import NAMESPACES, Client, Stamps
from kvcanon.conformance.check.walker import draw_case
from kvcanon.conformance.protocol.adapter import Offer, make_subject
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hash
from kvcanon.spec.laws import event as chapter
from kvcanon.spec.laws.emission import EMISSIONS, Emission, Order, emissions, table
from kvcanon.spec.laws.page_hashes import PageHashes
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Flush,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    TakeEvents,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Medium,
    Unit,
    WritePolicy,
    make_key,
)
from kvcanon.spec.views import COLUMN, PageRow, Step
from paths import DOCS
from scenes import fetch, put

each_cache = pytest.mark.parametrize("name", CACHES)


def row_of(step: Step, event: Event) -> Emission | None:
    """The row that an event belongs to; None where it is in none."""
    state, medium = step.after, None if isinstance(event, AllBlocksCleared) else event.medium
    rows = emissions(type(step.operation), FULL, state.config, state.profile)
    found = [row for row in rows if (row.event, row.medium) == (type(event), medium)]
    assert len(found) <= 1
    return found[0] if found else None


PLAYED = [(name, scene) for scene in SCENES for name in scene.caches]
each_scene = pytest.mark.parametrize(
    ("name", "scene"), PLAYED, ids=[f"{scene.play.__name__}-{name}" for name, scene in PLAYED]
)


def last_step(name: str, scene: Scene) -> tuple[Step, dict[bytes, Unit]]:
    """The step that a scene is about, and the token of each page that was stored until then."""
    subject = make_subject(CACHES[name], scene.config)
    witness = Witness(subject.cache)
    scene.play(witness, subject)
    tokens = {
        event.block_hash: event.page[0]
        for step in witness.steps
        for event in step.events
        if isinstance(event, BlockStored)
    }
    return [each for each in witness.steps if isinstance(each.operation, scene.sends)][-1], tokens


@each_scene
def test_scene_sends_what_it_says(name: str, scene: Scene) -> None:
    """The operation of a scene emits these events, for these pages, in this order."""
    step, tokens = last_step(name, scene)

    def of(event: Event) -> tuple[str, str]:
        if isinstance(event, AllBlocksCleared):
            return "cleared", ""
        verb = "stored" if isinstance(event, BlockStored) else "removed"
        return f"{verb} {event.medium.name}", f" {tokens[event.block_hash]}"

    told = groupby(map(of, step.events), key=lambda each: each[0])
    said = [verb + "".join(token for _, token in events) for verb, events in told]
    assert ", ".join(said) == scene.said


@each_scene
def test_scene_goes_through_the_rows_in_their_order(name: str, scene: Scene) -> None:
    """The table lists the rows of an operation in the order of its events for a victim."""
    step, _ = last_step(name, scene)
    rows = [row_of(step, event) for event in step.events]
    places = [row and EMISSIONS.index(row) for row, _ in groupby(rows)]
    one_victim = len(places) == len(set(places))
    assert None not in places
    assert not one_victim or places == sorted(places, key=str)


def test_every_row_has_a_scene() -> None:
    """Every row of the table has a scene."""
    steps = [last_step(name, scene)[0] for name, scene in PLAYED]
    rows = {row_of(step, event) for step in steps for event in step.events}
    assert rows == {row for row in EMISSIONS if row.operations}


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
    pools, short = Counts(full=9, swa=9, mamba=4), Counts(**{component.value: 1})
    config = CacheConfig(
        window_tokens=2,
        mamba=True,
        device_slots=pools,
        host_slots=pools,
        write_policy="write_through",
    )
    cache = Witness(make_subject(CACHES[name], config).cache)
    put(cache, [1, 2])
    put(cache, [1, 2, 3, 4])
    cache.flush()
    told = len(cache.snapshot().events)
    silent = len(cache.steps)
    cache.evict(short)
    cache.evict_host(short)
    put(cache, [1, 2], start_pages=0)
    cache.flush()
    cache.match(make_key([1, 2, 3, 4], 1))
    cache.evict(short)
    cache.load_back(make_key([1, 2], 1))
    cache.flush()
    cache.match(make_key([1, 2, 3, 4], 1))
    cache.evict(short)
    cache.evict_host(short)
    fetch(cache, [1, 2], window_pages=2, state=True)
    steps = cache.steps[silent:]
    met = {
        (type(step.operation), medium)
        for step, medium in product(steps, (GPU, CPU))
        if moves(step, component, medium)
    }
    assert met == {
        (Insert, GPU),
        (Insert, CPU),
        (InsertHost, CPU),
        (Evict, GPU),
        (EvictHost, CPU),
        (LoadBack, GPU),
        (Flush, GPU),
        (Flush, CPU),
    }
    assert not any(moves(step, FULL, medium) for step, medium in product(steps, (GPU, CPU)))
    assert len(cache.snapshot().events) == told
    assert not any(
        emissions(operation, component, config, CACHES[name].profile)
        for operation in get_args(Operation)
    )


# Drawn cases.

CASES = 3
"""Of each write policy."""
WITHOUT_A_ROW = (Match, Lock, Unlock, UnlockWindow, Allocate, Free, TakeEvents)


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
    lines = [f"    {line}".rstrip() for line in table()]
    assert "\n".join(lines) in (chapter.__doc__ or "")


def test_table_stands_in_the_docs() -> None:
    """docs/events.md has the table that `kvcanon laws --emissions` prints."""
    page = (DOCS / "events.md").read_text("utf-8")
    assert "```\n" + "\n".join(table()) + "\n```" in page
