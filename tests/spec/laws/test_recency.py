"""REC-1, REC-2, REC-4 and REC-5: LRU orders, what a use makes recent, what it leaves alone.

The path of `KEY` is four nodes of one page each; node 9 is another prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, MambaRefresh, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.operations import Evict, Evicted, Insert, Inserted, Lock, Match, Matched, Refused
from kvcanon.spec.snapshot import Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    NodeId,
    Slots,
    make_key,
)
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, node, on, state_of
from states.judging import Table, step, still, table

WINDOWED = evolve(EVERYTHING, mamba=False)
RECURRENT = evolve(EVERYTHING, window_tokens=None)
PLAIN = evolve(WINDOWED, window_tokens=None)
KEY = make_key([1, 2, 3, 4], 1)
PATH = (1, 2, 3, 4)


def prompt(
    *used: NodeId,
    at: int = 20,
    order: tuple[NodeId, ...] | None = None,
    config: CacheConfig = WINDOWED,
    profile: Profile = CANON,
) -> Snapshot:
    """All nodes, on both media, those in `used` last accessed at one tick.

    `order` is the LRU order of window data or mamba states on both media.
    """
    has = config.components
    nodes = [
        node(
            node_id,
            parent_id,
            [token] * config.page_size,
            full=on([node_id], [node_id]),
            swa=on([node_id], [node_id]) if SWA in has else None,
            mamba=on([node_id], [node_id]) if MAMBA in has else None,
            page_size=config.page_size,
            last_access=at if node_id in used else node_id,
        )
        for node_id, parent_id, token in ((1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 4), (9, 0, 7))
    ]
    state = state_of(config, *nodes, profile=profile)
    lesser = MAMBA if MAMBA in has else SWA
    return state if order is None else ordered(state, *order, component=lesser)


def ordered(state: Snapshot, *order: NodeId, component: Component = SWA) -> Snapshot:
    """A state with these LRU orders, on both media."""
    named: Mapping[Pool, tuple[NodeId, ...]] = {(component, m): order for m in (GPU, CPU)}
    return evolve(state, recency={**state.recency, **named})


BEFORE = prompt(order=(1, 2, 3, 4, 9))
USED = prompt(*PATH)


def found(after: Snapshot, pages: int, before: Snapshot = BEFORE, key: Key = KEY) -> Step:
    """A match with a prefix hit of this many pages."""
    return step(before, Match(key), after, Matched(pages, pages, Slots()))


def used(after: Snapshot, before: Snapshot = BEFORE) -> list[Step]:
    """A match and an insert of all of `KEY`."""
    insert = step(before, Insert(KEY, 4, Slots()), after, Inserted(4, Counts(), Counts()))
    return [found(after, 4, before), insert]


def use(*order: NodeId, profile: Profile = CANON) -> list[Step]:
    """A match and an insert of all of `KEY` that leave window data in this order."""
    return used(prompt(*PATH, order=order, profile=profile))


BY_USE = Profile(host_order_by_use=False)
"""The host has an order of its own, which a use need not change."""
NO_CUSHION = Profile(cushion_refreshed=False)
ALONE = evolve(BEFORE, recency={**BEFORE.recency, (SWA, CPU): ()}, profile=BY_USE)
"""The host's own order lists only data that is not on the device, which is none."""
SPLIT = prompt(*PATH, order=(1, 9, 2, 3, 4))
SPLIT = evolve(SPLIT, recency={**SPLIT.recency, (SWA, CPU): (1, 2, 3, 4, 9)})
"""Window data that was used is recent on the device alone."""
STRANGER = node(8, ROOT, [8], full=on([8]), swa=on([8]), last_access=8)
TWO = ordered(state_of(WINDOWED, *BEFORE.below_root(), STRANGER), 8, 9, 1, 2, 3, 4)
WHOLE = node(1, ROOT, [1, 2, 3, 4], full=on(PATH), swa=on(PATH))
OTHER = node(9, ROOT, [7], full=on([9]), swa=on([9]))
UNCUT = state_of(WINDOWED, WHOLE, OTHER)
UNCUT_USED = state_of(WINDOWED, evolve(WHOLE, last_access=20), OTHER)
PAGED = evolve(WINDOWED, page_size=2, window_tokens=3)


def paged(*order: NodeId) -> Step:
    """A match of pages of two tokens; tokens 5..8 are the window, which begins inside page 2."""
    before, after = (
        prompt(config=PAGED, order=(1, 2, 3, 4, 9)),
        prompt(*PATH, config=PAGED, order=order),
    )
    return found(after, 4, before, make_key([1, 1, 2, 2, 3, 3, 4, 4], 2))


def said(words: str) -> tuple[str, str]:
    """What a law says of a use, of both media."""
    return (f"REC-1: ..., which ended at token 4, {words}...", "...CPU_PINNED...")


