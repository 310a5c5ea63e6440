"""The explorer visits every state, checks every law, and finds the shortest path to a fault.

Only scopes that a cache offers, and in which its snapshots show enough, are explored.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import count
from pathlib import Path as File
from typing import Any

import pytest
from attrs import evolve

from exploring import (
    FULL,
    HOST,
    NAMESPACES,
    PLAIN,
    STATES,
    TINY,
    WINDOW,
    expander,
    explored,
    paths_in,
)
from faulty import choosy
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.exact_actions import exact_action
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore import exploration as exploring_module
from kvcanon.conformance.explore import frontier
from kvcanon.conformance.explore.expansion import Expander, Expansion
from kvcanon.conformance.explore.exploration import (
    UNSEEN,
    Exploration,
    ExplorationLimits,
    ExplorationSpec,
    as_guarded,
    explore,
)
from kvcanon.conformance.explore.frontier import Codes, Path, Visited
from kvcanon.conformance.explore.moves import moves
from kvcanon.conformance.explore.offered_scopes import why_left_out
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.report.failure_replay import replayed
from kvcanon.lab.variants.override import Overrides, Plant, overriding
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import (
    ReferenceCache,
    cache,
    evict,
    insert,
    match,
    snapshot,
    transfer,
    victims,
)
from kvcanon.reference.state import State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.operations import Inserted, Matched
from kvcanon.spec.snapshot import Usage
from kvcanon.spec.types import Component, Key, Slots, WritePolicy
from nights import at_night

each_scope = pytest.mark.parametrize(
    "scope", [*TINY[:2], *at_night(*TINY[2:])], ids=[scope.name for scope in TINY]
)


def told(found: Exploration) -> tuple[object, ...]:
    """Return all results that must not depend on the order of the search."""
    counts = found.states, found.edges, found.steps, found.laws_exercised
    return found.levels, counts, found.finding


@each_scope
def test_a_sound_cache_is_exhausted(scope: Scope) -> None:
    """Every state of the scope is visited, and the plain cache breaks no law."""
    found = explored(scope)
    assert found.exhausted
    assert found.states == sum(found.levels) == len(paths_in(scope))
    assert found.edges >= found.states - 1
    assert found.steps >= found.edges // 2


def test_every_state_is_visited() -> None:
    """The explorer has visited every state that a random walk reaches."""
    by = expander(WINDOW)
    known = {by.digest(by.origin.at(path)) for path in paths_in(WINDOW)}
    path: Path = ()
    for turn in range(400):
        product = by.origin.at(path)
        options = list(moves(WINDOW, product, product.subject.cache.snapshot()))
        path = (*path, options[turn * 7919 % len(options)]) if turn % 25 else ()
        assert by.digest(by.origin.at(path)) in known


def test_the_laws_of_states_are_asked_of_every_state() -> None:
    """Each state is checked once, however often it is reached."""
    found = Expansion()
    by = expander(FULL)
    for path in paths_in(FULL):
        assert by.judge(path, found) is not None
    total = by.expand(paths_in(FULL))
    assert total.states == len(paths_in(FULL))


def test_a_law_that_is_not_exercised_is_told() -> None:
    """A scope without a host tier reports the laws on load-backs as not exercised."""
    found = explored(FULL)
    assert {"LOAD-1", "REC-1", "RES-9", "RES-5"} <= set(found.not_exercised)
    assert {"LOCK-8", "EVICT-1", "TREE-4", "EVENT-4"} <= found.laws_exercised.keys()


def test_laws_of_states_are_exercised_once_a_state() -> None:
    """Exercise counts are the same for any number of paths and processes."""
    found = explored(FULL)
    by = expander(FULL)
    states = [by.origin.at(path).subject.cache.snapshot() for path in paths_in(FULL)]
    trees = sum(len(state.nodes) > 1 for state in states)
    assert found.laws_exercised["TREE-1"] == found.laws_exercised["RES-1"] == trees < found.states


@pytest.mark.parametrize(
    ("page_size", "window_tokens", "pages", "comes_up"),
    [(1, 1, 2, False), (1, 1, 3, True), (2, 3, 3, False), (2, 3, 4, True), (2, 2, 3, True)],
)
def test_short_prompts_leave_no_window_behind(
    page_size: int, window_tokens: int, pages: int, comes_up: bool
) -> None:
    """A scope needs a premise only where its prompts are long enough for it."""
    config = evolve(WINDOW.config, page_size=page_size, window_tokens=window_tokens)
    scope = evolve(WINDOW, config=config, fans=(1,) * pages)
    assert scope.has_to_exercise("REC-1") is comes_up


def test_tiny_scopes_exercise_nearly_every_law() -> None:
    """The scopes of the tests exercise all laws except the listed ones."""
    exercised = frozenset[str]().union(*(explored(scope).laws_exercised for scope in TINY))
    of_stores = {law_id for law_id, law in LAWS.items() if Need.STORE in law.needs}
    assert LAWS.keys() - exercised == NEED_MORE | of_stores


NO_MOVE = {"ASYNC-14", "ASYNC-16", "EVICT-9", "MATCH-8"}
"""Laws that no scope exercises: no move asks for `arrived`, lets a wait fail, or hands over states
within a key."""
NEED_MORE = NO_MOVE | {"REC-1", "ASYNC-1", "ASYNC-8", "ALLOC-10", "ASYNC-11", "ASYNC-15"}
"""Laws whose premises need more than a tiny scope; the named scopes exercise them, but those of
`NO_MOVE`, and ASYNC-11 and ASYNC-15, which take several ranks. Scopes with a store have tests of
their own."""


@pytest.mark.parametrize(
    ("name", "scope"), [("allocations_evict", FULL), ("prefetches", HOST)], ids=["evicts", "loads"]
)
def test_what_a_cache_declares_to_do_unasked_is_no_fault(name: str, scope: Scope) -> None:
    """What a cache does on its own is taken out of a step, as under the guard."""
    assert explore(expander(scope, varied(name, [name]))).finding is None


# Faults.


def evicts_too_much(patch: Overrides) -> None:
    """Every leaf is evicted, however many slots were requested."""
    leaves = victims.leaves_in_turn
    patch.setattr(evict, "leaves_in_turn", lambda state, medium, _: leaves(state, medium, 1 << 10))


def finds_too_much(patch: Overrides) -> None:
    """A match with a hit returns the whole key as the prefix."""

    def generous(state: State, key: Key) -> Matched:
        found = match.match(state, key)
        return evolve(found, prefix_pages=len(key)) if found.prefix_pages else found

    patch.setattr(cache, "match", generous)


def miscounts_locked_room(patch: Overrides) -> None:
    """Locked slots are counted as evictable."""
    count_usage = snapshot._usage

    def all_evictable(state: State, component: Component) -> Usage:
        usage = count_usage(state, component)
        return Usage(usage.evictable + usage.protected, 0)

    patch.setattr(snapshot, "_usage", all_evictable)


def copies_nothing(patch: Overrides) -> None:
    """A copy that is performed moves no bytes."""
    patch.setattr(transfer, "_perform", lambda *_: None)


def fails_at_the_second_insert(patch: Overrides) -> None:
    """A second insert of the same key raises an error that is not a `CacheError`."""

    def fragile(
        state: State,
        key: Key,
        start: int,
        slots: Slots,
        **options: Any,  # noqa: ANN401  # As they are passed on.
    ) -> Inserted:
        outcome = insert.insert(state, key, start, slots, **options)
        if outcome.present_pages:
            raise ZeroDivisionError("twice")
        return outcome

    patch.setattr(cache, "insert", fragile)


PUT = exact_action("insert_exactly", (0,))
FAULTS: list[tuple[Plant, Scope, str, Path]] = [
    (
        evicts_too_much,
        FULL,
        "REC-3",
        (PUT, exact_action("insert_exactly", (0, 0), start_pages=1), Action("evict", 1, 0, 0)),
    ),
    (finds_too_much, FULL, "MATCH-1", (PUT, exact_action("match_exactly", (0, 0)))),
    (miscounts_locked_room, FULL, "ALLOC-2", (PUT, exact_action("lock_exactly", (0,)))),
    (
        fails_at_the_second_insert,
        FULL,
        "ZeroDivisionError",
        (PUT, exact_action("insert_exactly", (0,), start_pages=1)),
    ),
    (
        copies_nothing,
        evolve(HOST, fetches=False),
        "DATA-1",
        (
            PUT,
            Action("flush"),
            Action("evict", 1, 0, 0),
            exact_action("load_back_exactly", (0,)),
            Action("flush"),
            exact_action("match_exactly", (0,)),
        ),
    ),
]
each_fault = pytest.mark.parametrize(
    ("plant", "scope", "name", "path"), FAULTS, ids=[fault[0].__name__ for fault in FAULTS]
)


@each_fault
def test_a_fault_is_found_by_the_shortest_path(
    plant: Plant, scope: Scope, name: str, path: Path
) -> None:
    """A planted fault is found on a shortest path, with the laws that it breaks."""
    adapter = Adapter(plant.__name__, overriding(plant))
    found = explore(expander(scope, adapter))
    assert found.finding is not None
    assert found.finding.case.actions == path
    assert found.finding.name == name
    assert not found.exhausted
    failure = as_guarded(found.finding, adapter, found.law_ids)
    assert failure.name == name
    assert UNSEEN not in failure.words
    assert failure.case.actions == path
    nearer = explore(expander(scope, adapter), limits=ExplorationLimits(levels=len(path) - 1))
    assert nearer.finding is None
    assert nearer.left


def test_what_the_guard_does_not_see_is_told_as_such() -> None:
    """A fault that cannot be replayed is reported as such."""
    adapter = Adapter("moves nothing", overriding(copies_nothing))
    found = explore(expander(HOST, adapter))
    assert found.finding is not None
    # The guard knows the bytes of slots from the first write on, and there is none here.
    assert found.finding.case.actions[0].name == "insert_host_exactly"
    failure = as_guarded(found.finding, adapter, found.law_ids)
    assert failure.name == found.finding.name == "DATA-1"
    assert UNSEEN in failure.words
    assert not replayed(failure, adapter, found.law_ids).shown_again


def test_only_the_laws_that_were_asked_for_are_asked() -> None:
    """Only the chosen laws are checked."""
    adapter = Adapter("generous", overriding(finds_too_much))
    assert explore(Expander(adapter, FULL, [LAWS["ALLOC-1"]])).exhausted


# Results are the same for every way of searching.


@pytest.mark.parametrize("scope", [NAMESPACES, *at_night(HOST)], ids=["namespaces", "host"])
def test_a_copy_is_as_good_as_the_way_played_again(scope: Scope) -> None:
    """A copied state gives the same answers as a replay of its path."""
    played = Adapter("played again", overriding(lambda _: None))
    assert told(explore(expander(scope, played))) == told(explored(scope))


def test_what_is_done_to_a_copy_is_done_to_it_alone() -> None:
    """A move on a copy leaves the original as it was."""
    by = expander(HOST)
    for path in paths_in(HOST)[::5]:
        product = by.origin.at(path)
        before = by.digest(product)
        for action in moves(HOST, product, product.subject.cache.snapshot()):
            by.origin.again(product, path).do(action)
        assert by.digest(product) == before


def test_any_number_of_processes_finds_the_same() -> None:
    """The results and the path to a fault do not depend on the number of processes."""
    one, two = (explore(ExplorationSpec("reference", FULL), jobs) for jobs in (1, 2))
    assert told(one) == told(two)
    one, two = (explore(ExplorationSpec("faulty:Short", HOST), jobs) for jobs in (1, 2))
    assert told(one) == told(two)
    assert one.finding is not None
    assert one.finding.case.actions == (PUT, exact_action("match_exactly", (0,)))


def test_several_processes_need_a_name() -> None:
    """A cache without a name is refused where several processes are chosen."""
    with pytest.raises(UsageError, match="named"):
        explore(expander(FULL), jobs=2)


# Stopping and resuming.


def test_it_goes_on_where_it_stopped(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped exploration resumes, and counts every state once."""
    whole = explored(HOST)
    monkeypatch.setattr(exploring_module, "CHUNK", 4)
    clock = count()
    monkeypatch.setattr(exploring_module, "monotonic", lambda: next(clock))
    limits = ExplorationLimits(seconds=8, checkpoint=tmp_path / "progress.npz")
    runs = [explore(expander(HOST), limits=limits)]
    while runs[-1].left:
        assert len(runs) < 100
        runs.append(explore(expander(HOST), limits=limits))
    assert len(runs) > 5
    assert told(runs[-1]) == told(whole)
    assert len({each.states for each in runs}) > 5
    assert told(explore(expander(HOST), limits=limits)) == told(whole)


