"""EVENT: each law on a case where it holds, and on cases that mislead a router."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Flush,
    Free,
    HostPayload,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
    Poll,
    Receipt,
    Refused,
    Reset,
    TakeEvents,
    Taken,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    CPU,
    GPU,
    SWA,
    Counts,
    Medium,
    Namespace,
    Slots,
    WritePolicy,
    make_key,
)
from states import node, on, state_of
from telling import ask, names_of, removes, step, stores, stream

POOLS = Counts(full=16, swa=16, mamba=4)
CONFIG = CacheConfig(page_size=2, device_slots=POOLS)
THROUGH = evolve(CONFIG, host_slots=POOLS, write_policy=WritePolicy.WRITE_THROUGH)
BACK = evolve(CONFIG, host_slots=POOLS, write_policy=WritePolicy.WRITE_BACK)
WINDOW = evolve(THROUGH, window_tokens=2)
MUTE = evolve(CONFIG, events=False)
ENQUEUED = Profile(load_back_announced=StoreMoment.ENQUEUED)
EXCLUSIVE = Profile(loads_keep_host_copies=False)

KEY = make_key([1, 2, 3, 4, 5, 6], 2)
UPPER, LOWER = (1, 2, 3, 4), (5, 6)


def state(
    config: CacheConfig = CONFIG,
    *,
    upper: tuple[object, object] | None = ((0, 1), None),
    lower: tuple[object, object] | None = ((2,), None),
    profile: Profile = CANON,
    **pending: int,
) -> Snapshot:
    """Node 1 (two pages) and node 2 below it (one page), each with device and host slots."""
    nodes = []
    if upper is not None:
        nodes.append(node(1, 0, UPPER, full=on(*upper), page_size=2))  # type: ignore[arg-type]
    if lower is not None:
        nodes.append(node(2, 1, LOWER, full=on(*lower, **pending), page_size=2))  # type: ignore[arg-type]
    return evolve(state_of(config, *nodes), profile=profile)


CLEARED = AllBlocksCleared()
EMPTY = state(upper=None, lower=None)
INSERT = Insert(KEY, 0, Slots(full=(0, 1, 2)))


# EVENT-1.


def test_parents_first_holds_from_the_root_down() -> None:
    """Stores from the root down hold."""
    there = state()
    assert ask("EVENT-1", stream(there, *stores(there, 1), *stores(there, 2))) == []
    assert ask("EVENT-1", stream(there, *stores(there, 2), start=stores(there, 1))) == []


def test_parents_first_sees_a_child_before_its_parent() -> None:
    """A store of a child before its parent's is reported."""
    there = state()
    (said,) = ask("EVENT-1", stream(there, *stores(there, 2), *stores(there, 1)))
    assert "while the page before it" in said
    assert names_of(there, 2)[0].hex()[:8] in said


def test_parents_first_looks_at_each_medium_alone() -> None:
    """A parent on the device, or one that was removed or cleared, is no parent on the host."""
    there = state(THROUGH)
    assert ask("EVENT-1", stream(there, *stores(there, 2, CPU), start=stores(there, 1, GPU)))
    gone = removes(there, 1)[:1]
    assert ask("EVENT-1", stream(there, *gone, *stores(there, 2), start=stores(there, 1)))
    cleared = AllBlocksCleared()
    assert ask("EVENT-1", stream(there, cleared, *stores(there, 2), start=stores(there, 1)))


def test_parents_first_lets_write_back_have_holes_on_the_host() -> None:
    """Under write_back a child may be on the host without its parent, not on the device."""
    there = state(BACK)
    assert ask("EVENT-1", stream(there, *stores(there, 2, CPU))) == []
    assert ask("EVENT-1", stream(there, *stores(there, 2, GPU)))


# EVENT-2.


def test_stores_and_removes_alternate_holds() -> None:
    """A page may be stored, removed and stored again."""
    there = state()
    assert ask("EVENT-2", stream(there, *stores(there, 1), *removes(there, 1))) == []
    assert ask("EVENT-2", stream(there, *removes(there, 1), start=stores(there, 1))) == []
    again: tuple[Event, ...] = (AllBlocksCleared(), *stores(there, 1))
    assert ask("EVENT-2", stream(there, *again, start=stores(there, 1))) == []


