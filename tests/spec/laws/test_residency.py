"""RES-1 to RES-7: each law on a state where it holds, and on states with a single fault."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import TransferPending
from kvcanon.spec.operations import Insert, Inserted, Match, Refused
from kvcanon.spec.snapshot import ComponentState, NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, Counts, Slots, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, POOLS, ROOT, node, on, state_of, with_node, with_pool
from states.judging import Table, step, still, table

SLOTS = Counts(full=8, swa=8, mamba=4)
CONFIG = evolve(EVERYTHING, device_slots=SLOTS, host_slots=SLOTS)
BACK = evolve(CONFIG, write_policy="write_back")


def upper(
    full: ComponentState, swa: ComponentState | None = None, mamba: ComponentState | None = None
) -> NodeState:
    """A node of two pages."""
    return node(1, ROOT, [1, 2], full=full, swa=swa, mamba=mamba)


def lower(
    full: ComponentState, swa: ComponentState | None = None, mamba: ComponentState | None = None
) -> NodeState:
    """A node of one page below it."""
    return node(2, 1, [3], full=full, swa=swa, mamba=mamba)


UPPER = upper(on([0, 1], [0, 1]), on([0, 1]), on([0], [0]))
LOWER = lower(on([2], [2]), on([2], [2]))
THERE = state_of(CONFIG, UPPER, LOWER)
LOADING = upper(on([0, 1], [0, 1], loading=7))


def odd(changed: NodeState) -> Snapshot:
    """A state with other data at node 1, to which nothing is adapted."""
    return with_node(THERE, evolve(changed, child_ids=(2,)))


WRONG_SLOTS = {
    "has 1 full slots on GPU; its 2 pages need 2": upper(on([0])),
    "has 3 full slots on CPU_PINNED; its 2 pages need 2": upper(on([0, 1], [0, 1, 2])),
    "has 1 swa slots on GPU; its 2 pages need 2": upper(on([0, 1]), on([1])),
    "has 0 swa slots on GPU; its 2 pages need 2": upper(on([0, 1]), on([])),
    "has 2 mamba slots on GPU; its 2 pages need 1": upper(on([0, 1]), None, on([0, 1])),
    "has full slots [-1] on GPU; that pool has slots 0..8": upper(on([0, -1])),
    "has full slots [8] on GPU; that pool has slots 0..8": upper(on([0, 8])),
    "has mamba slots [4] on GPU; that pool has slots 0..4": upper(on([0, 1]), None, on([4])),
    "waits for transfer 7 to fill its full slots on CPU_PINNED, and has none there": upper(
        on([0, 1], backing=7)
    ),
}

STATES: Table = {
    "RES-1, RES-2, RES-3, RES-4, RES-6": [
        state_of(CONFIG),
        THERE,
        state_of(CONFIG, upper(on([0, 1], [0, 1])), lower(on(None, [2]), on(None, [2]))),
        state_of(CONFIG, LOADING, lower(on([2], [2], loading=7))),
    ],
    "RES-1: node 2 (tokens 2..3) has full data neither on GPU nor on CPU_PINNED": state_of(
        CONFIG, UPPER, lower(on(), on([2]))
    ),
    # Window data or a mamba state without full data on its medium is reported.
    "RES-2: node 2 (tokens 2..3) has swa data on GPU and no full data there": state_of(
        CONFIG, UPPER, lower(on(None, [2]), on([2]))
    ),
    "RES-2: node 2 (tokens 2..3) has swa data on CPU_PINNED and no full data there": state_of(
        CONFIG, UPPER, lower(on([2]), on([2], [2]))
    ),
    "RES-2: node 2 (tokens 2..3) has mamba data on GPU and no full data there": state_of(
        CONFIG, UPPER, lower(on(None, [2]), None, on([1]))
    ),
    # A page on the device without the page before it is reported, or before that is loaded.
    "RES-3: ...node 2 (tokens 2..3) has full data on GPU...parent node 1 (tokens 0..2) has...": (
        state_of(CONFIG, upper(on(None, [0, 1])), LOWER)
    ),
    "RES-3: ...transfer 7 is still loading ... node 1...": state_of(CONFIG, LOADING, LOWER),
    # A host copy below a node without one is reported, if the policy needs it.
    "RES-4": [state_of(BACK, upper(on([0, 1])), LOWER)],
    "RES-4: ...node 2 ... on the host but ... node 1...": state_of(
        CONFIG, upper(on([0, 1])), LOWER
    ),
    # Too few or too many slots, or slots out of range, are reported.
    **{f"RES-6: node 1 (tokens 0..2) {words}": odd(each) for words, each in WRONG_SLOTS.items()},
    "RES-6: ...swa slots [0] on GPU; that pool has slots 0..0": state_of(
        CacheConfig(device_slots=POOLS), node(1, ROOT, [1], full=on([0]), swa=on([0]))
    ),
}

KEY = make_key([1, 2, 3], 1)
INSERT = Insert(KEY, 3, Slots())


def path(
    *hosts: bool,
    hits: tuple[int, int] = (1, 1),
    config: CacheConfig = CONFIG,
    profile: Profile = CANON,
    room: bool = False,
) -> Snapshot:
    """The nodes of `KEY` with or without host copies, on a host that is full or not."""
    above, below = hosts or (True, True)
    state = state_of(
        config,
        node(1, ROOT, [1, 2], full=on([0, 1], [0, 1] if above else None), hit_count=hits[0]),
        node(2, 1, [3], full=on([2], [2], backing=7) if below else on([2]), hit_count=hits[1]),
        node(3, 2, [4], full=on([3])),
        profile=profile,
    )
    return state if room or not config.host_slots else with_pool(state, FULL, CPU, free=())


def inserted(after: Snapshot, declined: int = 0, pages: int = 3) -> Step:
    """An insert of the first pages of `KEY` that declined to back up so many pages."""
    told = Inserted(pages, Counts(), Counts(), backup_declined_pages=declined)
    return still(after, Insert(KEY.prefix(pages), pages, Slots()), told)


NONE = path(False, False)
SELECTIVE = evolve(CONFIG, write_policy="write_through_selective")

BACKUPS: Table = {
    # An insert that backs up what was due, or counts what does not fit, holds.
    "RES-5": [
        inserted(path()),
        inserted(path(room=True)),
        inserted(path(True, False), 1),
        inserted(NONE, 3),
        inserted(path(False, False, hits=(0, 0), room=True)),
        inserted(path(False, False, hits=(1, 0)), 2),
        inserted(path(False, False, config=SELECTIVE, room=True)),
        inserted(path(False, True, config=BACK, room=True)),
        # Only pages of the inserted key are counted as declined.
        inserted(NONE, 1, pages=1),
        # Matches and refused inserts need not back up.
        still(NONE, Match(KEY)),
        still(NONE, INSERT, Refused(TransferPending(7))),
    ],
    # A node with enough hits without a backup that is not counted is reported.
    (
        "RES-5: insert declined to back up 0 pages, but 1 pages of its path reached 1 hits and "
        "have no host copy: node 2 (tokens 2..3) with 1 hits"
    ): inserted(path(True, False)),
    "RES-5: insert declined to back up 2 pages, but 0 pages of its path...": inserted(path(), 2),
    "RES-5: ...though ... room for it, or could make it": inserted(path(True, False, room=True), 1),
    "RES-5: node 2 ... but node 1 ... above it has none": inserted(path(False, True, hits=(0, 1))),
}


def counted(
    *hits: int, again: int = 0, profile: Profile = CANON, config: CacheConfig = CONFIG
) -> Step:
    """An insert, before which no node had hits; `again` pages had counted it already."""
    after = evolve(path(hits=(hits[0], hits[1]), profile=profile), config=config)
    told = Inserted(3, Counts(), Counts())
    return step(path(hits=(0, 0)), evolve(INSERT, counted_pages=again), after, told)


EACH_INSERT = Profile(hits_once_a_request=False)
AT_MATCH = Profile(hits_counted_at_match=True)
NOT_IDLE = Profile(idle_hits_counted=False)

HITS: Table = {
    # A hit that a request counts twice, or not at all, is reported.
    "RES-7": [
        counted(1, 1),
        counted(0, 1, again=2),
        # By profile, every insert counts a hit, or matches do and inserts do not.
        counted(1, 1, again=2, profile=EACH_INSERT),
        counted(0, 0, profile=AT_MATCH),
        # By profile, hits need not be counted where no policy uses them, and must elsewhere.
        counted(0, 0, profile=NOT_IDLE, config=CacheConfig()),
        counted(0, 0, profile=NOT_IDLE, config=CacheConfig(write_policy="write_back")),
    ],
    "RES-7: page 0 in node 1 (tokens 0..2) has 0 hits...": [
        counted(0, 1),
        counted(0, 1, again=2, profile=EACH_INSERT),
    ],
    "RES-7: page 0 in node 1 (tokens 0..2) has 1 hits...": counted(1, 1, again=2),
    "RES-7: page 0 in node 1 (tokens 0..2) has 2 hits...": counted(2, 1),
    ("RES-7: page 0 in node 1 (tokens 0..2) has ... hits...", ...): [
        counted(1, 1, profile=AT_MATCH),
        counted(0, 0, profile=NOT_IDLE, config=CacheConfig(eviction_policy="lfu")),
        counted(0, 0, profile=NOT_IDLE, config=CacheConfig(write_policy="write_through_selective")),
    ],
}

test_residency = table(STATES, BACKUPS, HITS)
