"""The black-box guard reports no sound cache, however few methods it has, and finds faults."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Action, Case, case_from_json, case_to_json
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.invalid_calls import NONSENSE
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.judge.judges import JudgeConfig, make_judged
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.variants.override import Overrides, Plant, overriding
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import (
    ReferenceCache,
    cache,
    departures,
    events,
    evict,
    insert,
    lock,
    slots,
    snapshot,
    transfer,
)
from kvcanon.reference.state import Node, State, Transfer
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import PrefixNotCached, SlotNotHeld
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import Evicted, Inserted, LoadedBack, Receipt
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, Key, Medium, Slot, Slots
from nights import at_night
from writing import WritesAnywhere, WritesLittle

OUTSIDE = JudgeConfig(black_box=True)
REFERENCE = Adapter("reference", ReferenceCache)


def findings(adapter: Adapter, seeds: range) -> list[tuple[int, Finding]]:
    """Return the findings in black-box mode in the cases of some seeds."""
    return [
        (seed, finding)
        for seed in seeds
        for finding in play(draw_case(seed, Offer()), [adapter], OUTSIDE)[0]
    ]


@pytest.mark.parametrize(
    "name",
    [
        "every_insert_hits",
        "new_slots_heal",
        "windowless_leaves_dropped",
        "uncovered_tombstones_leave",
        "loads_of_use_early",
        "unreachable_windows_dropped",
        "matches_count_hits",
        "exclusive_host",
        "leading_pages_loaded",
        "removes_front_to_back",
        "independent_copies_settle_early",
    ],
)
def test_what_is_declared_is_not_accused(name: str) -> None:
    """A cache with a declared profile passes in black-box mode."""
    assert findings(varied(name, [name]), range(40)) == []


class LateNames(ReferenceCache):
    """Changes the hashes of stores, except those of the last operation."""

    named = 0

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        self.named = len(self._state.events)
        return super().insert(
            key,
            start_pages,
            slots,
            counted_pages=counted_pages,
            priority=priority,
            state_pages=state_pages,
        )

    def take_events(self) -> tuple[Event, ...]:
        named, self.named = self.named, 0
        events = super().take_events()
        return tuple(
            evolve(event, block_hash=bytes(32))
            if at < named and isinstance(event, BlockStored)
            else event
            for at, event in enumerate(events)
        )


def test_events_of_many_operations_are_heard_at_once() -> None:
    """Events that wait for clients are checked, too, and a fault in them is found."""
    config = CacheConfig(device_slots=Counts(full=8))
    served = (Action("serve", pick, 7 * pick, 3 * pick + 1) for pick in range(4))
    at_once = Case(config, (*served, Action("take_events")), unobserved=True)
    adapter = Adapter("late", LateNames)
    (finding,), _ = play(at_once, [adapter], OUTSIDE)
    assert finding.name == "EVENT-6"
    assert play(evolve(at_once, unobserved=False), [adapter], OUTSIDE)[0] == []
    assert play(at_once, [REFERENCE], OUTSIDE)[0] == []
    assert case_from_json(case_to_json(at_once)) == at_once
    late = [draw_case(seed, Offer()).unobserved for seed in range(200)]
    assert 20 < sum(late) < 80


class FreesWhenAsked(ReferenceCache):
    """Frees the full slots of victims when somebody asks for the free slots, and not before."""

    kept: tuple[Slot, ...] = ()

    def evict(self, counts: Counts) -> Evicted:
        pool = self._state.pools[FULL, GPU]
        before = len(pool.returned)
        answer = super().evict(counts)
        self.kept += tuple(pool.returned[before:])
        del pool.returned[before:]
        return answer

    def free_slots(self, component: Component, medium: Medium) -> list[Slot]:
        self._state.pools[FULL, GPU].returned.extend(self.kept)
        self.kept = ()
        return super().free_slots(component, medium)


def test_what_looking_mends_is_found_where_nobody_looks() -> None:
    """In cases where the judge does not look between calls, it counts what answers free."""
    adapter = Adapter("asked", FreesWhenAsked)
    found = findings(adapter, range(60))
    assert {finding.name for _, finding in found} == {"REFUSE-1"}
    assert all(draw_case(seed, Offer()).unobserved for seed, _ in found)


def test_parent_is_not_removed_before_its_child_whatever_is_declared() -> None:
    """A parent that is removed before its child's node is reported, whatever the profile."""
    announced, profile = events.emit_removed, Profile(removes_end_first=False)

    def removes_the_front_alone(patch: Overrides) -> None:
        """Only the first of the pages that are evicted is removed."""

        def announce_first(state: State, node: Node, medium: Medium) -> None:
            waiting = len(state.events)
            announced(state, node, medium)
            state.events[waiting:] = state.events[-1:]

        patch.setattr(departures, "emit_removed", announce_first)
        take = snapshot.take_snapshot
        patch.setattr(cache, "take_snapshot", lambda state: evolve(take(state), profile=profile))

    adapter = Adapter("it", overriding(removes_the_front_alone), profile=profile)
    laws = {law for _, found in findings(adapter, range(40)) for law in found.broken}
    assert "EVENT-12" in laws