def test_stores_and_removes_alternate_sees_a_second_store() -> None:
    """A second store of a page on one medium is reported."""
    there = state()
    said = ask("EVENT-2", stream(there, *stores(there, 1), start=stores(there, 1)))
    assert len(said) == 2
    assert "was stored on GPU, where it was already" in said[0]


def test_stores_and_removes_alternate_sees_a_removal_of_nothing() -> None:
    """A remove of a page that is not on the medium is reported."""
    there = state()
    (said,) = ask("EVENT-2", stream(there, *removes(there, 2, CPU), start=stores(there, 2, GPU)))
    assert "was removed from CPU_PINNED, where it was not" in said


# EVENT-4.


def test_stream_is_residency_holds() -> None:
    """Stores that add up to the residency hold, on each medium."""
    there = state(THROUGH, upper=((0, 1), (0, 1)))
    told = (*stores(there, 1), *stores(there, 1, CPU))
    assert ask("EVENT-4", stream(there, *stores(there, 2), start=told)) == []


def test_stream_is_residency_sees_what_is_there_unsaid() -> None:
    """A resident page without a store is reported."""
    there = state(THROUGH, upper=((0, 1), (0, 1)))
    (said,) = ask("EVENT-4", stream(there, *stores(there, 1), *stores(there, 2)))
    assert "about 2 pages on CPU_PINNED" in said
    assert "tokens 0..2 (node 1)" in said or "tokens 2..4 (node 1)" in said
    assert "is resident without a store" in said


def test_stream_is_residency_sees_what_is_not_there() -> None:
    """A page that left without a remove is reported."""
    there = state(lower=None)
    (said,) = ask("EVENT-4", stream(there, *stores(there, 1), *stores(state(), 2)))
    assert "about 1 pages on GPU" in said
    assert "nowhere in the tree, is not resident" in said


def test_stream_is_residency_leaves_out_copies_in_flight() -> None:
    """A page whose backup is in flight is not on the host yet."""
    there = state(THROUGH, lower=((2,), (0,)), backing=9)
    told: tuple[Event, ...] = (*stores(there, 1), *stores(there, 2))
    assert ask("EVENT-4", stream(there, *told)) == []
    assert ask("EVENT-4", stream(there, *told, *stores(there, 2, CPU)))


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (ENQUEUED, False)])
def test_stream_is_residency_follows_the_profile(profile: Profile, broken: bool) -> None:
    """By profile, a page whose load-back is in flight is on the device."""
    there = state(upper=((0, 1), None), lower=((2,), None), profile=profile, loading=9)
    said = ask("EVENT-4", stream(there, *stores(there, 1), *stores(there, 2)))
    assert bool(said) is broken


def test_stream_is_residency_says_nothing_of_the_disk() -> None:
    """Events about the disk are not checked, as states do not show it."""
    there = state()
    disk = BlockStored(b"elsewhere", None, (1, 2), Medium.DISK)
    assert ask("EVENT-4", stream(there, disk, *stores(there, 1), *stores(there, 2))) == []


# EVENT-5.

QUIET: list[Operation] = [
    Match(KEY),
    Lock(KEY),
    Unlock(Receipt(1, KEY)),
    UnlockWindow(Receipt(1, KEY)),
    Allocate(Counts(1)),
    Free(Slots((5,))),
    TakeEvents(),
]


@pytest.mark.parametrize("operation", QUIET, ids=lambda each: type(each).__name__)
def test_silence_of_what_moves_no_full_data(operation: Operation) -> None:
    """Matches, locks and allocations emit no events."""
    there = state()
    assert ask("EVENT-5", step(there, operation, there)) == []
    (said,) = ask("EVENT-5", step(there, operation, there, events=stores(there, 1)))
    assert f"{type(operation).__name__} sent BlockStored" in said


def test_silence_of_a_refusal() -> None:
    """A refused call emits no events."""
    there = state()
    refused = Refused(OutOfSlots("full on GPU", 9, 1))
    assert ask("EVENT-5", step(there, INSERT, there, refused)) == []
    (said,) = ask("EVENT-5", step(there, INSERT, there, refused, stores(there, 2)))
    assert "Insert was refused and sent" in said


