"""RES-5, RES-9 and RES-10: host copies are whole and at their pages."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.operations import HostInserted, HostPayload, Insert, Inserted, InsertHost, Match
from kvcanon.spec.snapshot import NodeState, Snapshot, TransferState
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, Component, Counts, NodeId, Slots, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, with_pool
from states.judging import Table, step, still, table

CONFIG = evolve(EVERYTHING, window_tokens=1)
KEY = make_key([1, 2, 3, 4], 1)
BYTES = bytes(8)
FETCH = InsertHost(KEY, 1, HostPayload((BYTES,) * 3, (BYTES,), (BYTES,)))
"""Three pages from page 1 on, window data of the last, and its state."""

TOP = node(1, ROOT, [1], full=on([0], [0]))
BARE = node(2, 1, [2], full=on([1]), swa=on([1]))
REFILLED = having(BARE, full=on([1], [1]))
THIRD = node(3, 2, [3], full=on(None, [2]))
LAST = node(4, 3, [4], full=on(None, [3]), swa=on(None, [3]), mamba=on(None, [0]))
PARTED = (TOP, REFILLED, THIRD, LAST)
TOLD = HostInserted(placed_pages=2, refilled_pages=1, present_pages=0, dropped_pages=0)
DROPPED = HostInserted(0, 0, 0, 3)
BEFORE, EMPTY = state_of(CONFIG, TOP, BARE), state_of(CONFIG)


def fetched(*after: NodeState, told: HostInserted = TOLD, before: Snapshot | None = None) -> Step:
    """A host insert of `FETCH` that leads to these nodes, by default to right ones."""
    return step(before or BEFORE, FETCH, state_of(CONFIG, *(after or PARTED)), told)


FETCHES: Table = {
    # A host insert that refills, places and counts correctly holds.
    "RES-9": [
        fetched(),
        fetched(TOP, BARE, told=DROPPED),
        still(EMPTY, Match(KEY)),
        # Window data of the path may be evicted from the host.
        fetched(before=state_of(CONFIG, having(TOP, swa=on(None, [5])), BARE)),
    ],
    # Wrong counts of placed, refilled or present pages are reported.
    (
        "RES-9: 3 pages are reported as placed, and 2 are",
        "0 pages are reported as refilled, and 1 are",
    ): fetched(told=HostInserted(3, 0, 0, 0)),
    ("RES-9: 1 ... as present, and 0 are", ...): fetched(told=HostInserted(2, 1, 1, 0)),
    "RES-9: 3 pages were given, and 4 are accounted for": fetched(told=HostInserted(2, 1, 0, 1)),
    # Window data or a mamba state at other pages is reported.
    (
        "RES-9: ...has swa slot 3 on CPU_PINNED, where it had none; it is page 2 of the key...",
        "...has mamba slot 0 on CPU_PINNED...data was given for the last 1 pages",
    ): fetched(
        TOP,
        REFILLED,
        having(THIRD, swa=on(None, [3]), mamba=on(None, [0])),
        evolve(LAST, data={FULL: on(None, [3])}),
    ),
    # A host insert that locks or changes other data of its path, or counts hits, is reported.
    ("RES-9", ..., "...device was (1, 1, None) and is (5, 1, None)", ...): fetched(
        TOP, having(REFILLED, full=on([5], [1])), THIRD, LAST
    ),
    "RES-9: ...lock_refs was (0, 0, 0)...": fetched(
        TOP, having(REFILLED, full=on([1], [1], lock_refs=1)), THIRD, LAST
    ),
    "RES-9: ...hit_count was 0 and is 3": fetched(TOP, evolve(REFILLED, hit_count=3), THIRD, LAST),
    # One that takes full data or a page from its path is reported.
    "RES-9: page 0 in node 1 (tokens 0..1) had full slot 0 on CPU_PINNED, and has 5": fetched(
        having(TOP, full=on([0], [5])), *PARTED[1:]
    ),
    ("RES-9", ..., "page 1 in node 2 ... is not ... more", ...): fetched(TOP, told=DROPPED),
    # New pages with hits, or with device slots, are reported.
    "RES-9: ...is new, and has 2 hits and slots (None, None, None) on GPU": fetched(
        *PARTED[:3], evolve(LAST, hit_count=2)
    ),
    ("RES-9", ..., "pages [0] have a host copy now; bytes came from page 1 on", ...): fetched(
        before=state_of(CONFIG, having(TOP, full=on([0])), BARE), told=HostInserted(2, 2, 0, 0)
    ),
    # One that takes slots of a request is reported.
    "RES-9: a host insert changed which slots of full on GPU are free or held": fetched(
        before=state_of(CONFIG, TOP, BARE, held={FULL: {7}})
    ),
}

# Backups.

INSERT = Insert(KEY.prefix(2), 2, Slots())
INSERTED = Inserted(2, Counts(), Counts())
END = node(2, 1, [2], full=on([1]), swa=on([1]), mamba=on([1]), hit_count=1)
HIT = evolve(TOP, hit_count=1)
COMING = on([1], [1], backing=8)
WHOLE = having(END, COMING, COMING, COMING)


def host_full(state: Snapshot) -> Snapshot:
    """A state without free slots on the host."""
    for component in Component:
        state = with_pool(state, component, CPU, free=())
    return state


def backed(end: NodeState, *, write: str = "write_through") -> Step:
    """An insert after which the end of its key is so."""
    config = evolve(CONFIG, write_policy=write)
    return step(state_of(config, HIT, END), INSERT, state_of(config, HIT, end), INSERTED)


def crowded(end: NodeState) -> Step:
    """The same with a full host."""
    told = backed(end)
    return step(told.before, INSERT, host_full(told.after), INSERTED)


def enqueued(
    *node_ids: NodeId,
    hits: tuple[int, int] = (1, 1),
    again: bool = False,
    write: str = "write_through",
) -> Step:
    """An insert that backs up these nodes with these hits; `again`: all have host copies."""
    config = evolve(CONFIG, write_policy=write)
    top, end = (
        node(each, each - 1, [each], full=on([each - 1], [each - 1]), hit_count=hits[each - 1])
        for each in (1, 2)
    )
    parts = tuple((each, FULL) for each in node_ids)
    transfer = TransferState(8, Direction.BACKUP, parts, {FULL: (1,)}, {FULL: (1,)})
    below = node(3, 2, [9], full=on([2], [2]))
    path = (
        [top, end] if again else [having(each, full=on(each[FULL].device)) for each in (top, end)]
    )
    after = state_of(config, top, end, below, transfers=(transfer,))
    return step(state_of(config, *path, below), INSERT, after, evolve(INSERTED, backups=(8,)))


HEALED = having(WHOLE, on([1], [1]), on([1]), on([1]))
WINDOWLESS, STATELESS = having(WHOLE, swa=on([1])), having(WHOLE, mamba=on([1]))
WITHOUT = "page 1 in node 2 (tokens 1..2) was backed up without its"

BACKUPS: Table = {
    # A backup without window data or the mamba state is reported, whatever the room.
    "RES-10": [
        backed(WHOLE),
        backed(END),
        backed(evolve(END, data={FULL: COMING})),
        still(EMPTY, Match(KEY)),
        # A cache without a hit threshold need not back up.
        backed(WINDOWLESS, write="write_back"),
        enqueued(2),
        enqueued(1, 2, hits=(0, 1)),
    ],
    (f"RES-10: {WITHOUT} swa data, which is in slot 1 on GPU", ...): [
        backed(WINDOWLESS),
        crowded(WINDOWLESS),
    ],
    (f"RES-10: {WITHOUT} mamba data, which is in slot 1 on GPU", ...): [
        backed(STATELESS),
        crowded(STATELESS),
    ],
    # A backup of nodes with too few hits, or off the path, or with a host copy is reported.
    "RES-10: full data of node 2 ... above no node that was hit 1 times": enqueued(2, hits=(1, 0)),
    "RES-10: full data of node 3 (tokens 2..3) was backed up...": enqueued(2, 3),
    "RES-10: full data of node 1 ... was backed up, and had a host copy": enqueued(1, again=True),
    "RES-10: full data of node 2 ... insert under write_back": enqueued(2, write="write_back"),
    # Healed window data that is not backed up is reported where it fits on the host.
    "RES-5": [
        still(host_full(state_of(CONFIG, HIT, HEALED)), INSERT, INSERTED),
        still(state_of(CONFIG, HIT, evolve(HEALED, hit_count=0)), INSERT, INSERTED),
        # Window data before the last window, or a state above the end, need not be backed up.
        still(
            state_of(
                CONFIG,
                having(HIT, swa=on([0]), mamba=on([0])),
                evolve(END, data={FULL: on([1], [1])}),
            ),
            INSERT,
            INSERTED,
        ),
    ],
    (
        "RES-5: insert left node 2 (tokens 1..2) without a host copy of its swa and mamba data, "
        "though the host has room for it, or could make it"
    ): still(state_of(CONFIG, HIT, HEALED), INSERT, INSERTED),
}

test_host_copies = table(FETCHES, BACKUPS)
