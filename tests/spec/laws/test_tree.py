"""TREE-1 to TREE-5: trees that hold, trees with a single fault, and what a cut leaves alone."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import CANON, Profile
from kvcanon.spec.errors import PrefixNotCached
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import FULL, MAMBA, SWA, Counts, Namespace, NodeId, Slots, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, with_node
from states.judging import Table, step, table

TENANT = Namespace(extra_key="tenant")
FAMILY = state_of(
    EVERYTHING,
    node(1, ROOT, [1, 2], full=on([0, 1])),
    node(2, 1, [3], full=on([2])),
    node(3, 1, [4], full=on([3])),
    node(4, ROOT, [1, 2], full=on([4, 5]), namespace=TENANT),
)
"""Node 1 with two children, and another prompt."""
PAGED = state_of(
    evolve(EVERYTHING, page_size=2), node(1, ROOT, [1, 2, 3, 4], full=on([0, 1]), page_size=2)
)


def changed(node_id: NodeId, state: Snapshot = FAMILY, **fields: object) -> Snapshot:
    """A state in which a node is changed, and nothing else adapted to it."""
    return with_node(state, evolve(state.nodes[node_id], **fields))  # type: ignore[arg-type]


def siblings(parent_id: NodeId) -> Snapshot:
    """Two nodes with the same first page below a parent."""
    return state_of(
        EVERYTHING,
        node(1, ROOT, [1], full=on([0])),
        node(2, parent_id, [7, 8], full=on([1, 2])),
        node(3, parent_id, [7, 9], full=on([3, 4])),
    )


SHAPE: Table = {
    "TREE-1, TREE-2, TREE-3, TREE-4": [FAMILY, state_of(EVERYTHING), PAGED],
    "TREE-1: ...nodes without a parent are [0, 2]...": changed(2, parent_id=None),
    "TREE-1: ...the root has pages or data...": changed(ROOT, data={FULL: on([9])}),
    "TREE-1: node 4 ... tree but no path from the root leads to it": changed(ROOT, child_ids=(1,)),
    # A child that its parent forgot, or lists twice, and one whose parent is gone are reported.
    "TREE-2: ...node 2...not among the children of its parent 1...": changed(1, child_ids=(3,)),
    "TREE-2: ...lists child 3 2 times...": changed(1, child_ids=(2, 3, 3)),
    ("TREE-2", ..., "...names parent 9, which is not in the tree...", ...): changed(4, parent_id=9),
    # A node without pages, of other pages than the cache's, or in another namespace is reported.
    "TREE-3: ...node 3 (tokens 2..2) has no page...": changed(3, pages=()),
    "TREE-3: ...has 3 units in page 1 ... page has 2": changed(1, PAGED, pages=((1, 2), (3, 4, 5))),
    "TREE-3: ...node 2...its parent node 1...": changed(2, namespace=TENANT),
    # Two siblings of one namespace with the same first page are reported.
    "TREE-4: ...node 3...node 2...begin with the same page (7,)": [siblings(ROOT), siblings(1)],
}

# Cuts.

KEY = make_key([1, 2], 1)
"""What every step below is about; `LEAF` hangs off its path."""
WHOLE = node(
    1,
    ROOT,
    [1, 2, 3, 4],
    full=on(range(4), range(4), lock_refs=2),
    swa=on(range(4)),
    mamba=on([0]),
    hit_count=3,
    last_access=5,
)
TAIL = evolve(
    having(WHOLE, full=on([2, 3], [2, 3], lock_refs=2), swa=on([2, 3])),
    parent_id=9,
    pages=WHOLE.pages[2:],
)
"""What is left of node 1 below the cut."""
UPPER = node(9, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=3), swa=on([0, 1]), last_access=7)
LEAF = node(2, ROOT, [7], full=on([8], [8]), swa=on([8], [8]), mamba=on([2], [2]), last_access=6)
MATCH, LOCK, LOAD_BACK = op.Match(KEY), op.Lock(KEY), op.LoadBack(KEY)
INSERT, INSERT_HOST = op.Insert(KEY, 2, Slots()), op.InsertHost(KEY, 2, op.HostPayload())


def cuts(
    asked: op.Operation, *off_path: NodeState, leaf: NodeState = LEAF, write: str = ""
) -> Step:
    """An operation that cuts node 1, after which these nodes are left."""
    config = evolve(EVERYTHING, write_policy=write or "write_through")
    return step(state_of(config, WHOLE, leaf), asked, state_of(config, UPPER, *off_path))


COUNTING = Profile(hits_counted_at_match=True)


def counts(asked: op.Operation, before: Profile = CANON) -> Step:
    """A call that counts a hit on a whole node that it uses in part."""
    hit = state_of(EVERYTHING, evolve(WHOLE, hit_count=4), LEAF, profile=COUNTING)
    return step(state_of(EVERYTHING, WHOLE, LEAF, profile=before), asked, hit)


def joins(upper_hits: int) -> Step:
    """A lock of another prompt that joins a node with its only child, which came first."""
    low = {FULL: on([2, 3]), SWA: on([2, 3]), MAMBA: on([0])}
    high = {FULL: on([0, 1]), SWA: on([0, 1])}
    lower = evolve(TAIL, data=low)
    upper = evolve(lower, node_id=9, parent_id=ROOT, pages=KEY.pages, data=high)
    joined = evolve(WHOLE, data={FULL: on(range(4)), SWA: on(range(4)), MAMBA: on([0])})
    before = state_of(EVERYTHING, lower, evolve(upper, hit_count=upper_hits), LEAF)
    return step(before, op.Lock(make_key([7], 1)), state_of(EVERYTHING, joined, LEAF))


STRANGER = node(5, ROOT, [9], full=on([9]), last_access=1)
THEIRS = evolve(STRANGER, namespace=Namespace(extra_key="a"))
REFUSED = op.Refused(PrefixNotCached(2, 1))
BROKEN = cuts(LOCK, LEAF)

BELOW = {
    "hit_count was 3 and is 0": evolve(TAIL, hit_count=0),
    "lock_refs was (2, 0, 0) and is (0, 0, 0)": having(TAIL, full=on([2, 3], [2, 3])),
    "full slot on GPU was 3 and is 5": having(TAIL, full=on([2, 5], [2, 3], lock_refs=2)),
    "swa slot on GPU was 2 and is None": having(TAIL, swa=on()),
    "mamba slot on GPU was 0 and is None": having(TAIL, mamba=on()),
    "backing was (None, None, None) and is (8, None, None)": having(
        TAIL, full=on([2, 3], [2, 3], lock_refs=2, backing=8)
    ),
}

CUTS: Table = {
    # A cut that leaves all data in place holds.
    "TREE-5": [
        *[cuts(each, TAIL, LEAF) for each in (MATCH, LOCK, INSERT, INSERT_HOST, LOAD_BACK)],
        joins(upper_hits=3),
        # By profile, a match may count a hit on a whole node that it uses in part.
        counts(MATCH, COUNTING),
        # Refused calls and evictions are not checked.
        step(BROKEN.before, LOCK, BROKEN.after, REFUSED),
        step(BROKEN.before, op.Evict(Counts(full=2)), BROKEN.after),
    ],
    "TREE-5: ...of node 9 is not on the key's path, but its hit_count was 2 and is 3": joins(2),
    ("TREE-5: ...its hit_count was 3 and is 4", ...): [counts(LOCK, COUNTING), counts(MATCH)],
    # A cut that changes what is below it is reported, once for each field.
    **{
        (f"TREE-5: {type(asked).__name__}...tokens...of node 1 ...{words}", ...): cuts(
            asked, tail, LEAF
        )
        for asked in (MATCH, LOCK, INSERT)
        for words, tail in BELOW.items()
    },
    ("TREE-5: ...", "..."): cuts(
        MATCH, having(evolve(TAIL, hit_count=0), full=on([2, 3], [2, 3])), LEAF
    ),
    # A new page that is not of the key is reported.
    "TREE-5: ...page 0 ... of node 5 is not ... appeared": cuts(MATCH, TAIL, LEAF, STRANGER),
    f"TREE-5: ...but appeared in {THEIRS.namespace}; the key is in {KEY.namespace}": cuts(
        MATCH, TAIL, LEAF, THEIRS
    ),
}

HOST_ONLY = having(LEAF, on(None, [8]), on(None, [8]), on(None, [2]))
DEVICE_ONLY = having(LEAF, on([8]), on([8]), on([2]))
MOVED_ON_HOST = having(LEAF, full=on([8], [9]), swa=on(None, [8]))
MOVED_HOST_ONLY = having(HOST_ONLY, full=on(None, [9]))
HOST_TOMBSTONE = having(HOST_ONLY, swa=on())
LOCKED = having(HOST_ONLY, full=on(None, [8], lock_refs=1))
IN_FLIGHT = having(LEAF, full=on([8], [8], loading=4))
WINDOW_HELD = having(LEAF, on([8], lock_refs=1), on([8], lock_refs=1), on())
WINDOW_FREE = having(WINDOW_HELD, swa=on([8]))
BACK = "write_back"


def becomes(
    asked: op.Operation, leaf: NodeState, other: NodeState | None = None, write: str = ""
) -> Step:
    """An operation after which a leaf off its path is another, or gone."""
    left = () if other is None else (other,)
    return cuts(asked, TAIL, *left, leaf=leaf, write=write)


ROOM: Table = {
    # An operation may evict only from media on which it needs slots.
    "TREE-5": [
        # Room on the host, for backups and for fetched pages.
        becomes(INSERT, HOST_ONLY),
        becomes(INSERT, HOST_ONLY, HOST_TOMBSTONE),
        becomes(INSERT_HOST, HOST_ONLY),
        becomes(INSERT_HOST, LEAF, DEVICE_ONLY, BACK),
        # Room on the device, for what is loaded.
        becomes(LOAD_BACK, LEAF, HOST_ONLY),
        becomes(LOAD_BACK, DEVICE_ONLY),
        becomes(LOAD_BACK, DEVICE_ONLY, HOST_ONLY, BACK),
        becomes(LOAD_BACK, HOST_ONLY, None, BACK),
        becomes(LOAD_BACK, LEAF, MOVED_ON_HOST, BACK),
        becomes(LOAD_BACK, WINDOW_FREE, having(WINDOW_FREE, swa=on())),
    ],
    ("TREE-5: ...node 2...", ...): [
        becomes(INSERT, LOCKED),
        becomes(INSERT, DEVICE_ONLY),
        becomes(INSERT, LEAF, HOST_ONLY),
        becomes(INSERT, LEAF, DEVICE_ONLY),
        becomes(INSERT, HOST_ONLY, None, BACK),
        becomes(INSERT_HOST, LEAF, DEVICE_ONLY),
        becomes(INSERT_HOST, DEVICE_ONLY, LEAF, BACK),
        becomes(LOAD_BACK, LEAF),
        becomes(LOAD_BACK, HOST_ONLY),
        becomes(LOAD_BACK, DEVICE_ONLY, HOST_ONLY),
        becomes(LOAD_BACK, IN_FLIGHT, HOST_ONLY),
        becomes(LOAD_BACK, HOST_ONLY, MOVED_HOST_ONLY, BACK),
        becomes(LOAD_BACK, LEAF, MOVED_ON_HOST),
        becomes(LOAD_BACK, LOCKED, None, BACK),
        # No room is needed.
        becomes(MATCH, HOST_ONLY),
        becomes(LOCK, HOST_ONLY, HOST_TOMBSTONE),
    ],
    "TREE-5: ...its swa slot on GPU was 8 and is None": becomes(
        LOAD_BACK, WINDOW_HELD, having(WINDOW_HELD, swa=on(lock_refs=1))
    ),
}

test_tree = table(SHAPE, CUTS, ROOM)