def test_silence_where_events_are_off() -> None:
    """A cache whose events are off emits none."""
    there = state(MUTE)
    (said,) = ask("EVENT-5", step(there, INSERT, there, events=stores(there, 1)))
    assert "events are off" in said


# EVENT-6.


def test_hashes_chain_holds_in_a_namespace() -> None:
    """Hashes follow the parent hash, or the seed of the namespace."""
    tenant = node(1, 0, UPPER, full=on((0, 1)), page_size=2, namespace=Namespace("tenant"))
    there = state_of(CONFIG, tenant)
    assert ask("EVENT-6", stream(there, *stores(there, 1))) == []


def test_hashes_chain_sees_a_name_without_its_namespace() -> None:
    """A hash that leaves out the namespace is reported (sgl#24568)."""
    there = state()
    first = stores(there, 1)[0]
    (said,) = ask("EVENT-6", stream(there, evolve(first, namespace=Namespace("tenant"))))
    assert "after the seed of Namespace(extra_key='tenant'" in said


def test_hashes_chain_sees_a_name_after_the_wrong_parent() -> None:
    """A hash that does not follow its own parent hash is reported."""
    there = state()
    (child,) = stores(there, 2)
    (said,) = ask("EVENT-6", stream(there, evolve(child, parent_hash=names_of(there, 1)[0])))
    assert f"was stored as {child.block_hash.hex()[:8]}" in said


def test_hashes_chain_sees_a_seed_for_a_parent() -> None:
    """The namespace's seed as the parent of a first page is reported."""
    there = state()
    (said,) = ask("EVENT-6", stream(there, evolve(stores(there, 1)[0], parent_hash=b"")))
    assert "seed as its parent" in said


# EVENT-7.


def test_parent_is_the_page_before_holds_across_a_cut() -> None:
    """The parent of a new branch is the last page that the branches share (sgl#24718)."""
    before = state_of(CONFIG, node(1, 0, (1, 2, 3, 4), full=on((0, 1)), page_size=2))
    after = state_of(
        CONFIG,
        node(2, 0, (1, 2), full=on((0,)), page_size=2),
        node(1, 2, (3, 4), full=on((1,)), page_size=2),
        node(3, 2, (7, 8), full=on((2,)), page_size=2),
    )
    branch = Insert(make_key([1, 2, 7, 8], 2), 0, Slots((3, 2)))
    assert ask("EVENT-7", step(before, branch, after, events=stores(after, 3))) == []
    wrong = evolve(stores(after, 3)[0], parent_hash=names_of(after, 1)[-1])
    (said,) = ask("EVENT-7", step(before, branch, after, events=(wrong,)))
    assert "tokens 2..4 (node 3)" in said
    assert f"the page before it is {names_of(after, 2)[0].hex()[:8]}" in said


def test_parent_is_the_page_before_sees_other_tokens() -> None:
    """A store with other tokens or another namespace than its page's is reported."""
    after = state(lower=None)
    first, second = stores(after, 1)
    wrong = evolve(second, page=(9, 9))
    (said,) = ask("EVENT-7", step(EMPTY, INSERT, after, events=(first, wrong)))
    assert "tokens 2..4 (node 1) was stored as (9, 9)" in said


def test_parent_is_the_page_before_looks_at_what_is_gone_too() -> None:
    """A page that a step stored and removed again is checked where it was before the step."""
    before, after = state(BACK), state(BACK, lower=None)
    (copied,) = stores(before, 2, CPU)
    evict = Evict(Counts(1))
    assert ask("EVENT-7", step(before, evict, after, events=(copied,))) == []
    assert ask("EVENT-7", step(before, evict, after, events=(evolve(copied, parent_hash=None),)))


# EVENT-8.


def test_reset_clears_holds() -> None:
    """A reset that emits one event holds."""
    assert ask("EVENT-8", step(state(), Reset(), EMPTY, events=(AllBlocksCleared(),))) == []
    assert ask("EVENT-8", step(state(MUTE), Reset(), state(MUTE, upper=None, lower=None))) == []


@pytest.mark.parametrize(
    "events", [(), (AllBlocksCleared(), AllBlocksCleared()), removes(state(), 2)], ids=len
)
def test_reset_clears_sees_anything_else(events: tuple[Event, ...]) -> None:
    """A reset that emits no AllBlocksCleared, two, or removes is reported."""
    (said,) = ask("EVENT-8", step(state(), Reset(), EMPTY, events=events))
    assert "not one AllBlocksCleared" in said