def test_it_stops_after_so_many_levels() -> None:
    """A limit ends the exploration, which reports what is left."""
    found = explore(expander(FULL), limits=ExplorationLimits(levels=2))
    whole = explored(FULL)
    assert found.levels == whole.levels[:3]
    assert found.left == whole.levels[2]
    assert not found.exhausted


def test_a_fault_is_not_lost_between_two_runs(tmp_path: File) -> None:
    """A fault is found again after a stop."""
    adapter = Adapter("generous", overriding(finds_too_much))
    limits = ExplorationLimits(checkpoint=tmp_path / "progress.npz")
    for _ in range(2):
        assert explore(expander(FULL, adapter), limits=limits).finding is not None


def test_progress_of_another_exploration_is_refused(tmp_path: File) -> None:
    """Progress of another scope, cache or selection of laws is refused."""
    limits = ExplorationLimits(checkpoint=tmp_path / "progress.npz")
    explore(expander(FULL), limits=limits)
    with pytest.raises(UsageError, match="another scope"):
        explore(expander(evolve(FULL, receipts=2)), limits=limits)
    with pytest.raises(UsageError, match="another laws"):
        explore(Expander(PLAIN, FULL, [LAWS["ALLOC-1"]]), limits=limits)
    for content in (b"no progress", b""):
        (tmp_path / "progress.npz").write_bytes(content)
        with pytest.raises(UsageError, match="is no progress"):
            explore(expander(FULL), limits=limits)


