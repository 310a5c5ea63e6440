"""LOAD-1 to LOAD-7, and REC-3 of load-backs: what a load decides, brings, evicts, leaves alone."""

from __future__ import annotations

from functools import partial

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.operations import (
    Flush,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Poll,
    Refused,
    Settled,
)
from kvcanon.spec.snapshot import HoldState, NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, copy, having, node, on, state_of
from states.judging import Table, step, still, table

KEY = make_key([1, 2, 3, 4], 1)
ENQUEUED, NO_ROOM = LoadDecision.ENQUEUED, LoadDecision.NO_ROOM
OVER, BELOW = LoadDecision.OVER_QUOTA, LoadDecision.BELOW_THRESHOLD
NOTHING = LoadDecision.NOTHING_TO_LOAD


def room(full: int, swa: int, mamba: int = 4, threshold: int = 0) -> CacheConfig:
    """A cache with these slots on the device."""
    slots = Counts(full, swa, mamba)
    return evolve(EVERYTHING, device_slots=slots, load_back_threshold_pages=threshold)


STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on(None, [0, 1]))
"""The first half of `KEY`, on the device; its window data is out of reach."""
STEM_HELD = having(STEM, full=on([0, 1], [0, 1], lock_refs=1))
COLD = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(None, [2, 3]), mamba=on(None, [0]))
"""The second half, on the host."""
BRIEF = node(2, 1, [3, 4], full=on(None, [2, 3]))
"""The second half, of which only full data is to be loaded."""
COMING = having(
    COLD,
    full=on([2, 3], [2, 3], lock_refs=1, loading=7),
    swa=on([0, 1], [2, 3], lock_refs=1, loading=7),
    mamba=on([1], [0], lock_refs=1, loading=7),
)
"""`COLD` once its load is enqueued."""
TRANSFER = TransferState(
    7,
    Direction.LOAD_BACK,
    ((2, FULL), (2, SWA), (2, MAMBA)),
    {FULL: (2, 3), SWA: (2, 3), MAMBA: (0,)},
    {FULL: (2, 3), SWA: (0, 1), MAMBA: (1,)},
)
LOADED = LoadedBack(ENQUEUED, 7, loading=Counts(2, 2, 1))
FAILED = LoadedBack(NO_ROOM)


def cold(*others: NodeState, config: CacheConfig = EVERYTHING) -> Snapshot:
    """The state before a load-back."""
    return state_of(config, STEM, COLD, *others)


def coming(
    *others: NodeState,
    config: CacheConfig = EVERYTHING,
    stem: NodeState = STEM_HELD,
    tip: NodeState = COMING,
    transfer: TransferState = TRANSFER,
    profile: Profile = CANON,
) -> Snapshot:
    """The state after the load-back was enqueued."""
    hold = HoldState(90, 2, 2, state_held=True, transfer_id=7)
    return state_of(
        config, stem, tip, *others, transfers=(transfer,), holds=(hold,), profile=profile
    )


def loaded(
    before: Snapshot, after: Snapshot, told: LoadedBack = LOADED, quota: int | None = None
) -> Step:
    """A load-back of `KEY`."""
    return step(before, LoadBack(KEY, quota), after, told)


def decided(
    there: Snapshot, told: LoadDecision, *, quota: int | None = None, pages: int = 4
) -> Step:
    """A load-back of the first pages of `KEY` that changes nothing."""
    return still(there, LoadBack(KEY.prefix(pages), quota), LoadedBack(told))


SHORT_OF_SWA = room(8, 2)
"""Window slots for the load alone: those that others have must be evicted."""
STATELESS = room(8, 2, 0)
"""Never room for the state."""
WIDE = node(5, ROOT, [8, 9], full=on([4, 5]), swa=on([0, 1]))
"""Another prompt, a leaf with window data."""
PLAIN = node(6, ROOT, [7], full=on([6]))
"""Another prompt, a leaf without window data."""
THRESHOLD = state_of(room(8, 8, threshold=3), STEM, BRIEF)
THERE = state_of(EVERYTHING, STEM, node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3])))