def test_reset_clears_sees_other_operations_clear() -> None:
    """AllBlocksCleared from another operation, or from a refused reset, is reported."""
    there = state()
    (said,) = ask("EVENT-8", step(there, Poll(), there, events=(AllBlocksCleared(),)))
    assert "Poll sent AllBlocksCleared" in said
    refused = Refused(OutOfSlots("", 0, 0))
    assert ask("EVENT-8", step(there, Reset(), there, refused)) == []


# EVENT-9.


def test_one_page_an_event_holds() -> None:
    """A store of `page_size` tokens holds."""
    there = state()
    assert ask("EVENT-9", stream(there, *stores(there, 1))) == []


def test_one_page_an_event_sees_a_whole_node() -> None:
    """A store of more than one page is reported."""
    there = state()
    (said,) = ask("EVENT-9", stream(there, evolve(stores(there, 1)[0], page=UPPER)))
    assert "with 4 units; a page has 2" in said


@pytest.mark.parametrize("bigram", [False, True])
def test_one_page_an_event_sees_the_wrong_units(bigram: bool) -> None:
    """Single tokens in a cache of bigrams are reported, and pairs in any other."""
    there = evolve(state(), config=evolve(CONFIG, bigram=bigram))
    (first, _) = stores(state(), 1)
    pairs = evolve(first, page=((1, 2), (2, 3)))
    right, wrong = (pairs, first) if bigram else (first, pairs)
    assert ask("EVENT-9", stream(there, right)) == []
    (said,) = ask("EVENT-9", stream(there, wrong))
    assert ("units are pairs" in said) is bigram


# EVENT-10.


def test_media_of_operations_holds_for_every_way_in_and_out() -> None:
    """Pages that are stored where they came, and removed where they left, hold."""
    empty = state(THROUGH, upper=None, lower=None)
    device = state(THROUGH)
    both = state(THROUGH, upper=((0, 1), (0, 1)), lower=((2,), (2,)))
    half = state(THROUGH, upper=((0, 1), (0, 1)), lower=(None, (2,)))
    short = state(THROUGH, upper=((0, 1), (0, 1)), lower=None)
    lower, upper = stores(both, 2), stores(both, 1)
    on_host = (*stores(both, 1, CPU), *stores(both, 2, CPU))
    ways: list[tuple[Snapshot, Operation, Snapshot, tuple[Event, ...]]] = [
        (empty, INSERT, device, (*upper, *lower)),
        (half, INSERT, both, lower),
        (device, Poll(), both, on_host),
        (both, Evict(Counts(1)), half, removes(both, 2)),
        (both, Evict(Counts(1)), short, (*removes(both, 2), *removes(both, 2, CPU))),
        (half, EvictHost(Counts(1)), short, removes(both, 2, CPU)),
        (half, Flush(), both, lower),
        (short, InsertHost(KEY, 2, HostPayload((b"",))), half, stores(both, 2, CPU)),
        (half, LoadBack(KEY), short, removes(both, 2, CPU)),
    ]
    allowed = [not ask("EVENT-10", step(*way[:3], events=way[3])) for way in ways]
    # Deleting what has a host copy is no eviction from the device, and a load frees no host slot.
    assert allowed == [True, True, True, True, False, True, True, True, False]


def test_media_of_operations_sees_what_came_unsaid() -> None:
    """An insert that fills a host-only node without a store is reported (sgl#32537)."""
    before, after = state(THROUGH, lower=(None, (0,))), state(THROUGH, lower=((2,), (0,)))
    (said,) = ask("EVENT-10", step(before, INSERT, after))
    assert "tokens 4..6 (node 2) came to GPU in this Insert" in said
    assert "stored 0 times" in said


def test_media_of_operations_sees_what_left_unsaid() -> None:
    """A deleted leaf without a remove is reported."""
    (said,) = ask("EVENT-10", step(state(), Evict(Counts(1)), state(lower=None)))
    assert "tokens 4..6 (node 2) left GPU in this Evict" in said