WINDOWS: Table = {
    # The window at an end, and the one page before it, become recent.
    "REC-1": [
        *use(1, 9, 2, 3, 4),
        # By profile, the cushion may stay, but the window may not.
        *use(1, 2, 9, 3, 4, profile=NO_CUSHION),
        *use(1, 9, 2, 3, 4, profile=NO_CUSHION),
        *used(evolve(SPLIT, profile=BY_USE)),
        # Nodes that are no part of the usable prefix are not used.
        found(BEFORE, 0),
        found(prompt(1, 2, order=(3, 4, 9, 1, 2)), 2),
        # A node at the window's edge, part of which is out of reach, moves as a whole.
        *used(UNCUT_USED, UNCUT),
        paged(1, 9, 2, 3, 4),
        # Window data that an insert adds had no place in the order before.
        used(prompt(*PATH, order=(9, 2, 1, 3, 4)), prompt(order=(2, 3, 4, 9)))[1],
        *used(prompt(1, config=PLAIN), prompt(config=PLAIN)),
    ],
    # A use that makes more or less than its window recent is reported.
    said("moved node 1 (tokens 0..1), which is 3 tokens above that end, in ...overtaken node 9"): (
        use(9, 1, 2, 3, 4)
    ),
    said("used the swa data of node 2 (tokens 1..2) on GPU, but ... recent than that of node 9"): (
        use(1, 2, 9, 3, 4)
    ),
    ("REC-1: ...used the swa data of node 2 (tokens 1..2) on GPU, ... node 9 (tokens 0..1)", ...): [
        *use(1, 2, 3, 9, 4),
        *use(1, 2, 3, 4, 9),
    ],
    ("REC-1: ...used the swa data of node 3 ...", ...): use(1, 2, 3, 9, 4, profile=NO_CUSHION),
    said("used the swa data of node 4 (tokens 3..4) on GPU, but ... than that of node 3"): use(
        1, 9, 2, 4, 3
    ),
    ("REC-1: ...on CPU_PINNED...", ...): used(SPLIT),
    ("REC-1: ...on GPU, ...", "...on GPU, ...", "...on GPU, ..."): used(
        evolve(BEFORE, profile=BY_USE)
    ),
    (
        "REC-1: Match, which ended at token 0, moved node 1 (tokens 0..1), which is not on...",
        "...",
    ): (found(prompt(order=(2, 3, 4, 9, 1)), 0)),
    ("REC-1: ...moved node 3 ...", ...): found(prompt(1, 2, order=(4, 9, 1, 2, 3)), 2),
    ("REC-1: ...moved node 8 (tokens 0..1), which is not on its path...", ...): used(
        ordered(TWO, 9, 8, 1, 2, 3, 4), TWO
    ),
    ("REC-1: ...", ...): used(UNCUT, UNCUT),
    # The window is measured in tokens, and not rounded to pages.
    ("REC-1: ...ended at token 8, used the swa data of node 2 ...", "..."): paged(1, 2, 9, 3, 4),
    ("REC-1: ...node 1 ..., which is 6 tokens above that end...", "..."): paged(9, 1, 2, 3, 4),
}

SHORT = state_of(WINDOWED, node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]), last_access=3))
UP, TAIL = node(5, ROOT, [1, 2], full=on([1, 2]), last_access=20), node(1, 5, [3], full=on([3]))
NOTHING = state_of(WINDOWED, OTHER)


def cut(last_access: int) -> Step:
    """A match that cut off its end, whose tail was last accessed at this tick."""
    after = state_of(WINDOWED, UP, evolve(TAIL, last_access=last_access))
    return found(after, 2, SHORT, KEY.prefix(2))


def refreshed(profile: Profile) -> Step:
    """A match whose cut moves the part that it cuts off to the most recent end."""
    before = node(1, ROOT, [1, 2, 3], full=on([1, 2, 3]), swa=on([1, 2, 3]))
    after = (
        node(5, ROOT, [1, 2], full=on([1, 2]), swa=on([1, 2]), last_access=20),
        evolve(node(1, 5, [3], full=on([3]), swa=on([3]), last_access=21), created=1),
    )
    return found(
        state_of(WINDOWED, *after, OTHER, profile=profile), 2, state_of(WINDOWED, before, OTHER)
    )


SCRAMBLED = prompt(1, order=(9, 4, 3, 2, 1))
REFUSED = Refused(BadArgument("key", "is wrong"))