LAWFUL: Table = {
    "LOAD-1, LOAD-2, LOAD-3, LOAD-4, LOAD-5, LOAD-6, LOAD-7, REC-3": [
        loaded(cold(PLAIN), coming(PLAIN)),
        loaded(
            cold(WIDE, PLAIN, config=SHORT_OF_SWA),
            coming(PLAIN, config=SHORT_OF_SWA),
            evolve(LOADED, evicted=Counts(2, 2)),
        ),
        decided(coming(), NOTHING),
        decided(cold(), OVER, quota=1),
        decided(THRESHOLD, BELOW),
        decided(cold(config=room(8, 1)), NO_ROOM),
        loaded(
            cold(WIDE, PLAIN, config=STATELESS),
            cold(PLAIN, config=STATELESS),
            evolve(FAILED, evicted=Counts(2, 2)),
        ),
        step(cold(), LoadBack(KEY), coming(), Refused(PrefixNotCached(4, 2))),
    ],
}

SECOND = node(7, ROOT, [6], full=on([7]), swa=on([2]))
TWO_LEFT, ONE_SHORT = room(8, 4), room(8, 3)
LONE, ANOTHER = node(6, ROOT, [7], full=on([2])), node(7, ROOT, [6], full=on([3]))
NO_FULL, ONE_FULL = room(3, 4), room(5, 4)
OWN = state_of(ONE_SHORT, having(STEM, swa=on([0, 1], [0, 1])), COLD)
"""The window data before the window is on the device, too."""

VICTIMS: Table = {
    # Full pages without window data that leave for window slots are reported, not for full ones.
    "LOAD-1": [
        loaded(cold(LONE, config=NO_FULL), cold(config=NO_FULL), FAILED),
        loaded(cold(LONE, ANOTHER, config=ONE_FULL), coming(ANOTHER, config=ONE_FULL)),
        loaded(cold(LONE, ANOTHER, config=ONE_FULL), coming(config=ONE_FULL)),
    ],
    (
        "LOAD-1: node 6 (tokens 0..1) lost 1 full slots to a load that needed 2 full and had 3 "
        "free; swa: 2 needed, 0 free; mamba: 1 needed, 4 free"
    ): loaded(cold(WIDE, PLAIN, config=SHORT_OF_SWA), coming(config=SHORT_OF_SWA)),
    # That states are short excuses nothing that has no state.
    "LOAD-1: node 6 (tokens 0..1) lost 1 full slots...": loaded(
        cold(PLAIN, config=STATELESS), cold(config=STATELESS)
    ),
    # A load-back that evicts too much, or the wrong leaf, is reported.
    "REC-3": [
        loaded(cold(WIDE, SECOND, config=TWO_LEFT), coming(SECOND, config=TWO_LEFT)),
        loaded(cold(LONE, ANOTHER, config=ONE_FULL), coming(ANOTHER, config=ONE_FULL)),
        # It may evict window data before its own window, but none of its window.
        loaded(
            OWN,
            coming(
                tip=having(COMING, swa=on([2, 0], [2, 3], lock_refs=1, loading=7)), config=ONE_SHORT
            ),
        ),
    ],
    (
        "REC-3: LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not...",
        "LoadBack: swa data of page 0 in node 7 (tokens 0..1) left GPU, and should not have",
    ): loaded(cold(WIDE, SECOND, config=TWO_LEFT), coming(config=TWO_LEFT)),
    ("REC-3: LoadBack: full data of pages 0..1 in node 5 (tokens 0..2) should have left...", ...): (
        loaded(cold(WIDE, SECOND, config=TWO_LEFT), coming(WIDE, config=TWO_LEFT))
    ),
    "REC-3: LoadBack: swa data of pages 0..1 in node 1...should have left GPU, and did not": loaded(
        OWN, coming(stem=having(STEM_HELD, swa=on([0, 1], [0, 1])), config=ONE_SHORT)
    ),
    "REC-3: LoadBack: full data of page 0 in node 7 (tokens 0..1) left GPU, and should not have": (
        loaded(cold(LONE, ANOTHER, config=ONE_FULL), coming(config=ONE_FULL))
    ),
}