class Opaque(ReferenceCache):
    """Has its own copy control."""

    copies = object()

    def __init__(self, config: CacheConfig) -> None:
        super().__init__(config)


@pytest.mark.parametrize(
    ("adapter", "scope", "why"),
    [
        (PLAIN, FULL, None),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(None,))), FULL, None),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(None,))), WINDOW, "window_tokens 1"),
        (Adapter("few", ReferenceCache, Offer(windows_tokens=(4,))), FULL, "window_tokens None"),
        (Adapter("few", ReferenceCache, Offer(mamba=(False,))), STATES, "mamba True"),
        (Adapter("few", ReferenceCache, Offer(page_sizes=(16,))), FULL, "page_size 1"),
        (Adapter("few", ReferenceCache, Offer(least_slots=20)), FULL, "at least 20"),
        (Adapter("few", ReferenceCache, Offer(namespaces=False)), NAMESPACES, "namespaces"),
        (Adapter("few", ReferenceCache, Offer(namespaces=False)), FULL, None),
        (Adapter("few", ReferenceCache, Offer(events=(False,))), FULL, "events True"),
        (
            Adapter("few", ReferenceCache, Offer(write_policies=(WritePolicy.NONE,))),
            HOST,
            "write_policy write_through",
        ),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.HITS})), FULL, None),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.HITS})), HOST, "do not show hits"),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.TRANSFERS})), FULL, None),
        (Adapter("few", ReferenceCache, hides=frozenset({Need.TRANSFERS})), HOST, "transfers"),
        (Adapter("own", Opaque), FULL, None),
        (Adapter("own", Opaque), HOST, "about its copies itself"),
        (Adapter("choosy", choosy), STATES, "choosy is not made with this"),
    ],
)
def test_only_offered_scopes_are_explored(adapter: Adapter, scope: Scope, why: str | None) -> None:
    """A scope outside an offer, or whose states would look alike, is left out with the reason."""
    reason = why_left_out(adapter, scope)
    assert (reason is None) == (why is None)
    assert (why or "") in (reason or "")


