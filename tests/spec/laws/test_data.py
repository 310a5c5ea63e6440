"""DATA: bytes behind slots, and the slots of copies in flight."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.operations import Match
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, SWA, Slot, make_key
from kvcanon.spec.views import Stamp, Step
from states import EVERYTHING, copy, node, on, state_of, with_pool
from states.judging import Table, still, table

CONFIG = evolve(EVERYTHING, window_tokens=1, mamba=False)
EMPTY = state_of(CONFIG)


def read(*stamps: Stamp) -> Step:
    """A match, behind whose slots these bytes were read."""
    return evolve(still(EMPTY, Match(make_key([1, 2], 1))), stamps=stamps)


def copying(*, sources: tuple[Slot, ...] = (0, 1), cancelled: bool = False) -> Snapshot:
    """A backup in flight of node 1: device slots 0 and 1 to host slots 4 and 5."""
    backup = copy(9, Direction.BACKUP, sources, (4, 5), 1, cancelled=cancelled)
    full = on((0, 1)) if cancelled else on((0, 1), (4, 5), backing=9)
    return state_of(CONFIG, node(1, 0, [1, 2], full=full, swa=on((2, 3))), transfers=(backup,))


COPYING, ORPHANED = copying(), copying(cancelled=True)
(BACKUP,) = COPYING.transfers


def cut(*parts: int) -> Snapshot:
    """A node that was cut while its load-back was in flight; it names its parts in this order."""
    return state_of(
        CONFIG,
        node(2, 0, [1], full=on((0,), (4,), loading=9)),
        node(1, 2, [2], full=on((1,), (5,), loading=9)),
        transfers=(copy(9, Direction.LOAD_BACK, (4, 5), (0, 1), *parts),),
    )


DATA: Table = {
    # Another page's bytes are reported with the slot that they are in.
    "DATA-1": [read(), read(Stamp(FULL, 0, 4, b"page", b"page"))],
    "DATA-1: ...page 1 ... is in swa slot 5...nothing...01010101010101010101010101010101...": (
        read(Stamp(FULL, 0, 4, b"a", b"a"), Stamp(SWA, 1, 5, b"\x01" * 20, b""))
    ),
    # A node that was cut shares its source slots with its upper part.
    "DATA-2": [
        COPYING,
        EMPTY,
        cut(2, 1),
        # What a cancelled copy reads may have any owner; what it writes may not.
        with_pool(ORPHANED, FULL, free=(0, 1)),
    ],
    "DATA-2: ...have host slots [5, 4]...": cut(1, 2),
    # sgl#27444
    "DATA-2: transfer 9 writes to full slot 4 on CPU_PINNED, which is in the free...": with_pool(
        COPYING, FULL, CPU, free=(4, 7)
    ),
    "DATA-2: transfer 9 reads from full slot 1 on GPU, which is in the free list...": with_pool(
        COPYING, FULL, GPU, free=(1, 7)
    ),
    "DATA-2: ...reads from full slot 0 on GPU, which a request holds...": with_pool(
        COPYING, FULL, free=(), held=(0,)
    ),
    "DATA-2: transfer 9 writes to full slot 4 on CPU_PINNED...": with_pool(
        ORPHANED, FULL, CPU, free=(4,)
    ),
    # Two copies that write one slot are reported.
    (
        "DATA-2: full slot 4 on CPU_PINNED is the target of 2 copies in flight",
        "full slot 5 on CPU_PINNED is the target of 2 copies in flight",
    ): evolve(COPYING, transfers=(BACKUP, evolve(BACKUP, transfer_id=10))),
    # A copy that reads other slots than those of its nodes, in order, is reported.
    ("DATA-2", ..., "...the nodes that it copies have device slots [0, 1]", ...): [
        copying(sources=(1, 0)),
        copying(sources=(0,)),
        copying(sources=(0, 3)),
    ],
}

test_data = table(DATA)
