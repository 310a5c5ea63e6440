"""LOAD-4 and LOAD-5: the data and the transfer of a load-back."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.operations import (
    Flush,
    Poll,
    Settled,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Slot,
    WritePolicy,
)
from load_cases import (
    BRIEF,
    COLD,
    COMING,
    LOADED,
    ROOMY,
    STEM,
    STEM_HELD,
    TRANSFER,
    changed,
    cold,
    coming,
    loaded,
)
from states import node, on, state_of
from telling import ask, step


@pytest.mark.parametrize(
    ("tip", "words"),
    [
        (COLD, "page 2 in node 2 (tokens 2..4) has no full slot on GPU"),
        (
            changed(COMING, SWA, on(None, [2, 3], lock_refs=1)),
            "page 2 in node 2 (tokens 2..4) has no swa slot on GPU",
        ),
        (
            changed(COMING, MAMBA, on(None, [0], lock_refs=1)),
            "1 mamba slots are reported as loading, and pages gained 0",
        ),
        (
            changed(COMING, SWA, on([1, 0], [2, 3], lock_refs=1, loading=7)),
            "transfer 7 copies swa slots [2, 3] on CPU_PINNED to [0, 1] on GPU; what came to the",
        ),
        (
            changed(COMING, FULL, on([2, 3], [2, 3], lock_refs=1)),
            "page 2 in node 2 (tokens 2..4) has a new full slot on GPU that transfer 7 does not",
        ),
    ],
)
def test_load_4_what_does_not_come_is_named(tip: NodeState, words: str) -> None:
    """Needed data that stays on the host, or comes without a transfer, is reported."""
    found = ask("LOAD-4", loaded(cold(), coming(tip=tip)))
    assert any(words in each for each in found)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        (evolve(coming(), transfers=()), "transfer 7 should be the last in flight; there is none"),
        (
            evolve(coming(), transfers=(TRANSFER, evolve(TRANSFER, transfer_id=8))),
            "transfer 7 should be the last in flight; that is 8",
        ),
        (evolve(coming(), holds=()), "transfer 7 holds no receipt"),
        (
            coming(transfer=evolve(TRANSFER, parts=TRANSFER.parts[1:])),
            "transfer 7 and the key do not agree on the parts [(2, 'full')]",
        ),
        (
            coming(transfer=evolve(TRANSFER, direction=Direction.BACKUP)),
            "transfer 7 is a backup, cancelled: False",
        ),
    ],
)
def test_load_4_other_transfers_are_named(after: Snapshot, words: str) -> None:
    """A load-back with a wrong transfer, or none, or one without a receipt, is reported."""
    assert words in ask("LOAD-4", loaded(cold(), after))


def test_load_4_transfer_is_a_new_one() -> None:
    """A transfer that was in flight before the load-back is reported."""
    (said,) = ask("LOAD-4", loaded(evolve(cold(), transfers=(TRANSFER,)), coming()))
    assert said == "transfer 7 was in flight before the load"
    assert ask("LOAD-4", loaded(cold(), state_of(ROOMY, STEM)))[0] == (
        "of the 4 pages of the key 2 are in the tree after the load"
    )


def test_load_4_no_page_waits_where_a_load_is_of_use_at_once() -> None:
    """By profile, no page waits for a load-back that can be used at once."""
    tip = evolve(COMING, data={c: evolve(each, loading=None) for c, each in COMING.data.items()})
    unmarked = coming(tip=tip)
    assert len(ask("LOAD-4", loaded(cold(), unmarked))) == 5
    declared = evolve(unmarked, profile=Profile(load_back_usable=StoreMoment.ENQUEUED))
    assert ask("LOAD-4", loaded(cold(), declared)) == []


def test_load_4_window_that_is_nowhere_cannot_come() -> None:
    """A tombstone in the window need not get window data that is nowhere."""
    before = state_of(ROOMY, STEM, BRIEF)
    tip = node(2, 1, [3, 4], full=on([2, 3], [2, 3], lock_refs=1, loading=7))
    full: dict[Component, tuple[Slot, ...]] = {FULL: (2, 3)}
    transfer = evolve(TRANSFER, parts=((2, FULL),), sources=full, targets=full)
    outcome = evolve(LOADED, loading=Counts(2))
    assert ask("LOAD-4", loaded(before, coming(tip=tip, transfer=transfer), outcome)) == []


def test_load_4_what_is_of_no_use_stays_on_the_host() -> None:
    """A load-back of window data from before the window is reported."""
    stem = changed(STEM_HELD, SWA, on([2, 3], [0, 1], loading=7))
    some = {FULL: (2, 3), SWA: (0, 1, 2, 3), MAMBA: (0,)}
    transfer = evolve(
        TRANSFER,
        parts=((1, SWA), *TRANSFER.parts),
        sources=some,
        targets={**some, SWA: (2, 3, 0, 1), MAMBA: (1,)},
    )
    after, outcome = coming(stem=stem, transfer=transfer), evolve(LOADED, loading=Counts(2, 4, 1))
    assert ask("LOAD-4", loaded(cold(), after, outcome)) == [
        f"page {page} in node 1 (tokens 0..2) got swa slot {slot} on GPU, which is of no use at "
        "the end of the key"
        for page, slot in ((0, 2), (1, 3))
    ]


def test_load_5_lost_sources_are_named() -> None:
    """A host copy that goes or moves while it is loaded, or afterwards, is reported."""
    tip = changed(COMING, FULL, on([2, 3], lock_refs=1, loading=7))
    said = ask("LOAD-5", loaded(cold(), coming(tip=tip)))
    assert said[0] == (
        "page 2 in node 2 (tokens 2..4) is loaded from full slot 2 on CPU_PINNED, which is none now"
    )
    here = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([0, 1], [2, 3]), mamba=on([1], [0]))
    settled = Settled(())
    assert ask("LOAD-5", step(coming(), Poll(), state_of(ROOMY, STEM, here), settled)) == []
    for gone in (changed(here, MAMBA, on([1])), changed(here, MAMBA, on([1], [3]))):
        (mamba,) = ask("LOAD-5", step(coming(), Flush(), state_of(ROOMY, STEM, gone), settled))
        assert "page 3 in node 2 (tokens 2..4) is loaded from mamba slot 0" in mamba
    failed = changed(COMING, FULL, on(None, [2, 3]))
    assert ask("LOAD-5", step(coming(), Poll(), coming(tip=failed), settled)) == []


EXCLUSIVE = Profile(loads_keep_host_copies=False)

BACK = evolve(ROOMY, write_policy=WritePolicy.WRITE_BACK)

HERE = node(2, 1, [3, 4], full=on([2, 3]), swa=on([0, 1]), mamba=on([1]))
"""`COLD` once it is on the device only."""


@pytest.mark.parametrize(
    ("room", "profile", "status", "may_go"),
    [
        (BACK, EXCLUSIVE, TransferStatus.DONE, True),
        (BACK, EXCLUSIVE, TransferStatus.FAILED, False),
        (BACK, CANON, TransferStatus.DONE, False),
        (ROOMY, EXCLUSIVE, TransferStatus.DONE, False),
    ],
    ids=["declared", "failed", "the canon", "write_through"],
)
def test_load_5_exclusive_tiers_give_up_what_is_loaded(
    room: CacheConfig, profile: Profile, status: TransferStatus, may_go: bool
) -> None:
    """By profile, and only then, the host copy may go when its load-back is done."""
    before = evolve(coming(room=room), profile=profile)
    after = evolve(state_of(room, STEM, HERE), profile=profile)
    given_up = step(before, Poll(), after, Settled(((7, status),)))
    assert (ask("LOAD-5", given_up) == []) is may_go
    assert (ask("LOCK-4", given_up) == []) is may_go


def test_load_5_exclusive_tiers_keep_what_is_read() -> None:
    """By profile, the host copy stays at the enqueue, and while another load-back reads it."""
    before, tip = evolve(cold(room=BACK), profile=EXCLUSIVE), changed(COMING, FULL, on([2, 3]))
    assert ask("LOAD-5", loaded(before, evolve(coming(room=BACK, tip=tip), profile=EXCLUSIVE)))
    other = evolve(TRANSFER, transfer_id=8, parts=((2, MAMBA),))
    reading = evolve(coming(room=BACK), transfers=(TRANSFER, other), profile=EXCLUSIVE)
    after = state_of(BACK, STEM, HERE, transfers=(other,))
    (said,) = ask("LOAD-5", step(reading, Poll(), after, Settled(((7, TransferStatus.DONE),))))
    assert "is loaded from mamba slot 0 on CPU_PINNED, which is none now" in said