def test_media_of_operations_sees_a_second_event() -> None:
    """A second event for a page is reported, and one for a page that did not move."""
    after = state()
    twice = (*stores(after, 1), *stores(after, 2), *stores(after, 2))
    (said,) = ask("EVENT-10", step(EMPTY, INSERT, after, events=twice))
    assert "stored 2 times" in said
    (said,) = ask("EVENT-10", step(after, INSERT, after, events=stores(after, 2)))
    assert "neither came to nor left GPU" in said


def test_media_of_operations_sees_the_wrong_medium() -> None:
    """An eviction to the host that is removed from the host is reported."""
    before = state(THROUGH, lower=((2,), (0,)))
    after = state(THROUGH, lower=(None, (0,)))
    said = ask("EVENT-10", step(before, Evict(Counts(1)), after, events=removes(before, 2, CPU)))
    assert "Evict may not remove from CPU_PINNED" in said[0]
    assert len(said) == 3


@pytest.mark.parametrize(("config", "holds"), [(BACK, True), (THROUGH, False)])
def test_media_of_operations_lets_write_back_copy_in_vain(config: CacheConfig, holds: bool) -> None:
    """Only under write_back may an eviction copy a page to the host and then evict the copy."""
    before, after = state(config), state(config, lower=None)
    copied = stores(before, 2, CPU)
    events: tuple[Event, ...] = (*copied, *removes(before, 2), *removes(before, 2, CPU))
    assert (not ask("EVENT-10", step(before, Evict(Counts(1)), after, events=events))) is holds


def test_media_of_operations_takes_back_what_was_said_too_early() -> None:
    """A load-back that was stored at its enqueue, and failed, is removed."""
    before = state(THROUGH, lower=((2,), (0,)), profile=ENQUEUED, loading=9)
    after = state(THROUGH, lower=(None, (0,)), profile=ENQUEUED)
    assert ask("EVENT-10", step(before, Poll(), after, events=removes(before, 2))) == []
    assert ask("EVENT-10", step(before, Poll(), after))


def test_media_of_operations_holds_for_what_arrived() -> None:
    """An insert that stores what it placed holds."""
    after = state()
    events = (*stores(after, 1), *stores(after, 2))
    assert ask("EVENT-10", step(EMPTY, INSERT, after, events=events)) == []


def test_media_of_operations_sees_a_backup_in_flight() -> None:
    """A backup that is stored at its enqueue is reported (sgl#22894)."""
    before = state(THROUGH)
    after = state(THROUGH, lower=((2,), (0,)), backing=9)
    said = ask("EVENT-10", step(before, INSERT, after, events=stores(after, 2, CPU)))
    assert "Insert may not store on CPU_PINNED" in said[0]
    assert "tokens 4..6 (node 2), whose slots transfer 9 has yet to fill, neither came" in said[1]


def test_media_of_operations_sees_what_is_nowhere() -> None:
    """A store of a page that is not in the tree, or has no slot there, is reported."""
    before, after = state(lower=None), state(lower=None)
    (said,) = ask("EVENT-10", step(before, INSERT, after, events=stores(state(), 2)))
    assert ", which is not in the tree, neither came to nor left GPU in this Insert" in said
    copied = InsertHost(KEY, 2, HostPayload((b"",)))
    there = state(THROUGH)
    (said,) = ask("EVENT-10", step(there, copied, there, events=stores(there, 2, CPU)))
    assert "tokens 4..6 (node 2) neither came to nor left CPU_PINNED in this InsertHost" in said


def test_media_of_operations_forgives_what_was_removed_again() -> None:
    """A page that a write_back eviction copied and then evicted is stored and removed."""
    before, after = state(BACK), state(BACK, lower=None)
    copied = stores(before, 2, CPU)
    events: tuple[Event, ...] = (*copied, *removes(before, 2), *removes(before, 2, CPU))
    assert ask("EVENT-10", step(before, Evict(Counts(1)), after, events=events)) == []


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (ENQUEUED, False)])
def test_media_of_operations_follows_the_profile(profile: Profile, broken: bool) -> None:
    """By profile, a load-back is stored at its enqueue."""
    before = state(THROUGH, lower=(None, (0,)), profile=profile)
    after = state(THROUGH, lower=((2,), (0,)), profile=profile, loading=9)
    said = ask("EVENT-10", step(before, LoadBack(KEY), after, events=stores(after, 2)))
    assert bool(said) is broken