class NoFreeSlots(ReferenceCache):
    """Hides its free lists, so that the guard finds them by allocating all slots."""

    free_slots = None  # type: ignore[assignment]


class NoEvents(ReferenceCache):
    """Has no events, so that little is known of the host."""

    take_events = None  # type: ignore[assignment]


class Least(ReferenceCache):
    """Has only the required methods."""

    free_slots = take_events = read = write = None  # type: ignore[assignment]
    evict = evict_host = load_back = insert_host = poll = flush = None  # type: ignore[assignment]
    unlock_window = reset = snapshot = None  # type: ignore[assignment]


def test_whole_nodes_that_are_loaded_are_followed() -> None:
    """A cache that loads whole nodes passes."""
    actions = (
        Action("fetch_and_load", 0, 0, 7),
        Action("fetch_and_load", 0, 1, 0),
        Action("serve", 0, 1, 2),
        Action("admit", 0, 0, 8),
        Action("fetch_and_load", 2, 1, 0),
    )
    slots = Counts(full=9, swa=3)
    config = CacheConfig(
        window_tokens=8, device_slots=slots, host_slots=slots, write_policy="write_back"
    )
    found, _ = play(Case(config, actions), [load_adapter("variant")], OUTSIDE)
    assert not found, found[0].words


def test_doubt_about_a_load_that_fails_is_kept() -> None:
    """Of two loads, one of which fails, the other may have loaded a page."""
    named = ("fetch_and_load", 0, 0), ("fetch_and_load", 1, 0), ("serve", 0, 1)
    more = ("copy", 0, 0), ("poll", 0, 0), ("fetch_and_load", 2, 1), ("copy", 3, 0)
    actions = [Action(name, 0, b, c) for name, b, c in (*named, *more, ("fetch_and_load", 1, 0))]
    config = CacheConfig(
        window_tokens=3,
        device_slots=Counts(full=7, swa=3),
        host_slots=Counts(full=8, swa=4),
        write_policy="write_through",
    )
    found, _ = play(Case(config, tuple(actions)), [load_adapter("variant")], OUTSIDE)
    assert not found, found[0].words


@pytest.mark.parametrize("kind", [NoEvents, Least, *at_night(NoFreeSlots)])
def test_sound_cache_that_shows_little_is_not_accused(kind: type[ReferenceCache]) -> None:
    """A cache with few methods passes."""
    found = findings(Adapter(kind.__name__, kind), range(150))
    assert not found, f"seed {found[0][0]}: {found[0][1].words}"


def test_least_cache_is_judged() -> None:
    """A cache with the six required methods exercises laws."""
    judged: set[str] = set()
    for seed in range(10):
        _, tallies = play(draw_case(seed, Offer()), [Adapter("least", Least)], OUTSIDE)
        judged |= {law_id for law_id, times in tallies["least"].laws.items() if times}
    assert {"MATCH-2", "MATCH-3", "ALLOC-1", "ALLOC-3", "ALLOC-5", "LOCK-9"} <= judged
    assert not judged & {"EVENT-4", "DATA-1", "EVICT-1"}


@frozen
class Fault:
    """A fault, and the law that reports it in black-box mode."""

    law_id: str
    plant: Plant


def gives_one_slot_more(patch: Overrides) -> None:
    """An allocation returns a slot too many."""
    allocate = slots.allocate

    def generous(state: State, counts: Counts) -> Slots:
        room = state.pools[FULL, GPU].free_slots > counts.full > 0
        return allocate(state, evolve(counts, full=counts.full + room))

    patch.setattr(slots, "allocate", generous)


def reset_keeps_slots(patch: Overrides) -> None:
    """A reset empties the tree and does not free its slots."""
    patch.setattr(slots, "free_tree", lambda _: None)


def reset_is_silent(patch: Overrides) -> None:
    """A reset emits no event."""
    patch.setattr(cache, "emit_cleared", lambda _: None)


def all_is_cleared_at_every_eviction(patch: Overrides) -> None:
    """Every eviction emits a clear."""
    removed = events.emit_removed

    def loud(state: State, node: Node, medium: object) -> None:
        if state.config.events:
            state.events.append(AllBlocksCleared())
        removed(state, node, GPU)

    patch.setattr(departures, "emit_removed", loud)


