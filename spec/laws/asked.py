"""ASK: a call does what it was asked for, and nothing else.

Many sound caches act on their own: leases end, a match prefetches, a poll backs up, a pool is
compacted, an allocation evicts. That is a choice, which a profile declares. What a cache did on its
own is taken out of the step (`unasked`) before all other laws see it, so that they judge the rest
of the call; these laws only say that it happened.

What readers get wrong: what is locked, held by a request or being copied is never a cache's own to
take. LOCK-4, DATA-2 and others check that, whatever a profile declares.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.config import Choosing
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations
from kvcanon.spec.laws.comparison import (
    MEDIA,
    candidates,
    orphaned_slots,
    pool_in_words,
    reserved_in,
    slots_lost,
    writes_back,
)
from kvcanon.spec.laws.match import left_out_pages
from kvcanon.spec.laws.unasked import EVICTING
from kvcanon.spec.operations import Insert, LoadBack
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, Medium
from kvcanon.spec.views import Step


def _could_take(step: Step) -> bool:
    """Whether a call that evicts nothing met data that nobody holds."""
    if isinstance(step.operation, EVICTING[GPU]):
        return False
    return next(candidates(step.before, FULL, GPU), None) is not None


@law(
    "ASK-1",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="retention",
    premise=Premise[Step]("a call that evicts nothing, while a leaf could be evicted", _could_take),
)
def data_leaves_when_asked(step: Step) -> Iterator[str]:
    """Data leaves a medium only in a call that makes room there.

    On the device, that is an eviction or a load-back; on the host also an insert, whose backups
    take slots, and a host insert. Others may let unused data expire, or evict in `allocate`. One
    that is refused for lack of slots has evicted nothing in any case (ALLOC-6).

    Why: what leaves without need is computed again. An engine that admits requests by counts of
    free slots does not expect a match to free some.

    Seen broken: https://github.com/sgl-project/sglang/issues/27038
    """
    if step.unasked is None:
        return
    state, name, for_copies = step.unasked.before, type(step.operation).__name__, _made_room(step)
    for node_id, pools in step.unasked.left.items():
        for pool in sorted(pools):
            if pool[1] not in for_copies:
                where = f"{pool_in_words(pool)} in {name}, which makes no room there"
                yield f"data of {state.describe(state.nodes[node_id])} left {where}"


def _made_room(step: Step) -> set[Medium]:
    """The media on which a cache made room for copies that it begins on its own.

    What is evicted for a copy that finds no room all the same stays evicted.
    """
    profile = step.before.profile
    begun = step.unasked.begun if step.unasked is not None else ()
    room = {each.direction.target for each in begun}
    room |= {GPU} if profile.loads is Choosing.OWN else set()
    room |= {CPU} if profile.backups is Choosing.OWN else set()
    return room | {CPU} if GPU in room and writes_back(step.before) else room


def _finds_host_data(state: Snapshot) -> bool:
    return any(node.full.device is None and node.full.host for node in state.below_root())


@law(
    "ASK-2",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="loads",
    premise=Premise[Step](
        "a call other than a load-back, while data is on the host alone",
        lambda step: not isinstance(step.operation, LoadBack) and _finds_host_data(step.before),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS),
    enabled_if=bounds.has_host_tier,
)
def loads_begin_when_asked(step: Step) -> Iterator[str]:
    """Only a load-back begins to load data to the device.

    Others begin with a match that finds data on the host alone.

    Why: a load takes slots, and may evict for them. A request that only looks should not take them
    from those that run.

    Seen broken: not seen
    """
    yield from _begun(step, Direction.LOAD_BACK)


@law(
    "ASK-3",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="backups",
    premise=Premise[Step](
        "a call other than an insert, while data is on the device alone",
        lambda step: (
            not isinstance(step.operation, Insert)
            and any(node.full.device and not node.full.host for node in step.before.below_root())
        ),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS),
    enabled_if=bounds.backs_up_inserts,
)
def backups_begin_in_inserts(step: Step) -> Iterator[str]:
    """Only an insert begins to back up data, and under write_back an eviction.

    Others begin in a later call, as LMCache and the connectors of vLLM do.

    Why: an insert names its backups, so that the engine can wait for them before it ends a request.

    Seen broken: not seen
    """
    yield from _begun(step, Direction.BACKUP)


def _begun(step: Step, direction: Direction) -> Iterator[str]:
    """The copies in a direction that a call began unasked."""
    for each in step.unasked.begun if step.unasked is not None else ():
        if each.direction is direction:
            name, kind = type(step.operation).__name__, direction.value
            yield f"{name} began {kind} {each.transfer_id}, which nothing asked for"


@law(
    "ASK-4",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="placement",
    premise=Premise[Step]("a call while a leaf could be evicted", _could_take),
)
def data_stays_in_its_slots(step: Step) -> Iterator[str]:
    """Data on the device stays in its slots until it leaves.

    Others compact their pools: they move data that nobody holds, with its bytes.

    Why: a request that matched a prefix, and has not locked it yet, knows the slots of its pages.

    Seen broken: not seen
    """
    if step.unasked is not None:
        state, name = step.unasked.before, type(step.operation).__name__
        for node_id in step.unasked.moved:
            yield f"{name} moved the data of {state.describe(state.nodes[node_id])} to other slots"


@law(
    "ASK-5",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="admission",
    premise=premises.INSERT,
)
def inserts_are_admitted(step: Step) -> Iterator[str]:
    """An insert keeps all pages of its key.

    Others admit a prompt at its second insert, or none below a length; they free what they do not
    keep, and say so. MATCH-6 checks the pages that are kept.

    Why: the next turn of the conversation computes again whatever was not kept.

    Seen broken: not seen
    """
    left_out = left_out_pages(step)
    if left_out:
        yield f"an insert did not keep {left_out} pages of its key, and freed their slots"


@law(
    "ASK-6",
    Kind.STEP,
    LawClass.POLICY,
    premise=Premise[Step](
        "a call on an empty tree", lambda step: situations.nodes(step.before) == 0
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS),
)
def every_slot_is_used(step: Step) -> Iterator[str]:
    """Every slot of a pool can be handed out, but those that the profile reserves.

    While the tree is empty they are free, or requests hold them. ALLOC-8 checks that no slot is
    lost later.

    Why: a slot that is never handed out is memory that no page gets.

    Seen broken: not seen
    """
    state = step.before
    if situations.nodes(state) > 0:
        return
    for component in state.config.components:
        for medium in MEDIA:
            pool = component, medium
            there, reserved = state.pools.get(pool, NO_POOL), reserved_in(state, pool)
            copied = len(orphaned_slots(state, *pool))
            if len(there.free) + len(there.held) + copied == there.capacity - reserved:
                continue  # Pools may be large, and this is right in nearly every step.
            lost = slots_lost(state, pool)
            if len(lost) != reserved:
                yield (
                    f"nobody has slots {sorted(lost)} of {pool_in_words(pool)}, though the tree is "
                    f"empty; the profile reserves {reserved}"
                )
