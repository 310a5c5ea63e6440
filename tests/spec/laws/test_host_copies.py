"""RES-5, RES-9 and RES-10: host copies are whole and at their pages."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import (
    HostInserted,
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    Match,
)
from kvcanon.spec.snapshot import NodeState, PoolState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, NodeId, Slots, make_key
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(8, 8, 4)
CONFIG = CacheConfig(
    window_tokens=1,
    mamba=True,
    device_slots=POOLS,
    host_slots=POOLS,
    write_policy="write_through",
)
KEY = make_key([1, 2, 3, 4], 1)
BYTES = bytes(8)
FETCH = InsertHost(KEY, 1, HostPayload((BYTES,) * 3, (BYTES,), (BYTES,)))
"""Three pages from page 1 on, window data of the last, and its state."""

TOP = node(1, ROOT, [1], full=on([0], [0]))
BARE = node(2, 1, [2], full=on([1]), swa=on([1]))
REFILLED = evolve(BARE, data={FULL: on([1], [1]), SWA: on([1])})
NEW = node(3, 2, [3, 4], full=on(None, [2, 3]))
LAST = node(4, 3, [4], full=on(None, [3]), swa=on(None, [3]), mamba=on(None, [0]))
PARTED = (TOP, REFILLED, evolve(NEW, pages=NEW.pages[:1], data={FULL: on(None, [2])}), LAST)
TOLD = HostInserted(placed_pages=2, refilled_pages=1, present_pages=0, dropped_pages=0)


def fetched(
    *after: NodeState, told: HostInserted = TOLD, before: Snapshot | None = None
) -> list[str]:
    """What RES-9 reports of a host insert of `FETCH` that leads to these nodes."""
    return ask(
        "RES-9", step(before or state_of(CONFIG, TOP, BARE), FETCH, state_of(CONFIG, *after), told)
    )


def test_res_9_data_at_its_pages_holds() -> None:
    """A host insert that refills, places and counts correctly holds."""
    assert fetched(*PARTED) == []
    assert fetched(TOP, BARE, told=HostInserted(0, 0, 0, 3)) == []
    nothing = step(state_of(CONFIG), Match(KEY), state_of(CONFIG))
    assert ask("RES-9", nothing) == []


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (HostInserted(3, 0, 0, 0), "3 pages are reported as placed, and 2 are"),
        (HostInserted(3, 0, 0, 0), "0 pages are reported as refilled, and 1 are"),
        (HostInserted(2, 1, 1, 0), "1 pages are reported as present, and 0 are"),
        (HostInserted(2, 1, 0, 1), "3 pages were given, and 4 are accounted for"),
    ],
)
def test_res_9_other_counts_are_named(told: HostInserted, words: str) -> None:
    """Wrong counts of placed, refilled or present pages are reported."""
    assert words in fetched(*PARTED, told=told)


def test_res_9_window_and_state_beside_their_pages_are_named() -> None:
    """Window data or a mamba state at other pages is reported."""
    upper, lower = PARTED[2], evolve(LAST, data={FULL: on(None, [3])})
    beside = evolve(upper, data={FULL: on(None, [2]), SWA: on(None, [3]), MAMBA: on(None, [0])})
    window, state = fetched(TOP, REFILLED, beside, lower)
    assert "has swa slot 3 on CPU_PINNED, where it had none; it is page 2 of the key" in window
    assert "has mamba slot 0 on CPU_PINNED" in state
    assert state.endswith("data was given for the last 1 pages")


@pytest.mark.parametrize(
    ("refilled", "words"),
    [
        (
            {"data": {FULL: on([5], [1]), SWA: on([1])}},
            "device was (1, 1, None) and is (5, 1, None)",
        ),
        ({"data": {FULL: on([1], [1], lock_refs=1), SWA: on([1])}}, "lock_refs was (0, 0, 0)"),
        ({"hit_count": 3}, "hit_count was 0 and is 3"),
    ],
    ids=["moved", "locked", "hit"],
)
def test_res_9_the_path_is_left_alone(refilled: dict[str, object], words: str) -> None:
    """A host insert that locks or changes other data of its path, or counts hits, is reported."""
    after = evolve(REFILLED, **refilled)  # type: ignore[arg-type]
    assert any(words in each for each in fetched(TOP, after, *PARTED[2:]))


def test_res_9_the_path_keeps_its_full_data_on_the_host() -> None:
    """A host insert that takes full data or a page from its path is reported."""
    moved = evolve(TOP, data={FULL: on([0], [5])})
    (said,) = fetched(moved, *PARTED[1:])
    assert said == "page 0 in node 1 (tokens 0..1) had full slot 0 on CPU_PINNED, and has 5"
    gone = "page 1 in node 2 (tokens 1..2) of the key is not in the tree any more"
    assert gone in fetched(TOP, told=HostInserted(0, 0, 0, 3))


def test_res_9_new_pages_are_new() -> None:
    """New pages with hits, or with device slots, are reported."""
    (said,) = fetched(*PARTED[:3], evolve(LAST, hit_count=2))
    assert said.endswith("is new, and has 2 hits and slots (None, None, None) on GPU")


def test_res_9_copies_before_the_first_page_are_named() -> None:
    """A host copy of a page before the first fetched one is reported."""
    without = state_of(CONFIG, evolve(TOP, data={FULL: on([0])}), BARE)
    said = fetched(*PARTED, before=without, told=HostInserted(2, 2, 0, 0))
    assert "pages [0] have a host copy now; bytes came from page 1 on" in said


def test_res_9_requests_and_the_device_keep_their_slots() -> None:
    """A host insert that takes device slots, or those of a request, is reported."""
    before = state_of(CONFIG, TOP, BARE, held={FULL: {7}})
    (said,) = fetched(*PARTED, before=before)
    assert said == "a host insert changed which slots of full on GPU are free or held"


def test_res_9_a_window_may_leave_for_want_of_room() -> None:
    """Window data of the path may be evicted from the host."""
    with_window = evolve(TOP, data={FULL: on([0], [0]), SWA: on(None, [5])})
    assert fetched(*PARTED, before=state_of(CONFIG, with_window, BARE)) == []


# Backups.

INSERT = Insert(KEY.prefix(2), 2, Slots())
INSERTED = Inserted(2, Counts(), Counts())
WHOLE = {
    FULL: on([1], [1], backing=8),
    SWA: on([1], [1], backing=8),
    MAMBA: on([1], [1], backing=8),
}
END = node(2, 1, [2], full=on([1]), swa=on([1]), mamba=on([1]), hit_count=1)
HIT = evolve(TOP, hit_count=1)


def backed(
    end: NodeState,
    before: NodeState = END,
    *,
    full_host: bool = False,
    config: CacheConfig = CONFIG,
) -> list[str]:
    """What RES-10 reports of an insert after which the end of its key is so."""
    after = state_of(config, HIT, end)
    if full_host:
        pools = {p: PoolState(8, ()) if p[1] is CPU else pool for p, pool in after.pools.items()}
        after = evolve(after, pools=pools)
    return ask("RES-10", step(state_of(config, HIT, before), INSERT, after, INSERTED))


def test_res_10_whole_copies_hold() -> None:
    """A backup of all data, or none, holds."""
    assert backed(evolve(END, data=WHOLE)) == []
    assert backed(END) == []
    assert backed(evolve(END, data={FULL: on([1], [1], backing=8)})) == []
    assert ask("RES-10", step(state_of(CONFIG), Match(KEY), state_of(CONFIG))) == []


@pytest.mark.parametrize("component", [SWA, MAMBA])
def test_res_10_half_copies_are_named(component: Component) -> None:
    """A backup without window data or the mamba state is reported."""
    half = {each: on([1]) if each is component else data for each, data in WHOLE.items()}
    for full_host in (True, False):
        said = backed(evolve(END, data=half), full_host=full_host)
        assert said[0] == (
            f"page 1 in node 2 (tokens 1..2) was backed up without its {component} data, which is "
            "in slot 1 on GPU"
        )


HEALED = {FULL: on([1], [1]), SWA: on([1]), MAMBA: on([1])}


def declined(end: NodeState, top: NodeState = HIT, *, full_host: bool = False) -> list[str]:
    """What RES-5 reports of an insert without copies, where all full data is on the host."""
    state = state_of(CONFIG, top, end)
    if full_host:
        pools = {p: PoolState(8, ()) if p[1] is CPU else pool for p, pool in state.pools.items()}
        state = evolve(state, pools=pools)
    return ask("RES-5", step(state, INSERT, state, INSERTED))


def test_res_5_healed_data_is_copied_where_there_is_room() -> None:
    """Healed window data that is not backed up is reported where it fits on the host."""
    end = evolve(END, data=HEALED)
    (said,) = declined(end)
    assert said == (
        "insert left node 2 (tokens 1..2) without a host copy of its swa and mamba data, though "
        "the host has room for it, or could make it"
    )
    assert declined(end, full_host=True) == []
    assert declined(evolve(end, hit_count=0)) == []


def test_res_5_window_data_out_of_reach_is_not_asked_for() -> None:
    """Window data before the last window, or a state above the end, need not be backed up."""
    healed = evolve(HIT, data={FULL: on([0], [0]), SWA: on([0]), MAMBA: on([0])})
    assert declined(evolve(END, data={FULL: on([1], [1])}), top=healed) == []


def enqueued(
    *node_ids: NodeId, hits: tuple[int, int] = (1, 1), again: bool = False, policy: str = ""
) -> list[str]:
    """What RES-10 reports of an insert that backs up these nodes with these hits.

    With `again`, all of its path has host copies already.
    """
    config = evolve(CONFIG, write_policy=policy) if policy else CONFIG
    top = evolve(TOP, hit_count=hits[0], data={FULL: on([0], [0])})
    end = evolve(END, hit_count=hits[1], data={FULL: on([1], [1])})
    below = node(3, 2, [9], full=on([2], [2]))
    transfer = TransferState(
        8, Direction.BACKUP, tuple((each, FULL) for each in node_ids), {FULL: (1,)}, {FULL: (1,)}
    )
    after = state_of(config, top, end, below, transfers=(transfer,))
    bare = [evolve(each, data={FULL: on(each[FULL].device)}) for each in (top, end)]
    before = state_of(config, *((top, end) if again else bare), below)
    return ask("RES-10", step(before, INSERT, after, evolve(INSERTED, backups=(8,))))


def test_res_10_only_what_was_hit_is_copied() -> None:
    """A backup of nodes with too few hits, or off the path, is reported."""
    assert enqueued(2) == []
    assert enqueued(1, 2, hits=(0, 1)) == []
    (said,) = enqueued(2, hits=(1, 0))
    assert said == (
        "full data of node 2 (tokens 1..2) was backed up; it is above no node that was hit 1 times"
    )
    (said,) = enqueued(2, 3)
    assert said.startswith("full data of node 3 (tokens 2..3) was backed up")


def test_res_10_host_copies_are_not_made_again() -> None:
    """A backup of data that has a host copy is reported."""
    (said,) = enqueued(1, again=True)
    assert said == "full data of node 1 (tokens 0..1) was backed up, and had a host copy"


def test_res_10_inserts_copy_nothing_where_hits_do_not_decide() -> None:
    """A backup by an insert under write_back is reported."""
    (said,) = enqueued(2, policy="write_back")
    assert said == ("full data of node 2 (tokens 1..2) was backed up by an insert under write_back")


def test_res_10_is_a_matter_of_hits() -> None:
    """A cache without a hit threshold need not back up."""
    back = evolve(CONFIG, write_policy="write_back")
    half = {FULL: on([1], [1], backing=8), SWA: on([1]), MAMBA: on([1])}
    assert backed(evolve(END, data=half)) != []
    assert backed(evolve(END, data=half), config=back) == []