def lost(stem: NodeState) -> list[Step]:
    """A load-back that leaves its own stem so, whether it was enqueued or not."""
    return [
        loaded(cold(), coming(stem=stem)),
        loaded(cold(), state_of(EVERYTHING, stem, COLD), FAILED),
    ]


WINDOWED = state_of(EVERYTHING, having(STEM, swa=on([4, 5], [0, 1])), COLD)

OWN_PATH: Table = {
    # A load-back that evicts data of its own key is reported, on either medium.
    "LOAD-2": [loaded(WINDOWED, coming(stem=having(STEM_HELD, swa=on())))],
    ("LOAD-2: ...page 0 ... its full...", "..."): lost(having(STEM, full=on(None, [0, 1]))),
    ("LOAD-2: ...its full slot on CPU_PINNED was 0 and is none", "..."): lost(
        having(STEM, full=on([0, 1]))
    ),
    ("LOAD-2: ...its full slot on GPU was 0 and is 1", "..."): lost(
        having(STEM, full=on([1, 0], [0, 1]))
    ),
    (
        "LOAD-2: ...",
        "...",
        "page 3 in node 2 (tokens 2..4) is page 3 of the key ... CPU_PINNED was 0 and is none",
    ): loaded(WINDOWED, coming(tip=having(COMING, swa=on([0, 1]), mamba=on([1])))),
    # A load-back that is not enqueued and keeps locks, or evicts too much, is reported.
    ("LOAD-3", ..., "page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1", ...): loaded(
        cold(), coming(), LoadedBack(OVER), quota=0
    ),
    ("LOAD-3: page 0 in node 6 ... vanished", ...): loaded(cold(PLAIN), cold(), LoadedBack(OVER)),
    ("LOAD-3: page 0 in node 1 (tokens 0..2): full lock_refs was 0 and is 1", ...): loaded(
        cold(WIDE, PLAIN, config=STATELESS), state_of(STATELESS, STEM_HELD, COLD, PLAIN), FAILED
    ),
    "LOAD-3: page 0 in node 6 (tokens 0..1): hit_count was 0 and is 9": loaded(
        cold(WIDE, PLAIN, config=STATELESS),
        cold(evolve(PLAIN, hit_count=9), config=STATELESS),
        FAILED,
    ),
    # A load-back that changes other nodes, or hits and backups of its path, is reported.
    "LOAD-7: ...hit_count was 0 and is 2": loaded(cold(PLAIN), coming(evolve(PLAIN, hit_count=2))),
    "LOAD-7: ...its full slot on GPU was 6 and is 9": loaded(
        cold(PLAIN), coming(having(PLAIN, full=on([9])))
    ),
    ("LOAD-7: ...hit_count was 0 and is 3", "...hit_count was 0 and is 3"): loaded(
        cold(PLAIN), coming(PLAIN, stem=evolve(STEM_HELD, hit_count=3))
    ),
    ("LOAD-7: ...full backup in flight was none and is 8", "...is 8"): loaded(
        cold(PLAIN),
        coming(
            PLAIN, tip=having(COMING, full=on([2, 3], [2, 3], lock_refs=1, loading=7, backing=8))
        ),
    ),
    (
        "LOAD-7: page 0 in node 6 (tokens 0..1), with 1 full lock_refs: its full slot on GPU was 6 "
        "and is none"
    ): loaded(cold(having(PLAIN, full=on([6], lock_refs=1))), coming()),
}


def had_to_load(told: LoadDecision, right: str) -> str:
    """What LOAD-6 says of a wrong decision."""
    return f"LOAD-6: ...the decision was {told}, expected {right}"


