"""ALLOC-1 to ALLOC-6 and ALLOC-8 to ALLOC-11: owners of slots, counts, and the mapping."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from attrs import evolve

from kvcanon.spec import operations as op
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.snapshot import NodeState, Snapshot, TransferState, Usage
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, Slot, Slots, make_key
from kvcanon.spec.views import Step
from states import EVERYTHING, ROOT, having, node, on, state_of, with_pool
from states.judging import Table, step, still, table

SLOTS = Counts(full=8, swa=8, mamba=2)
CONFIG = evolve(EVERYTHING, device_slots=SLOTS, host_slots=SLOTS)
KEY = make_key([1, 2, 3, 4], 1)
TOP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1], lock_refs=1), swa=on(None, [4, 5]))
"""A tombstone, locked; its window data is on the host."""
TIP = node(2, 1, [3, 4], full=on([2, 3]), swa=on([5, 6]), mamba=on([0]))


def state(
    *nodes: NodeState,
    held: Mapping[Component, Collection[Slot]] | None = None,
    mapping: Mapping[Slot, Slot] | None = None,
) -> Snapshot:
    """These nodes, or both; requests hold slots 6 and 7, which are a full and window pair."""
    made = state_of(CONFIG, *(nodes or (TOP, TIP)), held=held or {FULL: {6, 7}, SWA: {7}})
    pair = {} if held else {7: 7}
    return evolve(made, swa_of_full=mapping or {**made.swa_of_full, **pair})


STATE = state()
GIVEN_BACK = {FULL: {6}, SWA: set[Slot]()}
"""What requests hold once the pair is given back."""
CANCELLED = TransferState(
    9, Direction.LOAD_BACK, (), {FULL: (0,), SWA: (4,)}, {FULL: (4,), SWA: (2,)}, cancelled=True
)
ORPHANED = state_of(CONFIG, TOP, TIP, transfers=(CANCELLED,))
"""A state in which full slot 4 and swa slot 2 belong to a cancelled copy."""
PAIRED = evolve(ORPHANED, swa_of_full={**ORPHANED.swa_of_full, 4: 2})
WITHOUT_WINDOW = state_of(CacheConfig(), node(1, ROOT, [1], full=on([0])))

OWNERS: Table = {
    # A slot with two owners, or out of its pool's range, is reported.
    "ALLOC-1": [STATE, ORPHANED],
    "ALLOC-1: slot 0 of full on GPU ... and node 1 ...": with_pool(STATE, FULL, free=(0, 4, 5)),
    "ALLOC-1: slot 4 of swa ... the free list": with_pool(STATE, SWA, free=(0, 1, 2, 3, 4, 4)),
    "ALLOC-1: slot 0 of mamba ... a request and node 2 ...": with_pool(STATE, MAMBA, held={0}),
    "ALLOC-1: slot 9 of full on CPU_PINNED ... the free list, and there is no such slot": with_pool(
        STATE, FULL, CPU, free=(2, 3, 4, 5, 6, 7, 9)
    ),
    "ALLOC-1: slot 1 of full ... node 1 (tokens 0..2) and node 2 (tokens 2..4)": state(
        TOP, having(TIP, full=on([1, 3]))
    ),
    # A count of slots that differs from theirs is reported.
    "ALLOC-2": [STATE, ORPHANED],
    (
        "ALLOC-2: 4 full slots are reported as evictable, and 2 are",
        "0 full slots are reported as protected...",
    ): evolve(STATE, usage={**STATE.usage, FULL: Usage(4, 0)}),
    "ALLOC-2: 1 ...protected, and 2 are": evolve(STATE, usage={**STATE.usage, FULL: Usage(2, 1)}),
    # A missing or wrong entry of the mapping is reported.
    "ALLOC-4": [STATE, PAIRED, evolve(WITHOUT_WINDOW, swa_of_full={0: 0})],
    (
        "ALLOC-4: page 2 in node 2 (tokens 2..4) has full slot 2 and swa slot 5; "
        "the mapping leads to none"
    ): state(mapping={3: 6}),
    "ALLOC-4: ...full slot 2 and swa slot 5; the mapping leads to 6": state(mapping={2: 6, 3: 6}),
    # So is one of a tombstone, or to another owner's window slot. A copy that was cancelled may
    # have lost its pairing already.
    "ALLOC-9": [STATE, PAIRED, ORPHANED],
    (
        "ALLOC-9: the mapping leads from full slot 0 to swa slot 0; these belong to "
        "node 1 (tokens 0..2) and the free list..."
    ): state(mapping={2: 5, 3: 6, 0: 0}),
    "ALLOC-9: ... the free list and the free list...": state(mapping={2: 5, 3: 6, 4: 1}),
    "ALLOC-9: ... a request and node 2 (tokens 2..4)...": state(mapping={2: 5, 3: 6, 7: 6}),
}


def evicted(told: Counts, operation: op.Operation | None = None) -> Step:
    """An eviction of `TIP` that reports this."""
    return step(STATE, operation or op.Evict(Counts(full=1)), state(TOP), op.Evicted(told))


def freed(after: Snapshot, slots: Slots = Slots((7,), (7,))) -> Step:
    """A request gives back the pair that it holds, or other slots."""
    return step(STATE, op.Free(slots), after)


def handed_over(after: Snapshot, told: op.Inserted, slots: Slots = Slots((7,), (7,))) -> Step:
    """An insert of one page."""
    return step(STATE, op.Insert(make_key([8], 1), 0, slots), after, told)


def healed(adopted: Counts, profile: Profile) -> Step:
    """An insert that heals a tombstone with new slots, full ones too."""
    before = state(node(1, ROOT, [1], full=on([0]), swa=on()))
    after = state(node(1, ROOT, [1], full=on([7]), swa=on([7])), held=GIVEN_BACK)
    insert = op.Insert(KEY.prefix(1), 0, Slots((7,), (7,)))
    told = op.Inserted(1, adopted=adopted, freed=Counts(full=1))
    return step(before, insert, evolve(after, profile=profile), told)


def loaded(evicted: Counts, loading: Counts) -> Step:
    """A load-back of the window data of `TOP`, which evicts `TIP`."""
    told = op.LoadedBack(op.LoadDecision.ENQUEUED, 9, loading=loading, evicted=evicted)
    here = state(having(TOP, swa=on([0, 1], [4, 5])))
    return step(STATE, op.LoadBack(make_key([1, 2], 1)), here, told)


FREED = state(TOP, TIP, held=GIVEN_BACK)
TAKEN = state(TOP, TIP, node(3, ROOT, [8], full=on([7]), swa=on([7])), held=GIVEN_BACK)
FOREIGN = with_pool(state(TOP, TIP, node(3, ROOT, [8], full=on([5]))), FULL, free=(4,))
ADOPTED = op.Inserted(0, adopted=Counts(1, 1), freed=Counts())
DROPPED = op.Inserted(1, adopted=Counts(), freed=Counts(1, 1))
REPLACING = Profile(heals_in_place=False)

LOSSES: Table = {
    # A slot that loses its owner is reported, and a free one that a cancelled copy still writes to.
    # One that nobody had before is not.
    "ALLOC-8": [
        step(STATE, op.Poll(), ORPHANED),
        still(with_pool(STATE, FULL, free=(4,)), op.Poll()),
    ],
    "ALLOC-8: slot 5 of full on GPU has no owner": step(
        STATE, op.Poll(), with_pool(STATE, FULL, free=(4,))
    ),
    ("ALLOC-8: slot 4 of full on GPU has no owner", ...): step(
        ORPHANED, op.Poll(), evolve(ORPHANED, transfers=())
    ),
    ("ALLOC-8: slot 4 of full ... a cancelled copy", ...): step(
        STATE, op.Poll(), evolve(STATE, transfers=(CANCELLED,))
    ),
}

COUNTS: Table = {
    # An eviction that reports more or fewer slots, or on the wrong medium, is reported.
    "ALLOC-3": [
        evicted(Counts(2, 2, 1)),
        step(
            STATE,
            op.EvictHost(Counts(swa=1)),
            state(having(TOP, swa=on()), TIP),
            op.Evicted(Counts(swa=2)),
        ),
        freed(FREED),
        handed_over(TAKEN, ADOPTED),
        handed_over(FREED, DROPPED),
        healed(Counts(swa=1), REPLACING),
        loaded(Counts(2, 2, 1), Counts(swa=2)),
    ],
    "ALLOC-3: 1 full slots are said to be freed on GPU, and 2...": evicted(Counts(1, 2, 1)),
    "ALLOC-3: 0 swa slots are said to be freed on GPU, and 2...": evicted(Counts(2, 0, 1)),
    "ALLOC-3: 2 full slots are said to be freed on CPU_PINNED, and 0 came free": evicted(
        Counts(full=2), op.EvictHost(Counts(full=2))
    ),
    # Slots that are given back and stay held, do not become free, or were not held are reported.
    "ALLOC-3: slot 7 of full ... and is still held": freed(with_pool(FREED, FULL, held={6, 7})),
    (
        "ALLOC-3: 1 swa slots are said to be freed on GPU, and 0...",
        "slot 7 of swa was given back and is not free",
    ): freed(with_pool(FREED, SWA, free=(0, 1, 2, 3, 4))),
    ("ALLOC-3: slot 5 of full was given back, and no request held it", ...): freed(
        with_pool(state(TOP, TIP, held={FULL: {6}, SWA: {7}}), FULL, free=(4, 5, 5, 7)),
        Slots(full=(5, 7)),
    ),
    # Wrong counts of adopted or freed slots of an insert are reported, and slots of nobody.
    (
        "ALLOC-3: 1 full slots are said to be freed on GPU, and 0 came free",
        "1 swa slots are said to be freed on GPU, and 0 came free",
        "0 full slots are reported as adopted; the tree has [7]",
        "0 swa slots are reported as adopted; the tree has [7]",
    ): handed_over(TAKEN, DROPPED),
    ("ALLOC-3: 1 swa slots were handed over, and 0 adopted + 0 freed is 0", ...): handed_over(
        TAKEN, evolve(ADOPTED, adopted=Counts(1))
    ),
    (
        "ALLOC-3: 1 full slots are reported as adopted; the tree has []",
        "slot 7 of full was handed over and is neither in the tree nor free",
        ...,
    ): handed_over(STATE, ADOPTED),
    "ALLOC-3: slot 5 of full was handed over, and no request held it": handed_over(
        FOREIGN, evolve(ADOPTED, adopted=Counts(1)), Slots((5,))
    ),
    # By profile, and only then, healing takes new slots and counts them as freed.
    "ALLOC-3: 0 full slots are reported as adopted; the tree has [7]": healed(Counts(swa=1), CANON),
    "ALLOC-3: 1 full ... handed over, and 1 adopted + 1 freed is 2": healed(Counts(1, 1), CANON),
    ("ALLOC-3: 1 full slots ..., and 1 adopted + 1 ... is 2", ...): healed(Counts(1, 1), REPLACING),
    # A load-back with wrong counts of evicted or loading slots is reported.
    ("ALLOC-3: 1 ... evicted for the load, ... 2", ...): loaded(Counts(1, 2, 1), Counts(swa=2)),
    (
        "ALLOC-3: swa on GPU had 5 free slots and has 5, with 2 reported as evicted and 1 loading"
    ): loaded(Counts(2, 2, 1), Counts(swa=1)),
}

GIVEN = Slots(full=(4, 5), swa=(1,))
ALLOCATED = state(held={FULL: {4, 5, 6, 7}, SWA: {1, 7}}, mapping={2: 5, 3: 6, 7: 7, 5: 1})


def given(after: Snapshot = ALLOCATED, slots: Slots = GIVEN) -> Step:
    """An allocation of two pages, the last of them with window data."""
    return step(STATE, op.Allocate(Counts(full=2, swa=1)), after, slots)


def refused(after: Snapshot) -> Step:
    """A lock that is refused, and leads to this state."""
    return step(STATE, op.Lock(KEY), after, op.Refused(OutOfSlots("full on GPU", 9, 2)))


FORGOTTEN = evolve(STATE, swa_of_full={})

SERVED: Table = {
    # An allocation of other slots than it takes from the free list is reported.
    "ALLOC-5": [given(), still(STATE, op.Allocate(Counts()), Slots())],
    ("ALLOC-5: 2 full slots were asked for, and 1 given", ...): given(slots=Slots((4,), (1,))),
    ("ALLOC-5: full slots [5] were given twice", ...): given(slots=Slots((5, 5), (1,))),
    ("ALLOC-5: slot 0 of swa was given out and is not held", ...): given(slots=Slots((4, 5), (0,))),
    ("ALLOC-5", ..., "slot 7 of full ... had not been free", ...): given(slots=Slots((4, 7), (1,))),
    "ALLOC-5: swa slot 1 goes with full slot 5, and the mapping leads from there to none": given(
        evolve(ALLOCATED, swa_of_full={4: 1})
    ),
    "ALLOC-5: mamba slots [] were given out, but [1] left or entered the free list...": given(
        with_pool(ALLOCATED, MAMBA, free=())
    ),
    "ALLOC-5: ... [4, 5, 6, 7] are held only ...": given(with_pool(ALLOCATED, FULL, held={4, 5})),
    ("ALLOC-5: page 2 in node 2 (tokens 2..4) vanished", ...): given(
        evolve(ALLOCATED, nodes=state(TOP).nodes)
    ),
    # A refused call that changes something is reported.
    "ALLOC-6": [refused(STATE), given()],
    (
        "ALLOC-6: Lock was refused (full on GPU: 9 slots asked...), and 2 nodes are not...",
        ...,
    ): refused(state(TOP)),
    "ALLOC-6: Lock was refused ... and pools is not as it was": refused(
        with_pool(STATE, FULL, free=(5, 4))
    ),
    # A reset or an eviction that parts the slots of a running request is reported.
    "ALLOC-10": [
        still(STATE, op.Reset()),
        freed(with_pool(FORGOTTEN, SWA, held=()), Slots(swa=(7,))),
    ],
    (
        "ALLOC-10: requests hold full slot 7 and swa slot 7, which was its own; "
        "after Reset the mapping leads to none"
    ): step(STATE, op.Reset(), FORGOTTEN),
}

UP = node(1, ROOT, [1, 2], full=on([0, 1], [0, 1]))
DOWN = node(2, 1, [3, 4], full=on([2, 3]), swa=on([2, 3]), mamba=on([0]))
FOUND = having(UP, full=on(None, [0, 1]))
"""What an insert of `KEY` finds: two pages that are on the host alone."""
KEPT, THERE = having(UP, full=on([6, 7])), having(UP, full=on([6, 7], [0, 1]))


def placed(
    up: NodeState = UP, down: NodeState = DOWN, before: NodeState = FOUND, profile: Profile = CANON
) -> Step:
    """An insert of all of `KEY`."""
    return step(
        state_of(CONFIG, before, profile=profile),
        op.Insert(KEY, 0, Slots((0, 1, 2, 3), (2, 3), (0,))),
        state_of(CONFIG, up, down),
        op.Inserted(0, Counts(), Counts()),
    )


PLACES: Table = {
    # A slot at its neighbour's page is reported, and one that replaces another, unless declared.
    "ALLOC-11": [
        placed(),
        placed(KEPT, before=KEPT),
        placed(down=evolve(DOWN, data={FULL: on([2, 3])})),
        placed(before=THERE, profile=REPLACING),
    ],
    (
        "ALLOC-11: page 2 ... full slot none, slot 2 was handed over for it, and it has slot 3",
        ...,
    ): placed(down=having(DOWN, full=on([3, 2]))),
    ("ALLOC-11: page 2 ... swa slot none, slot 2 ... has slot 3...", "page 3 ...slot 3..."): placed(
        down=having(DOWN, swa=on([3, 2]))
    ),
    "ALLOC-11: page 3 of the key had mamba slot...": placed(down=having(DOWN, mamba=on([1]))),
    ("ALLOC-11: ...swa slot none, slot none was...", ...): placed(having(UP, swa=on([6, 7]))),
    ("ALLOC-11: ...full slot 6, slot 0 was...", "...slot 7, slot 1 was..."): placed(before=THERE),
}

test_alloc = table(OWNERS, LOSSES, COUNTS, SERVED, PLACES)