def asked_for_nothing_it_evicts(patch: Overrides) -> None:
    """An eviction of no slots frees some."""
    rightly = evict.evict

    def greedy(state: State, counts: Counts) -> Counts:
        return rightly(state, counts or Counts(full=1))

    patch.setattr(cache, "evict", greedy)


def lock_of_what_is_gone(patch: Overrides) -> None:
    """A lock of a key that is partly cached locks that part."""
    rightly = lock.lock

    def lenient(state: State, key: Key) -> Receipt:
        try:
            return rightly(state, key)
        except PrefixNotCached:
            return rightly(state, key.prefix(0))

    patch.setattr(cache, "lock", lenient)


def flush_waits_for_nothing(patch: Overrides) -> None:
    """A flush settles the copies that ended, and leaves the rest in flight."""
    patch.setattr(cache, "flush", transfer.settle)


def failure_cancels_everything(patch: Overrides) -> None:
    """All copies after a failed one are reported as cancelled."""
    settle_one = transfer._settle_one

    def gloomy(state: State, each: Transfer, *, ok: bool) -> TransferStatus:
        status = settle_one(state, each, ok=ok)
        return status if status is TransferStatus.DONE else TransferStatus.CANCELLED

    patch.setattr(transfer, "_settle_one", gloomy)


def frees_any_slot(patch: Overrides) -> None:
    """A free frees any slot, whichever request holds it."""
    patch.setattr(slots, "require_held", lambda _state, _slots: None)


def takes_any_slot(patch: Overrides) -> None:
    """An insert takes any slot, whichever request holds it."""
    patch.setattr(insert, "require_held", lambda _state, _slots: None)
    patch.setattr(insert, "_check_pairs", lambda _state, _slots: None)


def takes_half_of_what_it_cannot_give(patch: Overrides) -> None:
    """If window slots are short, the full slots are allocated, and the call is refused."""
    allocate = slots.allocate

    def hasty(state: State, counts: Counts) -> Slots:
        short = SWA in state.config.components and state.pools[SWA, GPU].free_slots < counts.swa
        if short and state.pools[FULL, GPU].free_slots >= counts.full:
            state.pools[FULL, GPU].take(counts.full)
        return allocate(state, counts)

    patch.setattr(slots, "allocate", hasty)


FAULTS = [
    Fault("ALLOC-1", frees_any_slot),
    Fault("ALLOC-1", takes_any_slot),
    Fault("ALLOC-6", takes_half_of_what_it_cannot_give),
    Fault("ALLOC-5", gives_one_slot_more),
    Fault("ALLOC-7", reset_keeps_slots),
    Fault("EVENT-8", reset_is_silent),
    Fault("EVENT-8", all_is_cleared_at_every_eviction),
    Fault("EVICT-2", asked_for_nothing_it_evicts),
    Fault("LOCK-9", lock_of_what_is_gone),
    Fault("ASYNC-6", flush_waits_for_nothing),
    Fault("ASYNC-5", failure_cancels_everything),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[each.plant.__name__ for each in FAULTS])
def test_fault_is_seen_from_outside(fault: Fault) -> None:
    """Each fault is found by answers, events and bytes alone."""
    adapter = Adapter("faulty", overriding(fault.plant))
    spoken: set[str] = set()
    for seed in range(120):
        for _, finding in findings(adapter, range(seed, seed + 1)):
            spoken |= set(finding.broken)
        if fault.law_id in spoken:
            return
    pytest.fail(f"{fault.law_id} did not speak; {spoken or 'no law'} did")