DECISIONS: Table = {
    "LOAD-6": [
        # Of two reasons that apply, either may be given.
        decided(THRESHOLD, BELOW, quota=1),
        decided(THRESHOLD, OVER, quota=1),
        # Window data before the last window need not be loaded.
        decided(THERE, NOTHING),
    ],
    had_to_load(NOTHING, "enqueued or no_room"): decided(cold(), NOTHING),
    had_to_load(OVER, "enqueued or no_room"): decided(cold(), OVER, quota=2),
    had_to_load(ENQUEUED, "over_quota"): decided(cold(), ENQUEUED, quota=1),
    had_to_load(ENQUEUED, "nothing_to_load"): decided(coming(), ENQUEUED),
    had_to_load(ENQUEUED, "below_threshold"): decided(THRESHOLD, ENQUEUED),
    had_to_load(ENQUEUED, "below_threshold or over_quota"): decided(THRESHOLD, ENQUEUED, quota=1),
    had_to_load(BELOW, "enqueued..."): decided(state_of(THRESHOLD.config, STEM, COLD), BELOW),
    # The reason "no room" is reported where enough slots are free or could be freed.
    (
        "LOAD-6: 2 full, 2 swa and 1 mamba slots have to be loaded, and there is room or could be "
        "made: 14 full, 16 swa and 4 mamba slots are free, and the decision was no_room"
    ): decided(cold(), NO_ROOM),
    "LOAD-6: ...the decision was no_room": decided(cold(WIDE, config=SHORT_OF_SWA), NO_ROOM),
    "LOAD-6: 0 full, 1 swa and 0 mamba slots have to be loaded...": decided(THERE, OVER, pages=3),
    "LOAD-6: 0 full, 2 swa and 0 mamba slots have to be loaded...": decided(
        evolve(THERE, profile=Profile(window_lock_exact=False)), OVER, pages=3
    ),
}

IN_PART = Profile(loads_whole_keys=False)
TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]))
TAIL = node(2, 1, [3, 4], full=on(None, [2, 3]))
FIRST = node(2, 1, [3], full=on([2], [2], lock_refs=1, loading=7))
REST = node(3, 2, [4], full=on(None, [3]))


def narrow(
    *nodes: NodeState, slots: int = 3, threshold: int = 0, profile: Profile = IN_PART
) -> Snapshot:
    """A state with full data alone, by default with room for one page of `TAIL`."""
    pools = CacheConfig(
        device_slots=Counts(slots),
        host_slots=Counts(8),
        write_policy="write_through",
        load_back_threshold_pages=threshold,
    )
    loads = any(each[FULL].loading for each in nodes)
    return state_of(
        pools,
        *nodes,
        transfers=(copy(7, Direction.LOAD_BACK, (2,), (2,), 2),) if loads else (),
        holds=(HoldState(90, 2, 3, state_held=False, transfer_id=7),) if loads else (),
        profile=profile,
    )


def in_part(
    pages: int | None, *, slots: int = 3, threshold: int = 0, profile: Profile = IN_PART
) -> Step:
    """A load-back of `KEY` that loads its third page, and says so many leading pages."""
    there = partial(narrow, slots=slots, threshold=threshold, profile=profile)
    held = having(TOP, full=on([0, 1], [0, 1], lock_refs=1))
    told = LoadedBack(ENQUEUED, 7, Counts(1), pages=pages)
    return loaded(there(TOP, TAIL), there(held, FIRST, REST), told)


def told_pages(pages: int, decision: LoadDecision = ENQUEUED) -> str:
    """What LOAD-6 says of an answer whose number of pages cannot be."""
    return f"LOAD-6: the answer to a load of 4 pages, {decision}, is for {pages} leading pages"