@pytest.mark.parametrize(
    ("adapter", "scope", "said"),
    [
        (Adapter("opaque", ReferenceCache, hides=frozenset({Need.RECENCY})), STATES, "recency"),
        (Adapter("own", Opaque), HOST, "decides about its copies itself"),
        (Adapter("choosy", choosy), STATES, "cannot be explored there"),
    ],
)
def test_a_cache_that_cannot_be_explored_is_told_why(
    adapter: Adapter, scope: Scope, said: str
) -> None:
    """A cache that cannot be copied or compared is refused with the reason."""
    with pytest.raises(UsageError, match=said):
        explore(expander(scope, adapter))


def test_hidden_hits_change_nothing_where_no_policy_goes_by_them() -> None:
    """A cache that hides its hits is explored in as many states as one that shows them."""
    shy = Adapter("shy", ReferenceCache, hides=frozenset({Need.HITS, Need.AGES, Need.TRANSFERS}))
    found, plain = explore(expander(FULL, shy)), explore(expander(FULL))
    assert (found.states, found.edges, found.finding) == (plain.states, plain.edges, None)
    assert found.exhausted


def test_what_was_visited_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every digest that was added is found, and no other."""
    monkeypatch.setattr(frontier, "RECENT", 50)
    visited, known = Visited(), set[bytes]()
    for turn in range(60):
        digests = [blake2b(bytes([turn * at % 251]), digest_size=16).digest() for at in range(9)]
        digests.append(bytes(15) + bytes([turn]))
        for digest, is_new in zip(digests, visited.enter(digests), strict=True):
            assert is_new == (digest not in known)
            known.add(digest)
        assert len(visited) == len(known)
    assert not any(Visited(visited.all()).enter(list(known)))


def test_paths_are_kept_whole() -> None:
    """A coded path is decoded to itself."""
    codes = Codes()
    for path in paths_in(HOST):
        coded = b"".join(map(codes.code, path))
        assert len(coded) == 2 * len(path)
        assert codes.path(coded) == Codes(codes.actions).path(coded) == path