def test_media_of_operations_keeps_silent_of_a_window() -> None:
    """An eviction of window data alone emits nothing: the page keeps its full data (sgl#24718)."""
    leaf = node(1, 0, UPPER, full=on((0, 1)), swa=on((0, 1)), page_size=2)
    before = state_of(WINDOW, leaf)
    after = state_of(WINDOW, evolve(leaf, data={**leaf.data, SWA: on()}))
    evict = Evict(Counts(swa=2))
    assert ask("EVENT-10", step(before, evict, after)) == []
    said = ask("EVENT-10", step(before, evict, after, events=removes(before, 1)))
    assert len(said) == 2
    assert "(node 1) neither came to nor left GPU in this Evict; it was stored 0 times" in said[0]


@pytest.mark.parametrize(("profile", "broken"), [(CANON, True), (EXCLUSIVE, False)])
def test_media_of_operations_lets_exclusive_tiers_leave_the_host(
    profile: Profile, broken: bool
) -> None:
    """By profile, the host copy may go in the poll that settles its load-back."""
    before = state(BACK, lower=((2,), (0,)), loading=9, profile=profile)
    events: tuple[Event, ...] = (*stores(before, 2), *removes(before, 2, CPU))
    said = ask("EVENT-10", step(before, Poll(), state(BACK, profile=profile), events=events))
    assert bool(said) is broken


def test_media_of_operations_says_nothing_of_a_cut() -> None:
    """A cut emits nothing."""
    before = state_of(CONFIG, node(1, 0, (1, 2, 3, 4), full=on((0, 1)), page_size=2))
    after = state_of(
        CONFIG,
        node(2, 0, (1, 2), full=on((0,)), page_size=2),
        node(1, 2, (3, 4), full=on((1,)), page_size=2),
    )
    assert ask("EVENT-10", step(before, Match(KEY), after)) == []


def test_media_of_operations_leaves_resets_alone() -> None:
    """Resets are not checked here but by EVENT-8."""
    assert ask("EVENT-10", step(state(), Reset(), EMPTY, events=(AllBlocksCleared(),))) == []


# EVENT-11.


def test_taken_once_holds() -> None:
    """All waiting events are handed out; other operations only add to them."""
    events: tuple[Event, ...] = stores(state(), 1)
    waiting = evolve(state(), events=events[:1])
    assert ask("EVENT-11", step(waiting, TakeEvents(), state(), Taken(events[:1]))) == []
    assert ask("EVENT-11", step(waiting, INSERT, evolve(state(), events=events))) == []


def test_taken_once_sees_lost_and_repeated_events() -> None:
    """Lost, repeated and changed events are reported."""
    events: tuple[Event, ...] = stores(state(), 1)
    waiting = evolve(state(), events=events)
    (said,) = ask("EVENT-11", step(waiting, TakeEvents(), state(), Taken(events[1:])))
    assert "2 events waited" in said
    (said,) = ask("EVENT-11", step(waiting, TakeEvents(), waiting, Taken(events)))
    assert "still wait" in said
    (said,) = ask("EVENT-11", step(waiting, Poll(), evolve(waiting, events=events[1:])))
    assert "Poll changed them" in said


# EVENT-12.


def test_children_leave_first_holds() -> None:
    """A prefix that is removed from its last page on holds."""
    before = state()
    events = (*removes(before, 2), *removes(before, 1))
    assert ask("EVENT-12", step(before, Evict(Counts(3)), EMPTY, events=events)) == []


def test_children_leave_first_sees_a_parent_go_first() -> None:
    """A page that is removed before one that builds on it is reported, in a node or below it."""
    before = state()
    events = (*reversed(removes(before, 1)), *removes(before, 2))
    said = ask("EVENT-12", step(before, Evict(Counts(3)), EMPTY, events=events))
    assert len(said) == 2
    assert "tokens 2..4 (node 1) was removed from GPU after the page before it" in said[0]