LEADING_PAGES: Table = {
    "LOAD-2, LOAD-3, LOAD-4, LOAD-5, LOAD-6, LOAD-7, ALLOC-3": [
        in_part(3),
        # None of the pages fits, or too few to be worth a copy.
        decided(narrow(TOP, TAIL, slots=2), NO_ROOM),
        decided(narrow(TOP, TAIL, threshold=2), NO_ROOM),
    ],
    # An answer says fewer pages only by profile, and then less than all and more than none.
    told_pages(3): in_part(3, profile=CANON),
    (told_pages(0), ...): in_part(0),
    (told_pages(4), ...): in_part(4),
    (told_pages(9), ...): in_part(9),
    (told_pages(-1), ...): in_part(-1),
    told_pages(3, NO_ROOM): still(
        narrow(TOP, TAIL, slots=2), LoadBack(KEY), LoadedBack(NO_ROOM, pages=3)
    ),
    # As many come as fit, and as are worth a copy.
    (
        "LOAD-6: 3 of 4 pages are loaded, and there is room, or could be made, for the first 4"
    ): in_part(3, slots=4),
    "LOAD-6: 3 leading pages are loaded, with less data than is worth a copy": in_part(
        3, threshold=2
    ),
    ("LOAD-6: nothing is loaded, and there is room, or could be made, for the first 3"): decided(
        narrow(TOP, TAIL), NO_ROOM
    ),
    # The threshold and the quota are those of the whole key.
    had_to_load(ENQUEUED, "over_quota"): evolve(in_part(3), operation=LoadBack(KEY, 1)),
    # What the answer says is there, comes.
    ("LOAD-4: page 3 in node 3 (tokens 3..4) has no full slot on GPU", ...): in_part(None),
}

UNMARKED = coming(
    tip=evolve(COMING, data={c: evolve(each, loading=None) for c, each in COMING.data.items()})
)
AT_ONCE = Profile(load_back_usable=StoreMoment.ENQUEUED)
FULL_ALONE = copy(7, Direction.LOAD_BACK, (2, 3), (2, 3), 2)
FAR = {FULL: (2, 3), SWA: (0, 1, 2, 3), MAMBA: (0,)}
TOO_MUCH = evolve(
    TRANSFER,
    parts=((1, SWA), *TRANSFER.parts),
    sources=FAR,
    targets={**FAR, SWA: (2, 3, 0, 1), MAMBA: (1,)},
)
OF_NO_USE = "which is of no use at the end of the key"

DATA: Table = {
    "LOAD-4": [
        # By profile, no page waits for a load-back that can be used at once.
        loaded(cold(), evolve(UNMARKED, profile=AT_ONCE)),
        # Window data that is nowhere cannot come.
        loaded(
            state_of(EVERYTHING, STEM, BRIEF),
            coming(
                tip=having(BRIEF, full=on([2, 3], [2, 3], lock_refs=1, loading=7)),
                transfer=FULL_ALONE,
            ),
            evolve(LOADED, loading=Counts(2)),
        ),
    ],
    ("LOAD-4: ...", "...", "...", "...", "..."): loaded(cold(), UNMARKED),
    # Needed data that stays on the host, or comes without a transfer, is reported.
    ("LOAD-4", ..., "page 2 in node 2 (tokens 2..4) has no full slot on GPU...", ...): loaded(
        cold(), coming(tip=COLD)
    ),
    ("LOAD-4", ..., "page 2 in node 2 (tokens 2..4) has no swa slot on GPU...", ...): loaded(
        cold(), coming(tip=having(COMING, swa=on(None, [2, 3], lock_refs=1)))
    ),
    ("LOAD-4", ..., "1 mamba slots are reported as loading, and pages gained 0", ...): loaded(
        cold(), coming(tip=having(COMING, mamba=on(None, [0], lock_refs=1)))
    ),
    "LOAD-4: transfer 7 copies swa slots [2, 3] on CPU_PINNED to [0, 1] on GPU; what came to...": (
        loaded(cold(), coming(tip=having(COMING, swa=on([1, 0], [2, 3], lock_refs=1, loading=7))))
    ),
    ("LOAD-4", ..., "page 2 ... has a new full slot on GPU that transfer 7 does not...", ...): (
        loaded(cold(), coming(tip=having(COMING, full=on([2, 3], [2, 3], lock_refs=1))))
    ),
    # A load-back with a wrong transfer, or none, or one without a receipt, is reported.
    "LOAD-4: transfer 7 ... flight; there is none": loaded(cold(), evolve(coming(), transfers=())),
    "LOAD-4: transfer 7 should be the last in flight; that is 8": loaded(
        cold(), evolve(coming(), transfers=(TRANSFER, evolve(TRANSFER, transfer_id=8)))
    ),
    "LOAD-4: transfer 7 holds no receipt": loaded(cold(), evolve(coming(), holds=())),
    "LOAD-4: transfer 7 and the key do not agree on the parts [(2, 'full')]": loaded(
        cold(), coming(transfer=evolve(TRANSFER, parts=TRANSFER.parts[1:]))
    ),
    ("LOAD-4", ..., "transfer 7 is a backup, cancelled: False", ...): loaded(
        cold(), coming(transfer=evolve(TRANSFER, direction=Direction.BACKUP))
    ),
    "LOAD-4: transfer 7 was in flight ...": loaded(evolve(cold(), transfers=(TRANSFER,)), coming()),
    ("LOAD-4: of the 4 pages of the key 2 ...", ...): loaded(cold(), state_of(EVERYTHING, STEM)),
    # A load-back of window data from before the window is reported.
    (
        f"LOAD-4: page 0 in node 1 (tokens 0..2) got swa slot 2 on GPU, {OF_NO_USE}",
        f"page 1 in node 1 (tokens 0..2) got swa slot 3 on GPU, {OF_NO_USE}",
    ): loaded(
        cold(),
        coming(stem=having(STEM_HELD, swa=on([2, 3], [0, 1], loading=7)), transfer=TOO_MUCH),
        evolve(LOADED, loading=Counts(2, 4, 1)),
    ),
}

