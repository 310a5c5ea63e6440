"""RES: residency, that is, which data is on which medium.

Window data and mamba states are of no use without full data, and data deeper in the tree is of no
use without the pages before it.

What readers get wrong: a tombstone is a node, with full data but without window data. It can be
healed by an insert, but no usable prefix ends in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.cache import Cache
from kvcanon.spec.difference import REBUILT, REBUILT_AND_ADJACENT
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law, node_law, nodes_premise
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.comparison import parts_on_host
from kvcanon.spec.operations import Insert, Inserted, Match, Matched
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.grounds import has_ground
from kvcanon.spec.replay.backup import due_backups
from kvcanon.spec.replay.board import board_of, could_be_free
from kvcanon.spec.snapshot import NodeState, Pool, Snapshot
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Slot
from kvcanon.spec.views import Step, path_of


@node_law("RES-1", LawClass.SERVING, premise=premises.ANY_NODE, over=REBUILT)
def no_dead_node(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Every node below the root has full data, on the device or on the host.

    Why: no prefix can pass through a node without data, and nothing ever evicts it.

    Seen broken: not seen
    """
    for node in nodes:
        if not node.full.anywhere:
            yield f"{state.describe(node)} has full data neither on {GPU} nor on {CPU}"


@node_law(
    "RES-2",
    LawClass.SERVING,
    premise=nodes_premise(
        "window data, or a mamba state",
        lambda _, node: node.parent_id is not None and _has_auxiliary(node),
    ),
    enabled_if=bounds.has_windows_or_states,
    over=REBUILT,
)
def auxiliary_follows_full(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Window data and mamba states are only where their node's full data is.

    By profile, under write_back they may be on the host alone while the full data is on the device.

    Why: no prefix can use them without full data, so they take slots for nothing. And the eviction
    of the full data, which would free them, never comes.

    Seen broken: https://github.com/sgl-project/sglang/issues/25068
    """
    alone = parts_on_host(state)
    for node in nodes:
        full, on_device = node.full, node.full.device is not None
        for component, data in ((SWA, node.swa), (MAMBA, node.mamba)):
            for medium, slots, has_full in (
                (GPU, data.device, on_device),
                (CPU, data.host, full.host is not None or (alone and on_device)),
            ):
                if slots is not None and not has_ground(True, has_full):
                    yield (
                        f"{state.describe(node)} has {component} data on {medium} "
                        "and no full data there"
                    )


@node_law(
    "RES-3",
    LawClass.SERVING,
    premise=nodes_premise(
        "full data on the device, below another node",
        lambda state, node: node.full.device is not None and situations.is_below_node(state, node),
    ),
    from_outside=(visibility.DEVICE_EVICTIONS,),
    over=REBUILT_AND_ADJACENT,
)
def device_prefix_closed(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Where a node's full data is on the device, its parent's is too, and does not arrive later.

    Data that is being loaded already has its slots. But data that is settled must not be below data
    that is still being loaded.

    Why: the device cannot use a page without all pages before it. If the load of the parent fails,
    the data below it is cut off.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/4596,
    https://github.com/sgl-project/sglang/issues/25088
    """
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        own, above = node.full, parent.full
        on_device = own.device is not None
        if not has_ground(on_device, above.device is not None):
            yield (
                f"{state.describe(node)} has full data on {GPU} but its parent "
                f"{state.describe(parent)} has none there"
            )
        elif not has_ground(on_device and own.loading is None, above.loading is None):
            yield (
                f"{state.describe(node)} has its full data on {GPU}, but transfer "
                f"{above.loading} is still loading that of its parent "
                f"{state.describe(parent)}"
            )


@node_law(
    "RES-4",
    LawClass.SERVING,
    premise=nodes_premise(
        "a host copy below another node, where parents need one",
        lambda state, node: (
            state.config.backed_parents
            and node.full.host is not None
            and situations.is_below_node(state, node)
        ),
    ),
    enabled_if=lambda run: run.config.backed_parents,
    over=REBUILT_AND_ADJACENT,
)
def backed_parents(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """A node with a host copy has a parent with a host copy, unless the policy is write_back.

    Host copies are those of full data. One that is still in flight counts, on either node. The root
    has no data: a node directly below it needs no parent with a copy.

    Why: a prefix on the host with a gap cannot be loaded back. And a node that was not copied
    because its parent was not is deleted when the device is short of slots.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/31902
    """
    if not state.config.backed_parents:
        return
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if not has_ground(node.full.host is not None, parent.full.host is not None):
            yield (
                f"{state.describe(node)} is on the host but its parent "
                f"{state.describe(parent)} is not"
            )


@law(
    "RES-5",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="backups",
    premise=Premise[Step](
        "an insert under write-through",
        lambda step: (
            isinstance(step.outcome, Inserted) and step.before.config.backup_hits is not None
        ),
    ),
    needs=(Need.SNAPSHOT, Need.HITS),
    enabled_if=bounds.backs_up_inserts,
    from_outside=((Cache.take_events, Cache.free_slots),),
)
def write_through_completes(step: Step) -> Iterator[str]:
    """An insert backs up every node of its path with enough hits, or counts its pages as declined.

    A copy in flight counts as a backup. A node's backup needs those of all nodes above it. Window
    data of the last window and the mamba state at the end must be backed up too if they were healed
    after their node was copied. The outcome counts the pages without a backup as declined. The
    first node without a backup must be one that does not fit on the host, even if everything there
    that may be evicted were evicted. Whether the cache evicts for a copy that cannot fit is free.

    Why: a node that is skipped silently is deleted when the device is short of slots. The prompt is
    computed again, and nobody can tell why.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/27108,
    https://github.com/sgl-project/sglang/issues/36647
    """
    operation, outcome, state = step.operation, step.outcome, step.after
    threshold = state.config.backup_hits
    if threshold is None or not isinstance(operation, Insert) or not isinstance(outcome, Inserted):
        return
    path = path_of(state, operation.key)
    due = [
        (position, stop)
        for position, stop in enumerate(path)
        if stop.node.hit_count >= threshold and stop.node.full.device is not None
    ]
    for position, stop in due:
        if stop.node.full.host is None:
            continue
        backed = tuple(above.node.full.host is not None for above in path[: position + 1])
        for gap in backup_chain(backed, needs_backed_parents=True):
            yield (
                f"{state.describe(stop.node)} has a host copy but {state.describe(path[gap].node)} "
                "above it has none"
            )
    left = [stop for _, stop in due if stop.node.full.host is None]
    left_pages = sum(stop.shared_pages for stop in left)
    if left_pages != outcome.backup_declined_pages:
        names = (
            ", ".join(f"{state.describe(n)} with {n.hit_count} hits" for n, _ in left) or "no node"
        )
        yield (
            f"insert declined to back up {outcome.backup_declined_pages} pages, but {left_pages} "
            f"pages of its path reached {threshold} hits and have no host copy: {names}"
        )
    undone = next((due for due in due_backups(step) if not due.done()), None)
    if undone is not None and could_be_free(board_of(state), undone.counts(), CPU):
        lacking = " and ".join(undone.components)
        yield (
            f"insert left {state.describe(undone.node)} without a host copy of its {lacking} data, "
            "though the host has room for it, or could make it"
        )


@node_law("RES-6", LawClass.SOUND, premise=premises.ANY_NODE, over=REBUILT)
def slots_fit_pages(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Data on a medium is one slot a page, or one slot for a mamba state, in range of its pool.

    So a tombstone has no window slots at all, never a few: where only some pages of a node have
    window data, the node is cut. A node that waits for a copy has the slots that the copy will
    fill.

    Why: with one slot too few, every page behind the gap is read from its neighbour's slot.

    Seen broken: https://github.com/sgl-project/sglang/issues/25991,
    https://github.com/sgl-project/sglang/issues/29350
    """
    capacities = {
        (component, medium): state.config.capacity(component, medium)
        for component in state.config.components
        for medium in (GPU, CPU)
    }
    for node in nodes:
        for component, data in node.data.items():
            for medium, slots, pending in (
                (GPU, data.device, data.loading),
                (CPU, data.host, data.backing),
            ):
                if slots is not None:
                    pool = component, medium
                    yield from _misfits(state, node, pool, slots, capacities.get(pool, 0))
                elif pending is not None:
                    yield (
                        f"{state.describe(node)} waits for transfer {pending} to fill its "
                        f"{component} slots on {medium}, and has none there"
                    )


@law(
    "RES-7",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=premises.INSERT,
    needs=(Need.SNAPSHOT, Need.HITS),
)
def request_counts_once(step: Step) -> Iterator[str]:
    """An insert counts one hit at each node of its key that its request has not counted before.

    `counted_pages` says how far the request has counted: a node that ends there is not counted
    again, unless by profile every insert counts. A new node starts with 0 hits and counts this
    insert like any other node. By profile, hits are not counted where no policy uses them. By
    profile, matches count instead of inserts: one hit at each node of the usable prefix, including
    one that is used in part.

    Why: hits decide which pages are copied to the host and which are evicted last. Counted twice, a
    prompt that nobody shares looks popular; never counted, a long prompt is never backed up.

    Seen broken: https://github.com/sgl-project/sglang/issues/36647,
    https://github.com/sgl-project/sglang/issues/33714
    """
    call, profile = step.operation, step.after.profile
    if not isinstance(call, Insert | Match) or not isinstance(step.outcome, Inserted | Matched):
        return
    if isinstance(call, Match) and not profile.hits_counted_at_match:
        return  # MATCH-5 checks that it counts none.
    if not (profile.idle_hits_counted or step.after.config.goes_by_hits):
        return
    hits_before: list[int] = []
    for stop in path_of(step.before, call.key):
        hits_before += [stop.node.hit_count] * stop.shared_pages
    for node, shared in path_of(step.after, call.key):
        start = step.after.starts[node.node_id]
        counts = int(_counts_hit(step, start, start + len(node.pages)))
        for page in range(start, start + shared):
            expected = (hits_before[page] if page < len(hits_before) else 0) + counts
            if node.hit_count != expected:
                yield (
                    f"page {page} in {step.after.describe(node)} has {node.hit_count} hits after "
                    f"{type(call).__name__}, expected {expected}"
                )
                break


def _counts_hit(step: Step, start: int, end: int) -> bool:
    """Whether an insert or a match counts a hit at a node with these pages, by the profile."""
    call, profile = step.operation, step.after.profile
    if isinstance(step.outcome, Matched):
        return start < step.outcome.prefix_pages
    if profile.hits_counted_at_match or not isinstance(call, Insert):
        return False
    return end > (call.counted_pages if profile.hits_once_a_request else 0)


def _has_auxiliary(node: NodeState) -> bool:
    slots = node.swa.device, node.swa.host, node.mamba.device, node.mamba.host
    return slots != (None, None, None, None)


def _misfits(
    state: Snapshot, node: NodeState, pool: Pool, slots: tuple[Slot, ...], capacity: int
) -> Iterator[str]:
    component, medium = pool
    wanted = 1 if component is MAMBA else len(node.pages)
    if len(slots) != wanted:
        yield (
            f"{state.describe(node)} has {len(slots)} {component} slots on {medium}; "
            f"its {len(node.pages)} pages need {wanted}"
        )
    if slots and (min(slots) < 0 or max(slots) >= capacity):
        outside = [slot for slot in slots if not 0 <= slot < capacity]
        yield (
            f"{state.describe(node)} has {component} slots {outside} on {medium}; "
            f"that pool has slots 0..{capacity}"
        )
