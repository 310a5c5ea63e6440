"""EVICT-1 to EVICT-7: how much an eviction frees, what leaves with a victim, and what stays."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.laws.comparison import losses, total
from kvcanon.spec.operations import Evict, Evicted, EvictHost, Poll, Refused
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Medium
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, without
from states.judging import Table, step, table

THROUGH, BACK = EVERYTHING, evolve(EVERYTHING, write_policy="write_back")

STEM = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]), swa=on([0, 1], [0, 1]))
BACKED = node(2, 1, [3, 4], full=on([2, 3], [2, 3]), swa=on([2, 3]), mamba=on([0]))
"""A leaf whose full data is on the host, too."""
BARE = node(3, 1, [5], full=on([4]), swa=on([4]), mamba=on([1]))
"""A leaf that is on the device only."""
TOMBSTONE = node(4, ROOT, [6, 7, 8], full=on([5, 6, 7]), swa=on())
"""A leaf without window data, on the device only."""
DEMOTED = having(BACKED, full=on(None, [2, 3]), swa=on(), mamba=on())
WINDOWLESS = without(STEM, GPU, SWA)

ALL = (STEM, BACKED, BARE, TOMBSTONE)
TREE = state_of(THROUGH, *ALL)


def through(*nodes: NodeState) -> Snapshot:
    """These nodes under write_through."""
    return state_of(THROUGH, *nodes)


def back(*nodes: NodeState) -> Snapshot:
    """These nodes under write_back."""
    return state_of(BACK, *nodes)


def evicted(asked: Counts, *left: NodeState, of: Snapshot = TREE, on: Medium = GPU) -> Step:
    """An eviction that left these nodes, and reports what it freed."""
    after = state_of(of.config, *left)
    operation = Evict(asked) if on is GPU else EvictHost(asked)
    freed = total(losses(step(of, operation, after), on))
    return step(of, operation, after, Evicted(freed))


LAWFUL: Table = {
    "EVICT-1, EVICT-2, EVICT-3, EVICT-4, EVICT-5, EVICT-6, EVICT-7": [
        evicted(Counts(), *ALL),
        evicted(Counts(full=2), STEM, DEMOTED, BARE, TOMBSTONE),
        evicted(Counts(full=1), STEM, BACKED, TOMBSTONE),
        evicted(Counts(full=6), STEM, DEMOTED),
        evicted(Counts(swa=1), WINDOWLESS, BACKED, BARE, TOMBSTONE),
        evicted(Counts(swa=1), STEM, BACKED, TOMBSTONE),
        evicted(Counts(mamba=2), STEM, DEMOTED, TOMBSTONE),
        evicted(Counts(full=1, swa=1, mamba=1), STEM, BACKED, TOMBSTONE),
        evicted(Counts(full=99), without(STEM, GPU, FULL, SWA), DEMOTED),
        # Refused evictions and other calls are not checked.
        step(TREE, Poll(), through(STEM)),
        step(TREE, Evict(Counts(-1)), through(STEM), Refused(BadArgument("full", "is wrong"))),
    ],
}

LOCKED = node(4, ROOT, [6], full=on([5], lock_refs=1), swa=on([5], lock_refs=1))
RELEASED = having(LOCKED, swa=on([5]))
ONLY = node(2, 1, [3, 4], full=on(None, [2, 3]), swa=on(None, [2, 3]))
HELD = (
    STEM,
    having(ONLY, full=on(None, [2, 3], lock_refs=1)),
    node(5, 2, [9], full=on(None, [9], lock_refs=1)),
)
INNER = having(STEM, mamba=on([2]))
ONE, TWO = (node(i, ROOT, [i], full=on(None, [i])) for i in (1, 2))

COUNT: Table = {
    # An eviction that frees too few slots with victims left is reported. Locked data is no victim.
    "EVICT-1": [
        evicted(Counts(full=1, swa=1), LOCKED, of=through(LOCKED)),
        evicted(Counts(full=1), RELEASED, of=through(RELEASED)),
        evicted(Counts(full=1), *HELD, of=through(*HELD), on=CPU),
        # A host copy of what is on the device is a duplicate, which only write_back gives up.
        evicted(Counts(full=1), STEM, of=through(STEM), on=CPU),
        # A node that became a duplicate only when its state left was no victim.
        evicted(
            Counts(full=1, mamba=1),
            having(STEM, mamba=on()),
            of=back(having(STEM, mamba=on(None, [3]))),
            on=CPU,
        ),
    ],
    (
        "EVICT-1: 4 full slots were asked for on GPU and 2 freed, but node 3 (tokens 2..3) could "
        "still be evicted"
    ): evicted(Counts(full=4), STEM, DEMOTED, BARE, TOMBSTONE),
    "EVICT-1: 2 swa slots were asked for on GPU and 1 freed, but node 1 (tokens 0..2)...": evicted(
        Counts(swa=2), STEM, BACKED, TOMBSTONE
    ),
    "EVICT-1: 1 mamba ... on GPU and 0 freed, but node 2...": evicted(Counts(mamba=1), *ALL),
    "EVICT-1: 1 swa slots ... on GPU and 0 freed, but node 4...": evicted(
        Counts(swa=1), RELEASED, of=through(RELEASED)
    ),
    "EVICT-1: 1 full slots were asked for on CPU_PINNED and 0 freed, but node 2...": evicted(
        Counts(full=1), STEM, ONLY, of=through(STEM, ONLY), on=CPU
    ),
    "EVICT-1: 1 swa ... CPU_PINNED ... but node 2 (tokens 2..4) could still be evicted": evicted(
        Counts(swa=1), *HELD, of=through(*HELD), on=CPU
    ),
    "EVICT-1: 1 full ... CPU_PINNED ... but node 1 (tokens 0..2) could still be evicted": evicted(
        Counts(full=1), STEM, of=back(STEM), on=CPU
    ),
    # An eviction that goes on once enough slots are free is reported, in whatever order.
    "EVICT-2": [
        evicted(Counts(swa=1, mamba=1), WINDOWLESS, DEMOTED, BARE, TOMBSTONE),
        # Mamba states inside the tree leave one by one.
        evicted(Counts(full=3, mamba=3), STEM, DEMOTED, of=through(INNER, BACKED, BARE)),
        evicted(Counts(full=2), of=through(ONE, TWO), on=CPU),
    ],
    "EVICT-2: nothing asked for on GPU and 1 full and 1 swa and 1 mamba...": evicted(
        Counts(), STEM, BACKED, TOMBSTONE
    ),
    "EVICT-2: 1 full asked for on GPU and 3 full and 3 swa...": evicted(
        Counts(full=1), STEM, DEMOTED, TOMBSTONE
    ),
    "EVICT-2: 3 full asked for on GPU and 6 full and 3 swa and 2 mamba...": evicted(
        Counts(full=3), STEM, DEMOTED
    ),
    "EVICT-2: 1 swa asked for on GPU and 3 full slots evicted; without any one victim...": evicted(
        Counts(swa=1), STEM, BACKED, BARE
    ),
    (
        "EVICT-2: node 4 (tokens 0..3) lost full slots on GPU, of which 0 were asked for and at "
        "least 3..."
    ): evicted(Counts(swa=1), STEM, BACKED),
    "EVICT-2: 1 full and 1 swa asked for on GPU and 3 full and 5 swa and 2 mamba slots...": evicted(
        Counts(full=1, swa=1), WINDOWLESS, DEMOTED, TOMBSTONE
    ),
    "EVICT-2: node 4 (tokens 0..3) lost full slots on GPU, of which 0 were asked for...": evicted(
        Counts(swa=1, mamba=2), WINDOWLESS, BACKED
    ),
    "EVICT-2: 1 swa asked for on GPU and 2 full and 4 swa and 1 mamba slots evicted...": evicted(
        Counts(swa=1), WINDOWLESS, DEMOTED, BARE, TOMBSTONE
    ),
    "EVICT-2: node 1 (tokens 0..2) lost mamba slots on GPU, of which 2 were asked for...": evicted(
        Counts(full=3, mamba=2), STEM, DEMOTED, of=through(INNER, BACKED, BARE)
    ),
    "EVICT-2: 1 full asked for on CPU_PINNED and 2 full slots evicted...": evicted(
        Counts(full=1), of=through(ONE, TWO), on=CPU
    ),
}

ALONE, BOTH = without(INNER, GPU, MAMBA), without(INNER, GPU, MAMBA, SWA)
INSIDE = through(INNER, BACKED)
HOST = node(1, ROOT, [1], full=on(None, [0]), swa=on(None, [0]), mamba=on(None, [0]))
HOST_LEAF = node(2, 1, [2], full=on(None, [1]), swa=on(None, [1]))
NOT_ASKED = "lost its swa data on GPU and kept its full data; none was asked for"

PARTS: Table = {
    # Data that stays without what it needs, or leaves without need, is reported.
    "EVICT-3": [
        # A mamba state inside the tree leaves alone, and not for window slots.
        evicted(Counts(mamba=1), ALONE, BACKED, of=INSIDE),
        evicted(Counts(swa=1), BOTH, BACKED, of=INSIDE),
        # On the host a mamba state may stay without its window, but a host leaf leaves whole.
        evicted(
            Counts(swa=1), without(HOST, CPU, SWA), HOST_LEAF, of=through(HOST, HOST_LEAF), on=CPU
        ),
    ],
    (
        "EVICT-3",
        ...,
        "page 2 in node 2 (tokens 2..4) lost its full data on GPU, and still has swa slot 2",
        ...,
    ): evicted(Counts(full=2), STEM, without(BACKED, GPU, FULL), BARE, TOMBSTONE),
    (
        "EVICT-3",
        ...,
        "page 3 in node 2 (tokens 2..4) lost its full data on GPU, and still has mamba slot 0",
        ...,
    ): evicted(Counts(full=2), STEM, without(BACKED, GPU, FULL, SWA), BARE, TOMBSTONE),
    (
        "EVICT-3",
        ...,
        "page 3 in node 2 (tokens 2..4) lost its swa data on GPU, and still has mamba slot 0",
        ...,
    ): evicted(Counts(swa=2), STEM, without(BACKED, GPU, SWA), BARE, TOMBSTONE),
    (
        "EVICT-3: page 2 in node 2 (tokens 2..4) lost only swa data on GPU, though its node was...",
        ...,
    ): evicted(Counts(swa=2), STEM, without(BACKED, GPU, SWA, MAMBA), BARE, TOMBSTONE),
    (f"EVICT-3: page 0 in node 1 (tokens 0..2) {NOT_ASKED}", ...): evicted(
        Counts(full=1), WINDOWLESS, BACKED, TOMBSTONE
    ),
    (f"EVICT-3: ...{NOT_ASKED}", "..."): evicted(Counts(mamba=1), BOTH, BACKED, of=INSIDE),
    "EVICT-3: page 1 in node 1 ... state...": evicted(Counts(swa=1), ALONE, BACKED, of=INSIDE),
    "EVICT-3: ...lost only swa data on CPU_PINNED, though its node was a leaf there...": evicted(
        Counts(swa=1), HOST, without(HOST_LEAF, CPU, SWA), of=through(HOST, HOST_LEAF), on=CPU
    ),
}

LEAF, BELOW = node(3, ROOT, [5], full=on([4])), node(4, 3, [6], full=on(None, [4]))

NODES: Table = {
    # A node that moved up because its parent was removed is reported.
    (
        "EVICT-4",
        ...,
        "page 0 in node 3 (tokens 0..1) was not in the tree before; the node above it was removed",
        ...,
    ): evicted(Counts(full=2), evolve(BARE, parent_id=ROOT), TOMBSTONE),
    # An eviction that removes a page which is also on the other medium is reported.
    ("EVICT-4: an eviction from GPU removed page 2 ... had full slot 2 on CPU_PINNED", "..."): (
        evicted(Counts(full=2), STEM, BARE, TOMBSTONE)
    ),
    ("EVICT-4: an eviction from CPU_PINNED removed...though it had full slot 2 on GPU", "..."): (
        evicted(Counts(full=2), STEM, BARE, TOMBSTONE, on=CPU)
    ),
    # Under write_back a leaf that cannot be copied may take the pages below it along.
    "EVICT-4": [evicted(Counts(full=1), of=back(LEAF, BELOW))],
    "EVICT-4: ...removed page 1 in node 4 (tokens 1..2) from the tree...": evicted(
        Counts(full=1), of=through(LEAF, BELOW)
    ),
}

COPIED = node(2, 1, [3], full=on([3], [3]), swa=on([3], [3]))
THERE = without(COPIED, GPU, FULL, SWA)
LONE, FILLED = node(2, ROOT, [3], full=on([3], [3])), node(3, ROOT, [5], full=on(None, [3]))


def both_policies(*left: NodeState) -> list[Step]:
    """An eviction of a leaf with host copies, under either policy."""
    return [evicted(Counts(full=1), *left, of=each(STEM, COPIED)) for each in (through, back)]


COPIES: Table = {
    # A page with a host copy that loses it, moves there or leaves the tree is reported.
    "EVICT-5": [
        *both_policies(STEM, THERE),
        # Under write_back a host copy may make way for that of another page.
        evicted(Counts(full=2), FILLED, of=back(LONE, LEAF)),
    ],
    "EVICT-5: ...its full slot on CPU_PINNED was 3 and is 5": both_policies(
        STEM, having(THERE, full=on(None, [5]))
    ),
    "EVICT-5: ...its swa slot on CPU_PINNED was 3 and is none": both_policies(
        STEM, having(THERE, swa=on())
    ),
    ("EVICT-5: page 2 in node 2 ... its full ... is none", "..."): both_policies(STEM),
    # What hangs on nothing that had to be copied must keep its copy.
    "EVICT-5: page 0 in node 2 ...": evicted(Counts(full=1), LEAF, of=back(LONE, LEAF)),
}


def kept(other: NodeState, *others: NodeState) -> Step:
    """An eviction of the bare leaf, which leaves these nodes beside it."""
    return evicted(Counts(full=1), other, *(others or (BACKED, TOMBSTONE)))


LOCKED_STEM = having(STEM, swa=on([0, 1], [0, 1], lock_refs=1))
HOLDING = state_of(THROUGH, *ALL, held={FULL: {9}})
VICTIM = having(STEM, full=on([0, 1], lock_refs=1), swa=on([0, 1]), mamba=on([2]))
VICTIM_COPIED = having(VICTIM, full=on([0, 1], [4, 5], lock_refs=1), mamba=on(None, [2]))
OTHER = node(4, ROOT, [6], full=on([5]), swa=on([5]))
ON_HOST = node(5, ROOT, [9], full=on(None, [4]))
PAGE = "page ... in node 1 (tokens 0..2)"

OTHERS: Table = {
    # An eviction that changes nodes other than victims is reported.
    "EVICT-6": [
        # Under write_back victims may be copied to the host, and no other nodes.
        evicted(Counts(mamba=1), VICTIM_COPIED, OTHER, of=back(VICTIM, OTHER)),
    ],
    f"EVICT-6: {PAGE}...its full slot on GPU was 1 and is 9": kept(
        having(STEM, full=on([0, 9], [0, 1]))
    ),
    f"EVICT-6: {PAGE}...its full slot on CPU_PINNED was 1 and is 9": kept(
        having(STEM, full=on([0, 1], [0, 9]))
    ),
    (f"EVICT-6: {PAGE}...its swa slot on CPU_PINNED was 0 and is none", "..."): kept(
        having(STEM, swa=on([0, 1]))
    ),
    f"EVICT-6: {PAGE}...its mamba slot on CPU_PINNED was none and is 3": kept(
        having(STEM, mamba=on(None, [3]))
    ),
    (f"EVICT-6: {PAGE}...full lock_refs was 0 and is 1", "..."): kept(
        having(STEM, full=on([0, 1], [0, 1], lock_refs=1))
    ),
    (f"EVICT-6: {PAGE}...hit_count was 0 and is 4", "..."): kept(evolve(STEM, hit_count=4)),
    # So is one that takes locked data, or slots of a request.
    (
        "EVICT-6: page 0 in node 1 (tokens 0..2), with 1 swa lock_refs: its swa slot on GPU was...",
        ...,
    ): evicted(
        Counts(swa=2), without(LOCKED_STEM, GPU, SWA), BACKED, of=through(LOCKED_STEM, BACKED)
    ),
    "EVICT-6: full slots [9] on GPU ... or only after the call": evolve(kept(STEM), before=HOLDING),
    (
        "EVICT-6: page 0 in node 4 (tokens 0..1), with 0 full lock_refs: its full slot on CPU..."
    ): evicted(
        Counts(mamba=1),
        VICTIM_COPIED,
        having(OTHER, full=on([5], [6])),
        of=back(VICTIM, OTHER),
    ),
    # Under write_back a host leaf that leaves before a duplicate is reported.
    "EVICT-7": [
        evicted(Counts(full=3), without(STEM, CPU, FULL, SWA), of=back(STEM, ON_HOST), on=CPU),
        evicted(
            Counts(full=1),
            having(STEM, full=on([0, 1], [0, 1], lock_refs=1)),
            of=back(having(STEM, full=on([0, 1], [0, 1], lock_refs=1)), ON_HOST),
            on=CPU,
        ),
        evicted(Counts(full=1), STEM, of=through(STEM, ON_HOST), on=CPU),
    ],
    (
        "EVICT-7: node 5 (tokens 0..1), on the host only, was evicted from there while the host "
        "copy of node 1 (tokens 0..2), which the device has, stayed"
    ): evicted(Counts(full=1), STEM, of=back(STEM, ON_HOST), on=CPU),
}

test_evict = table(LAWFUL, COUNT, PARTS, NODES, COPIES, OTHERS)