@pytest.mark.parametrize("judges", [OUTSIDE, JudgeConfig()], ids=["outside", "inside"])
@pytest.mark.parametrize("plant", [frees_any_slot, takes_any_slot])
def test_slots_that_nobody_holds_are_a_matter_of_laws(plant: Plant, judges: JudgeConfig) -> None:
    """A cache that takes slots that it must refuse breaks a law, and does not crash the guard."""
    adapter = Adapter("faulty", overriding(plant))
    found = []
    for seed in range(40):
        case = draw_case(seed, Offer())
        names = "admit", "free_wrongly", "insert_wrongly"
        wrong = tuple(Action(name, seed, seed, seed // 2) for name in names)
        right = tuple(action for action in case.actions if action.name not in NONSENSE)
        found += play(evolve(case, actions=right[:9] + wrong), [adapter], judges)[0]
    assert len(found) > 20
    assert {finding.grounds for finding in found} == {Grounds.LAW}


class FreesOneByOne(NoFreeSlots):
    """Frees the slots before one that is not held, and hides its free lists."""

    def free(self, slots: Slots) -> None:
        for component, some in slots:
            for slot in some:
                super().free(Slots(**{component.value: (slot,)}))


def test_half_of_a_refused_call_shows_where_free_lists_do_not() -> None:
    """Slots that a refused call freed are reported at once."""
    adapter = Adapter("it", FreesOneByOne)
    assert any(
        "ALLOC-6" in found.broken
        for seed in range(60)
        for _, found in findings(adapter, range(seed, seed + 1))
    )


class HoldsNothingTwice(ReferenceCache):
    """Refuses a free of a slot that is given twice as not held."""

    def free(self, slots: Slots) -> None:
        for component, some in slots:
            if len(set(some)) < len(some):
                raise SlotNotHeld(f"{component} on GPU", some[0])
        super().free(slots)


@pytest.mark.parametrize("judges", [OUTSIDE, JudgeConfig()], ids=["outside", "inside"])
def test_slot_that_is_named_twice_may_be_not_held(judges: JudgeConfig) -> None:
    """Any true reason to refuse a call is accepted."""
    slots = Counts(full=4)
    actions = (Action("admit", 0, 0, 2), Action("free_wrongly", 0, 0, 1))
    case = Case(CacheConfig(device_slots=slots), actions)
    found, _ = play(case, [Adapter("it", HoldsNothingTwice)], judges)
    assert not found, found[0].words


@pytest.mark.parametrize(
    ("kind", "law_id"), [(WritesAnywhere, "REFUSE-3"), (WritesLittle, "REFUSE-1")]
)
def test_writes_are_judged_from_outside(kind: type[ReferenceCache], law_id: str) -> None:
    """A write that is wrongly served or wrongly refused is reported."""
    found = findings(Adapter("writing", kind), range(20))
    assert law_id in {each.name for _, each in found}


class SaysHowManyPagesItLoads(ReferenceCache):
    """Says of each load-back that it is for a number of leading pages, and shows no states."""

    pages = 1
    snapshot = None  # type: ignore[assignment]

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        return evolve(super().load_back(key, quota_pages), pages=self.pages)


@pytest.mark.parametrize("whole", [True, False], ids=["whole keys", "leading pages"])
@pytest.mark.parametrize("pages", [-1, 0, 1, 2, 9])
def test_a_load_of_leading_pages_is_declared_and_right(pages: int, whole: bool) -> None:
    """An answer that says how many leading pages it loads says so by profile, and less than all."""
    kind = type("SaysSo", (SaysHowManyPagesItLoads,), {"pages": pages})
    adapter = Adapter("it", kind, profile=Profile(loads_whole_keys=whole))
    config = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
    calls = Action("insert_host_exactly", 2), Action("load_back_exactly", 2)
    found, _ = play(Case(config, calls), [adapter], OUTSIDE)
    # It loads two pages, whatever it says; of an answer that can be, the events show that.
    can_be = pages == 1 and not whole
    assert [each.name for each in found] == ["EVENT-4" if can_be else "LOAD-6"]


class ServesAnyNumber(ReferenceCache):
    """Takes numbers that are out of range as the nearest ones that are not."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        start, counted = (max(0, min(each, len(key))) for each in (start_pages, counted_pages))
        return super().insert(
            key, start, slots, counted_pages=counted, priority=priority, state_pages=state_pages
        )

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        return super().load_back(key, None if quota_pages is None else max(0, quota_pages))


@pytest.mark.parametrize("pages", range(3))
@pytest.mark.parametrize("number", [-9, -1, 9])
def test_numbers_that_are_served_wrongly_stop_no_judge(pages: int, number: int) -> None:
    """The judge goes on, whichever numbers a cache takes for right ones."""
    config = CacheConfig(device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through")
    _, judged = make_judged(Adapter("any", ServesAnyNumber), config, OUTSIDE)
    key = Key(((1,), (2,))).prefix(pages)
    slots = judged.allocate(Counts(pages))
    judged.insert(key, 0, slots, counted_pages=number)
    judged.insert(key, pages, Slots(), counted_pages=number)
    judged.flush()
    judged.load_back(key, quota_pages=number)
    assert judged.match(key).device_pages == pages


def test_a_reset_may_be_refused_after_a_wait_that_broke_off() -> None:
    """No answer names the copy of an eviction's victims; it is in flight until a flush."""
    config = CacheConfig(
        device_slots=Counts(full=2), host_slots=Counts(full=2), write_policy="write_back"
    )
    broken_off = (
        Action("allocate_exactly", 1),
        Action("allocate_exactly", 1),
        Action("finish"),
        Action("insert_host_exactly", 1, 1),
        Action("break_off_wait"),
        Action("load_back_exactly", 1, 1),
        Action("reset"),
        Action("flush"),
        Action("reset"),
    )
    (found, tallies) = play(Case(config, broken_off), [REFERENCE], OUTSIDE)
    assert found == []
    assert tallies["reference"].laws["REFUSE-2"] > 0