def test_children_leave_first_follows_the_profile() -> None:
    """By profile, a node may be removed from its front, but not before nodes below it."""
    before = state(profile=Profile(removes_end_first=False))
    front, below = tuple(reversed(removes(before, 1))), removes(before, 2)
    evict = Evict(Counts(3))
    assert ask("EVENT-12", step(before, evict, EMPTY, events=(*below, *front))) == []
    (said,) = ask("EVENT-12", step(before, evict, EMPTY, events=(*front, *below)))
    assert "tokens 4..6 (node 2) was removed from GPU after the page before it" in said
    (said,) = ask("EVENT-12", step(before, evict, EMPTY, events=(front[0], *below, front[1])))
    assert "was removed from GPU after a page of node 1, which is above it" in said


@pytest.mark.parametrize(("config", "broken"), [(BACK, False), (THROUGH, True)])
def test_children_leave_first_on_the_host(config: CacheConfig, broken: bool) -> None:
    """Under write_back pages may leave the host in any order."""
    before = state(config, upper=(None, (0, 1)), lower=(None, (2,)))
    after = state(config, upper=None, lower=None)
    events = (*reversed(removes(before, 1, CPU)), *removes(before, 2, CPU))
    said = ask("EVENT-12", step(before, EvictHost(Counts(3)), after, events=events))
    assert bool(said) is broken


# Events off.


@pytest.mark.parametrize("law_id", ["EVENT-1", "EVENT-2", "EVENT-4", "EVENT-6", "EVENT-9"])
def test_streams_are_not_judged_where_events_are_off(law_id: str) -> None:
    """Stream laws check nothing where events are off."""
    there = state(MUTE)
    junk = BlockStored(b"x", b"y", (1,), GPU)
    assert ask(law_id, stream(there, junk, BlockRemoved(b"z", CPU))) == []


@pytest.mark.parametrize("law_id", ["EVENT-7", "EVENT-8", "EVENT-10", "EVENT-12"])
def test_steps_are_not_judged_where_events_are_off(law_id: str) -> None:
    """Step laws of events demand none where events are off."""
    assert ask(law_id, step(state(MUTE, upper=None, lower=None), INSERT, state(MUTE))) == []


# The beginning, and moves.


def test_begins_cleared_holds_for_a_cache_that_clears_first() -> None:
    """A stream that begins with AllBlocksCleared holds, and one from a later moment."""
    told = stream(state(), AllBlocksCleared(), *stores(state(), 1))
    assert ask("EVENT-13", evolve(told, begins=True)) == []
    later = stream(state(), *stores(state(), 1))
    assert ask("EVENT-13", later) == []
    mute = evolve(stream(state(MUTE)), begins=True)
    assert ask("EVENT-13", mute) == []


@pytest.mark.parametrize("events", [(), stores(state(), 1), (*stores(state(), 1), CLEARED)])
def test_begins_cleared_sees_another_beginning(events: tuple[Event, ...]) -> None:
    """A cache that begins without an event, or with a page, is reported."""
    (said,) = ask("EVENT-13", evolve(stream(state(), *events), begins=True))
    assert said.startswith("the first events of the cache are ")
    assert said.endswith("not AllBlocksCleared")


DEMOTED = state(BACK, lower=(None, (2,)))
OUT, IN_HOST = removes(state(BACK), 2), stores(state(BACK), 2, CPU)


@pytest.mark.parametrize(
    "events",
    [
        (*IN_HOST, *OUT),
        OUT,
        (*removes(state(BACK), 2, CPU), *IN_HOST, *OUT),
        (*removes(state(BACK), 1), *IN_HOST, *OUT),
        (),
    ],
    ids=["stored first", "left", "made anew", "another", "nothing"],
)
def test_moved_pages_are_never_nowhere_holds(events: tuple[Event, ...]) -> None:
    """A page that is stored on one medium before it is removed from the other holds."""
    told = step(state(BACK), Evict(Counts(1)), DEMOTED, events=events)
    assert ask("EVENT-14", told) == []


def test_moved_pages_are_never_nowhere_sees_a_gap() -> None:
    """A page that is removed from the device before it is stored on the host is reported."""
    told = step(state(BACK), Evict(Counts(1)), DEMOTED, events=(*OUT, *IN_HOST))
    (said,) = ask("EVENT-14", told)
    assert said.endswith("was removed from one medium before it was stored on CPU_PINNED")
    muted = evolve(told, after=evolve(DEMOTED, config=evolve(BACK, events=False)))
    assert ask("EVENT-14", muted) == []