PATHS: Table = {
    # A use that leaves a part of its path old is reported.
    "REC-2": [
        *used(USED),
        # Only what is usable is used; the part that a match cut off keeps its age.
        found(prompt(1, 2), 2),
        found(prompt(), 0),
        cut(3),
    ],
    "REC-2: ...used node 1 ... accessed at 1, which is not after node 9...": used(prompt(2, 3, 4)),
    ("REC-2: ...", "...", "...", "..."): used(prompt(*PATH, at=9)),
    ("REC-2", ..., "...Match did not use node 3 (tokens 2..3), but its last...", ...): found(
        prompt(1, 2, 3), 2
    ),
    ("REC-2", ..., "...did not use node 1 ..., but its last access was 3 and is 20"): cut(20),
    # A cache that does not cut at the end of a match may refresh the whole node.
    "REC-1, REC-2, REC-7": [found(UNCUT_USED, 2, UNCUT)],
    # By profile, a cut may move the part that it cuts off to the most recent end.
    "REC-1, REC-2": [refreshed(Profile(split_keeps_recency=False))],
    ("REC-1, REC-2: ...", ...): refreshed(CANON),
    # Locks and refused calls are no uses, nor is a prefix that is not in the tree.
    "REC-1, REC-2, REC-5": [
        step(BEFORE, Lock(KEY), SCRAMBLED),
        step(BEFORE, Match(KEY), SCRAMBLED, REFUSED),
        step(BEFORE, Insert(KEY, 4, Slots()), SCRAMBLED, REFUSED),
        found(NOTHING, 2, NOTHING),
    ],
}

STATES = prompt(config=RECURRENT, order=(1, 2, 3, 4, 9))
REFRESHING = Profile(mamba_refresh=MambaRefresh.PATH)


def states(*order: NodeId, profile: Profile = CANON) -> Snapshot:
    """The path with a mamba state at every node, once it was used."""
    return prompt(*PATH, config=RECURRENT, order=order, profile=profile)


def by_profile(*order: NodeId) -> list[Step]:
    """Uses that refresh the states on the path, too."""
    before = evolve(STATES, profile=REFRESHING)
    return used(states(*order, profile=REFRESHING), before)


RECURRENCE: Table = {
    # States on the way that become recent are reported, or an end that does not.
    "REC-5": [
        *used(states(1, 2, 3, 9, 4), STATES),
        found(states(1, 2, 3, 4, 9), 0, STATES),
        # By profile, the states on the path become recent too, and must.
        *by_profile(9, 1, 2, 3, 4),
    ],
    ("REC-5: ...moved node 3 (tokens 2..3), which is 1 tokens above that end...", "..."): used(
        states(1, 2, 9, 3, 4), STATES
    ),
    (
        "REC-5: ...used the mamba data of node 4 ... on GPU, but it is not more recent...",
        "...",
    ): used(states(1, 2, 3, 4, 9), STATES),
    ("REC-5: ...moved node 4 ...", ...): found(states(1, 2, 3, 9, 4), 0, STATES),
    ("REC-5: ...used the mamba data of node ...", ...): [
        *by_profile(1, 2, 3, 9, 4),
        *by_profile(9, 2, 1, 3, 4),
    ],
}


def leaves(medium: str = GPU, at: int | None = None) -> Snapshot:
    """Three leaves on a medium, used one after another, or at one tick."""
    slots = [on([n]) if medium is GPU else on(None, [n]) for n in (1, 2, 3)]
    nodes = (node(n, ROOT, [n], full=slots[n - 1], last_access=at or 10 + n) for n in (1, 2, 3))
    return state_of(WINDOWED, *nodes)


STRANGE = ordered(BEFORE, 77, 1, 2, 2, 3, 4, 9, ROOT)

ORDERS: Table = {
    # Two leaves with the same policy key are reported; nodes above one another may share one.
    "REC-4": [
        BEFORE,
        leaves(),
        leaves(CPU),
        state_of(
            WINDOWED, node(1, ROOT, [1], full=on(None, [1])), node(7, 1, [7], full=on(None, [7]))
        ),
        state_of(
            WINDOWED,
            node(1, ROOT, [1], full=on([1]), last_access=5),
            node(2, 1, [2], full=on([2]), last_access=5),
        ),
        ALONE,
    ],
    **{
        (
            f"REC-4: node 2 ... and node 1 (tokens 0..1) are leaves on {medium} ...key (0, 30)",
            "...",
        ): leaves(medium, 30)
        for medium in (GPU, CPU)
    },
    # An order that lacks a node, or lists one too many, is reported.
    **{
        (f"REC-4: {words} in the order of swa on GPU...", f"{words}...on CPU_PINNED..."): ordered(
            BEFORE, *order
        )
        for order, words in (
            (PATH, "node 9 (tokens 0..1) has swa data and is not"),
            ((*PATH, 9, 2), "node 2 (tokens 1..2) is"),
            ((*PATH, 9, 5), "node 5, which is not in the tree, is"),
            ((*PATH, 9, ROOT), "the root (node 0) is"),
        )
    },
    ("REC-4: ...", "...", "...", "...", "..."): [
        evolve(ALONE, profile=CANON),
        evolve(BEFORE, profile=BY_USE),
    ],
    ("REC-4: ...full...", "...", "...", "...", "...", "..."): ordered(BEFORE, 1, 2, component=FULL),
    # No other law raises on an order that lists nodes which are not there.
    "TREE-5, REC-1, REC-2, REC-3": [
        found(prompt(*PATH, order=(1, 88, 9, 2, 3, 3, 4)), 4, STRANGE),
        still(STRANGE, Evict(Counts()), Evicted(Counts())),
    ],
}

test_recency = table(WINDOWS, PATHS, RECURRENCE, ORDERS)
