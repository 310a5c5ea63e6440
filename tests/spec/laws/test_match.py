"""MATCH-1 to MATCH-8, and RES-7 of matches: what is found, and what a match changes."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Choosing, Profile
from kvcanon.spec.errors import TransferPending
from kvcanon.spec.operations import Insert, Inserted, Lock, Match, Matched, Refused
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot, Usage
from kvcanon.spec.types import FULL, GPU, Counts, Key, Namespace, Slot, Slots, TransferId, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, with_pool
from states.judging import Table, step, table

WINDOWED = evolve(EVERYTHING, mamba=False)
RECURRENT = evolve(EVERYTHING, window_tokens=None)
TENANT = Namespace(cache_salt="tenant")
KEY = make_key([1, 2, 3, 4], 1)
UPPER = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1]))
LOWER = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]))
TOMBSTONE = having(LOWER, swa=on())
PLAIN_UPPER, PLAIN_LOWER = (
    evolve(UPPER, data={FULL: on([0, 1])}),
    evolve(LOWER, data={FULL: on([2, 3])}),
)
"""The same without a window."""
FOUR = (0, 1, 2, 3)


def path(*nodes: NodeState, config: CacheConfig = WINDOWED, profile: Profile = CANON) -> Snapshot:
    """A state of nodes, with a prompt of another namespace beside them."""
    stranger = node(9, ROOT, [1, 2, 3], full=on([13, 14, 15]), namespace=TENANT)
    return state_of(config, *nodes, stranger, profile=profile)


HELD = path(UPPER, LOWER)


def matched(
    there: Snapshot,
    prefix_pages: int,
    device_pages: int,
    slots: Slots = Slots(),
    *,
    key: Key = KEY,
    pending: tuple[TransferId, ...] = (),
    after: Snapshot | None = None,
    branch: int | None = None,
) -> Step:
    """A match that left the state as it was, or as `after`; few laws look at slots."""
    told = Matched(prefix_pages, device_pages, slots, pending, branch)
    return step(there, Match(key), after or there, told)


REFUSED = Refused(TransferPending(3))

RIGHT: Table = {
    "MATCH-1, MATCH-2, MATCH-3, MATCH-5, MATCH-6, MATCH-7": [
        matched(HELD, 4, 4, Slots(FOUR, FOUR)),
        matched(HELD, 3, 3, Slots(FOUR[:3], FOUR[:3]), key=KEY.prefix(3)),
        matched(HELD, 0, 0, key=KEY.prefix(0)),
        matched(HELD, 0, 0, key=make_key([7, 7], 1)),
        matched(HELD, 0, 0, key=Key(KEY.pages, TENANT)),
        # Refused calls and other calls are not checked.
        step(HELD, Match(KEY), path(), REFUSED),
        step(HELD, Insert(KEY, 4, Slots()), path(), REFUSED),
        step(HELD, Lock(KEY), path()),
    ],
}

LENGTHS = [
    (LOWER, 4, 4),
    # Behind a tombstone a window must be gathered anew: page 3 alone does not cover two tokens.
    (TOMBSTONE, 2, 2),
    (having(LOWER, on(None, [2, 3]), on(None, [2, 3])), 4, 2),
    (having(LOWER, on([2, 3], [2, 3]), on(None, [2, 3])), 4, 2),
    (having(LOWER, on([2, 3], [2, 3]), on([2, 3], [2, 3])), 4, 4),
    # A load in flight is data on the host, and none on the device.
    (having(LOWER, on([2, 3], [2, 3], loading=8)), 4, 2),
    (having(LOWER, on([2, 3], [2, 3], backing=8)), 4, 4),
]
"""The lower node, and how many pages of `KEY` are usable, and usable from the device."""
ENDING = path(having(PLAIN_UPPER, mamba=on([0])), PLAIN_LOWER, config=RECURRENT)
"""Only the upper node has a mamba state."""
ON_ITS_WAY = path(UPPER, having(LOWER, full=on([2, 3], [2, 3], loading=8), swa=on()))

PREFIX: Table = {
    # A match of fewer or more pages than are usable is reported.
    "MATCH-1": [
        *[matched(path(UPPER, lower), usable, 0) for lower, usable, _ in LENGTHS],
        # A match ends at a page with a mamba state.
        matched(ENDING, 2, 2),
        matched(ENDING, 0, 0, key=KEY.prefix(1)),
        # It need not say where its key leaves the tree.
        matched(ENDING, 2, 2, branch=4),
        matched(ENDING, 2, 2, key=make_key([1, 2, 3, 9], 1), branch=3),
        matched(path(UPPER), 0, 0, key=make_key([8], 1), branch=0),
    ],
    "MATCH-1: ...leaves the tree after 2 pages; 4 are in it...": matched(ENDING, 2, 2, branch=2),
    "MATCH-1: ...leaves the tree after 1 pages; 0 are in it: no page...": matched(
        path(UPPER), 0, 0, key=make_key([8], 1), branch=1
    ),
    "MATCH-2": [matched(path(UPPER, lower), 4, usable) for lower, _, usable in LENGTHS],
    **{
        f"MATCH-1: ...found {wrong} usable pages where {usable} are...": [
            matched(path(UPPER, lower), wrong, 0) for lower, each, _ in LENGTHS if each == usable
        ]
        for usable in (2, 4)
        for wrong in {0, 1, 2, 3, 4} - {usable}
    },
    **{
        f"MATCH-2: ...found {wrong} pages usable from GPU where {usable} are...": [
            matched(path(UPPER, lower), 4, wrong) for lower, _, each in LENGTHS if each == usable
        ]
        for usable in (2, 4)
        for wrong in {0, 1, 2, 3, 4} - {usable}
    },
    "MATCH-1: ...": [matched(ENDING, 4, 2), matched(ENDING, 1, 1, key=KEY.prefix(1))],
    (
        "MATCH-1: ...node 1 (tokens 0..2) has full GPU and CPU_PINNED, swa GPU...node 2 (tokens "
        "2..4), of which 1 pages are shared, has full CPU_PINNED and on its way to GPU, swa nowhere"
    ): matched(ON_ITS_WAY, 3, 2, key=KEY.prefix(3)),
    "MATCH-1: ...no page of it is in the tree": matched(path(UPPER), 1, 0, key=make_key([8], 1)),
    "MATCH-1: ...found 3 usable pages where 0 are: no page of it is in the tree": matched(
        HELD, 3, 0, key=Key(KEY.pages, Namespace(lora="other"))
    ),
    ("MATCH-2", ..., "...only 3 usable at all...", ...): matched(HELD, 3, 4),
}

TOP, END = (
    node(1, ROOT, [1], full=on([0]), swa=on([0])),
    node(3, 2, [3, 4], full=on([2, 3]), swa=on([2, 3])),
)
GAPS = [
    path(TOP, node(2, 1, [2], full=on([1]), swa=gap), END)
    for gap in (None, on([1], [1], loading=8))
]
STATES = path(
    having(PLAIN_UPPER, mamba=on([0])), having(PLAIN_LOWER, mamba=on([1])), config=RECURRENT
)

SLOTS: Table = {
    # Window slots reach back to the first gap; the state is that of the end.
    "MATCH-3": [
        *[matched(each, 4, 4, Slots(FOUR, (2, 3))) for each in GAPS],
        matched(STATES, 4, 4, Slots(FOUR, (), (1,))),
    ],
    # Too few slots, or slots of other pages, are reported.
    ("MATCH-3: ...returned 3 full slots where its pages have 4 on GPU...", ...): matched(
        HELD, 4, 4, Slots(FOUR[:3], FOUR)
    ),
    ("MATCH-3: ...full slot 3 for page 2; in node 2 (tokens 2..4) it is 2...", ...): matched(
        HELD, 4, 4, Slots((0, 1, 3, 2), FOUR)
    ),
    "MATCH-3: ...returned 2 swa ... have 4 on GPU...": matched(HELD, 4, 4, Slots(FOUR, (2, 3))),
    "MATCH-3: ...swa slot 4 for page 3...": matched(HELD, 4, 4, Slots(FOUR, (0, 1, 2, 4))),
    "MATCH-3: ...returned 1 mamba ... have 0...": matched(HELD, 4, 4, Slots(FOUR, FOUR, (0,))),
    "MATCH-3: ...returned 3 swa slots where its pages have 2 on GPU...": [
        matched(each, 4, 4, Slots(FOUR, (0, 2, 3))) for each in GAPS
    ],
    "MATCH-3: a match returned 0 mamba...": matched(STATES, 4, 4, Slots(FOUR)),
    "MATCH-3: ...mamba slot 0 for page 3...": matched(STATES, 4, 4, Slots(FOUR, (), (0,))),
    **{
        f"MATCH-3: ...found {pages} pages on GPU where 4 pages of its key are in the tree": matched(
            HELD, 4, pages
        )
        for pages in (-1, 5)
    },
    (
        "MATCH-3: ...returned full slot 14 for page 1...slot 14 is that of node 9 (tokens 0..3) in "
        "Namespace(...cache_salt='tenant'..."
    ): matched(HELD, 4, 3, Slots((0, 14, 2), FOUR[:3])),
}

COUNTING = Profile(hits_counted_at_match=True)
IDLE = evolve(COUNTING, idle_hits_counted=False)
FREE = HELD.pools[FULL, GPU].free


def cut(*, refs: int = 0) -> Snapshot:
    """`HELD` after a match that cut node 2 before its second page."""
    upper = node(7, 1, [3], full=on([2], lock_refs=refs), swa=on([2]), last_access=20)
    lower = node(2, 7, [4], full=on([3]), swa=on([3]))
    return path(evolve(UPPER, last_access=20), evolve(upper, created=2), lower)


def hit(*hits: int, profile: Profile = COUNTING) -> Snapshot:
    """`UPPER`, and `LOWER` or its two pages in two nodes, with these hits."""
    parts = [evolve(LOWER, hit_count=hits[1])]
    if len(hits) > 2:
        first = node(7, 1, [3], full=on([2]), swa=on([2]), hit_count=hits[1])
        parts = [first, node(2, 7, [4], full=on([3]), swa=on([3]), hit_count=hits[2])]
    return path(evolve(UPPER, hit_count=hits[0]), *parts, profile=profile)


def counted(*hits: int, prefix: int = 3) -> Step:
    """A match of three pages, by profile; each node had four hits."""
    return matched(hit(4, 4), prefix, prefix, key=KEY.prefix(3), after=hit(*hits))


def changed(after: Snapshot) -> Step:
    """A match that leads to this state."""
    return matched(HELD, 4, 4, after=after)


IDLING = hit(4, 4, profile=IDLE)

EFFECTS: Table = {
    # A match may cut nodes and make them recent, and list free slots in another order.
    "MATCH-5": [
        matched(HELD, 3, 3, after=cut()),
        changed(with_pool(HELD, FULL, free=FREE[::-1])),
    ],
    # A match that changes anything else is reported.
    ("MATCH-5: ...page 2 of node 2: lock_refs was (0, 0, 0) and is (1, 0, 0)...", ...): changed(
        cut(refs=1)
    ),
    ("MATCH-5: ...page 2 of node 2: depth was 2 and is nothing...", ...): changed(path(UPPER)),
    ("MATCH-5: ...page 4 of node 3: depth was nothing...", ...): changed(
        path(UPPER, LOWER, node(3, 2, [5], full=on([5])))
    ),
    "MATCH-5: ...changed the counts of usage...": changed(evolve(HELD, usage={FULL: Usage(1, 1)})),
    "MATCH-5: ...changed ... of full slots [1, 2, 3]": changed(evolve(HELD, swa_of_full={0: 0})),
    "MATCH-5: a match changed which full slots on GPU are free or held": changed(
        with_pool(HELD, FULL, free=FREE[1:])
    ),
    # By profile, it counts a hit at each node of its prefix, or of which it used a part.
    "MATCH-5, RES-7": [counted(5, 5, 4), counted(5, 5)],
    ("MATCH-5: ...hit_count was 4 and is 5", ...): [
        counted(5, 5, 5),
        counted(5, 5, prefix=2),
        matched(hit(4, 4), 4, 4, after=hit(5, 5, profile=CANON)),
    ],
    "RES-7": [
        counted(5, 4, prefix=2),
        matched(hit(4, 4, profile=CANON), 4, 4),
        # By profile, hits need not be counted where no policy uses them.
        matched(
            evolve(IDLING, config=evolve(WINDOWED, host_slots=Counts(), write_policy="none")), 4, 4
        ),
    ],
    "RES-7: page 2 in node 2 (tokens 2..4) has 4 hits after Match, expected...": counted(5, 4),
    ("RES-7: page 0 in node 1 (tokens 0..2) has 4 hits after Match...", ...): [
        counted(4, 4, 4),
        matched(IDLING, 4, 4),
    ],
    ("RES-7: page 0 in node 1 (tokens 0..2) has 6 hits after Match...", ...): counted(6, 5, 4),
}


def inserted(
    before: Snapshot, after: Snapshot, slots: Slots, present: int, start: int | None = None
) -> Step:
    """An insert of `KEY`, from page `start` or from where slots begin."""
    begin = len(KEY) - len(slots.full) if start is None else start
    return step(before, Insert(KEY, begin, slots), after, Inserted(present, Counts(), Counts()))


def below(full: ComponentState, swa: ComponentState | None = None) -> Snapshot:
    """`UPPER`, and the last two pages of `KEY` with this data."""
    return path(UPPER, node(2, 1, [3, 4], full=full, swa=swa))


def stateful(slot: Slot | None) -> Snapshot:
    """`KEY` with a mamba state at its end, or without."""
    state = on() if slot is None else on([slot])
    return path(PLAIN_UPPER, having(PLAIN_LOWER, mamba=state), config=RECURRENT)


STEM, BARE = path(UPPER), path(having(UPPER, swa=on()), LOWER)
FULL_ALONE, BROUGHT, ALL = Slots((2, 3)), Slots((2, 3), (2, 3)), Slots(FOUR, FOUR)
TOMBSTONED = below(on([2, 3]))
HALF = path(UPPER, node(2, 1, [3], full=on([2])), node(3, 2, [4], full=on([3]), swa=on([3])))
SHORTER = path(UPPER, node(2, 1, [3], full=on([2])))
LOADING = below(on([2, 3]), on([2, 3], [2, 3], loading=8))
HOLE = path(having(UPPER, full=on(None, [0, 1])), LOWER)
NO_LEAF = Profile(tombstone_leaves=False)
DROPPING = Profile(unreachable_windows_kept=False)

INSERTS: Table = {
    # An insert after which all its data is there holds.
    "MATCH-6": [
        inserted(STEM, HELD, BROUGHT, 2),
        inserted(TOMBSTONED, HELD, Slots((8, 9), (2, 3)), 4),
        inserted(below(on(None, [2, 3])), HELD, BROUGHT, 2),
        inserted(path(), HELD, ALL, 0),
        inserted(HELD, HELD, Slots(), 4),
        # By profile, a new leaf without window data may be gone.
        inserted(STEM, evolve(STEM, profile=NO_LEAF), FULL_ALONE, 2),
        # Window data that the request had freed need not be there.
        inserted(STEM, TOMBSTONED, FULL_ALONE, 2),
        inserted(STEM, HALF, Slots((2, 3), (3,)), 2),
        # By profile, new window data before the last window may be freed.
        inserted(path(), evolve(BARE, profile=DROPPING), ALL, 0),
        # A load in flight keeps its slots.
        inserted(LOADING, LOADING, Slots(), 4),
        *[
            inserted(stateful(had), stateful(1), Slots(mamba=(1,) * (not had)), 4)
            for had in (None, 1)
        ],
    ],
    # An insert that loses what it brought, or what was there, is reported.
    "MATCH-6: ...only 2 of 4 inserted pages are in the tree afterwards": [
        inserted(STEM, STEM, BROUGHT, 2),
        inserted(STEM, STEM, FULL_ALONE, 2),
        inserted(STEM, evolve(STEM, profile=NO_LEAF), BROUGHT, 2),
    ],
    "MATCH-6: ...only 3 of 4 inserted pages are in the tree afterwards": inserted(
        STEM, evolve(SHORTER, profile=NO_LEAF), FULL_ALONE, 2
    ),
    ("MATCH-6: full data of page 2 of an inserted key is not on GPU afterwards...", ...): [
        inserted(STEM, below(on(None, [2, 3])), BROUGHT, 2),
        inserted(STEM, below(on([2, 3], [2, 3], loading=8), on([2, 3])), BROUGHT, 2),
    ],
    ("MATCH-6: swa data of page 2 ...afterwards...", ...): [
        inserted(STEM, TOMBSTONED, BROUGHT, 2),
        inserted(STEM, HALF, BROUGHT, 2),
        inserted(STEM, evolve(TOMBSTONED, profile=DROPPING), BROUGHT, 2),
    ],
    "MATCH-6: swa data of page 0 ...it was there before": [
        inserted(STEM, BARE, BROUGHT, 2),
        inserted(STEM, evolve(BARE, profile=DROPPING), BROUGHT, 2),
    ],
    ("MATCH-6: swa data of page 0 of an inserted key...", ...): inserted(path(), BARE, ALL, 0),
    ("MATCH-6: full data of page 0...builds on it...", ...): inserted(HOLE, HOLE, Slots(), 0, 4),
    ("MATCH-6: swa data of page 2...it was there before...", ...): inserted(
        LOADING, below(on([2, 3]), on(None, [2, 3])), Slots(), 4
    ),
    "MATCH-6: mamba data of page 3...brought...": inserted(
        stateful(None), stateful(None), Slots(mamba=(1,)), 4
    ),
    "MATCH-6: mamba data of page 3...it was there before": inserted(
        stateful(0), stateful(None), Slots(), 4
    ),
    "MATCH-6: ...says that 3 of its 4 pages had full data on GPU before, and 2 had": inserted(
        STEM, HELD, BROUGHT, 3
    ),
}


def with_states(
    before: Snapshot,
    after: Snapshot,
    pages: tuple[int, ...],
    adopted: int = 1,
    profile: Profile = CANON,
) -> Step:
    """An insert of `KEY`, all of which is there, with states at the ends of these pages."""
    call = Insert(KEY, 4, Slots(mamba=FOUR[: len(pages)]), state_pages=pages)
    told = Inserted(4, Counts(mamba=adopted), Counts(mamba=len(pages) - adopted))
    before, after = evolve(before, profile=profile), evolve(after, profile=profile)
    return step(before, call, after, told)


BOTH_STATES, LAST_STATE = STATES, stateful(1)
ONE_STATE = Profile(path_states=1)
CHOOSING = Profile(admission=Choosing.OWN)

KEPT: Table = {
    # Each state that was brought is there, or one that was there before.
    "MATCH-8": [
        with_states(stateful(None), BOTH_STATES, (2, 4), 2),
        with_states(ENDING, BOTH_STATES, (2, 4)),
        with_states(stateful(None), stateful(None), (4,)),
        # By profile a path keeps so many only, and by profile an insert chooses what it keeps.
        with_states(stateful(None), LAST_STATE, (2, 4), profile=ONE_STATE),
        with_states(stateful(None), stateful(None), (2, 4), 0, profile=CHOOSING),
    ],
    "MATCH-8: page 1 of an inserted key, in node 1 (tokens 0..2), has no mamba state...": [
        with_states(stateful(None), LAST_STATE, (2, 4)),
        with_states(stateful(None), LAST_STATE, (2, 4), profile=Profile(path_states=2)),
        with_states(stateful(None), LAST_STATE, (2, 4), profile=CHOOSING),
    ],
    "MATCH-8: page 3 of an inserted key...": [
        with_states(stateful(None), ENDING, (2, 4)),
        with_states(stateful(None), ENDING, (2, 4), profile=ONE_STATE),
    ],
}


def loading(upper: TransferId | None, lower: TransferId | None) -> Snapshot:
    """The path of `KEY` while transfers load it."""
    return path(
        having(UPPER, full=on([0, 1], [0, 1], loading=upper), swa=on([0, 1], [0, 1])),
        having(LOWER, full=on([2, 3], [2, 3]), swa=on([2, 3], [2, 3], loading=lower)),
    )


IN_FLIGHT = loading(8, 9)
NAMED = [
    (loading(None, None), 4, ()),
    (IN_FLIGHT, 4, (8, 9)),
    (loading(8, 8), 4, (8,)),
    (IN_FLIGHT, 2, (8,)),
    (IN_FLIGHT, 3, (9, 8)),
    (IN_FLIGHT, 0, ()),
]
"""The state, the pages that are usable, and the loads that bring them, in any order."""

LOADS: Table = {
    # A match that leaves out a load of its prefix, or names another or one twice, is reported.
    "MATCH-7": [matched(there, pages, 0, pending=loads) for there, pages, loads in NAMED],
    "MATCH-7: ...77...": [
        matched(there, pages, 0, pending=(*loads, 77)) for there, pages, loads in NAMED
    ],
    **{
        f"MATCH-7: ...{sorted(named)} are loading them...": [
            matched(there, pages, 0, pending=wrong)
            for there, pages, loads in NAMED
            for wrong in (loads[1:], loads * 2)
            if set(loads) == set(named)
        ]
        for named in ((8,), (8, 9))
    },
}

test_match = table(RIGHT, PREFIX, SLOTS, EFFECTS, INSERTS, KEPT, LOADS)