BACK = evolve(EVERYTHING, write_policy="write_back")
EXCLUSIVE = Profile(loads_keep_host_copies=False)
HERE = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([0, 1], [2, 3]), mamba=on([1], [0]))
"""`COLD` once it is on both media."""
MOVED = node(2, 1, [3, 4], full=on([2, 3]), swa=on([0, 1]), mamba=on([1]))
"""`COLD` once it is on the device only."""
OTHER = evolve(TRANSFER, transfer_id=8, parts=((2, MAMBA),))
WAS_LOADED = "page 3 in node 2 (tokens 2..4) is loaded from mamba slot 0"


def gives_up(
    config: CacheConfig = BACK,
    profile: Profile = EXCLUSIVE,
    status: TransferStatus = TransferStatus.DONE,
    *others: TransferState,
) -> Step:
    """A poll that settles the load-back, after which its host copies are gone."""
    before = evolve(coming(config=config, profile=profile), transfers=(TRANSFER, *others))
    after = state_of(config, STEM, MOVED, transfers=others, profile=profile)
    return step(before, Poll(), after, Settled(((7, status),)))


SOURCES: Table = {
    # A host copy that goes or moves while it is loaded, or afterwards, is reported.
    "LOAD-5": [
        step(coming(), Poll(), state_of(EVERYTHING, STEM, HERE), Settled(())),
        step(coming(), Poll(), coming(tip=having(COMING, full=on(None, [2, 3]))), Settled(())),
    ],
    ("LOAD-5: page 2 in node 2 (tokens 2..4) is loaded from full slot 2 ... is none now", ...): (
        loaded(cold(), coming(tip=having(COMING, full=on([2, 3], lock_refs=1, loading=7))))
    ),
    f"LOAD-5: {WAS_LOADED}...": [
        step(coming(), Flush(), state_of(EVERYTHING, STEM, having(HERE, mamba=each)), Settled(()))
        for each in (on([1]), on([1], [3]))
    ],
    # By profile, and only then, the host copy may go when its load-back is done.
    "LOAD-5, LOCK-4": [gives_up()],
    ("LOAD-5, LOCK-4: ...", ...): [
        gives_up(status=TransferStatus.FAILED),
        gives_up(profile=CANON),
        gives_up(EVERYTHING),
    ],
    # It stays at the enqueue, and while another load-back reads it.
    ("LOAD-5: ...is loaded from full slot 2...", ...): loaded(
        evolve(cold(config=BACK), profile=EXCLUSIVE),
        coming(tip=having(COMING, full=on([2, 3])), config=BACK, profile=EXCLUSIVE),
    ),
    f"LOAD-5: {WAS_LOADED} on CPU_PINNED, which is none now": gives_up(
        BACK, EXCLUSIVE, TransferStatus.DONE, OTHER
    ),
}

test_load = table(LAWFUL, VICTIMS, OWN_PATH, DECISIONS, LEADING_PAGES, DATA, SOURCES)
