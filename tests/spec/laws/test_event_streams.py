"""EVENT-1, -2, -4, -6, -9 and -13: streams that hold, and streams that mislead a router."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import Profile, StoreMoment
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.law import Stream
from kvcanon.spec.types import CPU, GPU, Medium, Namespace
from states import node, on, state_of
from states.events import BACK, MUTE, PAGED, THROUGH, UPPER, names_of, paged, removes, stores
from states.judging import Table, stream, table

CLEARED = AllBlocksCleared()
THERE, TIERED = paged(), paged(THROUGH)
UP, DOWN, GONE = stores(THERE, 1), stores(THERE, 2), removes(THERE, 1)
CHILD = f"...{DOWN[0].block_hash.hex()[:8]}...while the page before it..."

ORDER: Table = {
    # A store of a child before its parent's is reported, on each medium by itself.
    "EVENT-1": [
        stream(THERE, *UP, *DOWN),
        stream(THERE, *DOWN, start=UP),
        # Under write_back a child may be on the host without its parent, not on the device.
        stream(paged(BACK), *stores(THERE, 2, CPU)),
    ],
    f"EVENT-1: {CHILD}": [
        stream(THERE, *DOWN, *UP),
        stream(TIERED, *stores(THERE, 2, CPU), start=UP),
        stream(TIERED, *GONE[:1], *DOWN, start=UP),
        stream(TIERED, CLEARED, *DOWN, start=UP),
        stream(paged(BACK), *DOWN),
    ],
    # A second store of a page on one medium is reported, and a remove of one that is not there.
    "EVENT-2": [
        stream(THERE, *UP, *GONE),
        stream(THERE, *GONE, start=UP),
        stream(THERE, CLEARED, *UP, start=UP),
    ],
    ("EVENT-2: ...was stored on GPU, where it was already", "..."): stream(THERE, *UP, start=UP),
    "EVENT-2: ...was removed from CPU_PINNED, where it was not": stream(
        THERE, *removes(THERE, 2, CPU), start=DOWN
    ),
}

COPIED = paged(THROUGH, upper=on((0, 1), (0, 1)))
BACKING = paged(THROUGH, lower=on((2,), (0,), backing=9))
ENQUEUED = Profile(load_back_announced=StoreMoment.ENQUEUED)
LOADING = paged(upper=on((0, 1)), lower=on((2,), loading=9))

RESIDENCY: Table = {
    # Stores that add up to the residency hold, on each medium.
    "EVENT-4": [
        stream(COPIED, *DOWN, start=(*UP, *stores(THERE, 1, CPU))),
        # A page whose backup is in flight is not on the host yet.
        stream(BACKING, *UP, *DOWN),
        # By profile, a page whose load-back is in flight is on the device.
        stream(evolve(LOADING, profile=ENQUEUED), *UP, *DOWN),
        # States do not show the disk.
        stream(THERE, BlockStored(b"elsewhere", None, (1, 2), Medium.DISK), *UP, *DOWN),
    ],
    "EVENT-4: ...about 2 pages on CPU_PINNED...tokens 0..2 (node 1), is resident without a...": (
        stream(COPIED, *UP, *DOWN)
    ),
    "EVENT-4: ...about 1 pages on GPU...nowhere in the tree, is not resident...": stream(
        paged(lower=None), *UP, *DOWN
    ),
    "EVENT-4: ...about 1 ... on CPU_PINNED...": stream(BACKING, *UP, *DOWN, *stores(THERE, 2, CPU)),
    "EVENT-4: ...about 1 pages on GPU...": stream(LOADING, *UP, *DOWN),
}

TENANT = Namespace("tenant")
THEIRS = state_of(PAGED, node(1, 0, UPPER, full=on((0, 1)), page_size=2, namespace=TENANT))
PAIRS = evolve(UP[0], page=((1, 2), (2, 3)))
BIGRAMS = evolve(THERE, config=evolve(PAGED, bigram=True))

CONTENT: Table = {
    # Hashes follow the parent hash, or the seed of the namespace (sgl#24568).
    "EVENT-6": [stream(THEIRS, *stores(THEIRS, 1))],
    "EVENT-6: ...after the seed of Namespace(extra_key='tenant'...": stream(
        THERE, evolve(UP[0], namespace=TENANT)
    ),
    f"EVENT-6: ...was stored as {DOWN[0].block_hash.hex()[:8]}...": stream(
        THERE, evolve(DOWN[0], parent_hash=names_of(THERE, 1)[0])
    ),
    "EVENT-6: ...seed as its parent...": stream(THERE, evolve(UP[0], parent_hash=b"")),
    # A store has one page, of single tokens or of pairs.
    "EVENT-9": [stream(THERE, *UP), stream(BIGRAMS, PAIRS)],
    "EVENT-9: ...with 4 units; a page has 2...": stream(THERE, evolve(UP[0], page=UPPER)),
    "EVENT-9: ...units are pairs...": stream(BIGRAMS, UP[0]),
    "EVENT-9: ...units are tokens": stream(THERE, PAIRS),
}


def beginning(*events: Event) -> Stream:
    """The first events of a cache."""
    return evolve(stream(THERE, *events), begins=True)


JUNK = stream(paged(MUTE), BlockStored(b"x", b"y", (1,), GPU), BlockRemoved(b"z", CPU))

BEGINNING: Table = {
    # A cache that begins without an event, or with a page, is reported.
    "EVENT-13": [
        beginning(CLEARED, *UP),
        stream(THERE, *UP),
        evolve(stream(paged(MUTE)), begins=True),
    ],
    "EVENT-13: the first events of the cache are ...not AllBlocksCleared": [
        beginning(),
        beginning(*UP),
        beginning(*UP, CLEARED),
    ],
    # Stream laws check nothing where events are off.
    "EVENT-1, EVENT-2, EVENT-4, EVENT-6, EVENT-9": [JUNK],
}

test_event_streams = table(ORDER, RESIDENCY, CONTENT, BEGINNING)
