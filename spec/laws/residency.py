"""RES: residency, or what data is on which medium.

Full data carries everything: window data and recurrent states are of no use without it, and data
deeper in the tree is of no use without what comes before.

What readers get wrong: a tombstone is not an absence of the node. It has its full data and lacks
window data; the prompt is known there, and can be healed, but no prefix can end in it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, Need, law, node_law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import parts_on_host
from kvcanon.spec.operations import Insert, Inserted, Match, Matched
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.grounds import has_ground
from kvcanon.spec.replay.backup import due_backups
from kvcanon.spec.replay.board import board_of
from kvcanon.spec.replay.evictable import could_be_free
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Medium
from kvcanon.spec.views import Step, path_of


@node_law("RES-1", premises.ANY_NODE, over=Difference.rebuilt_nodes)
def no_dead_node(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Every node has full data, on the device or on the host.

    Why: a node with nothing in it is found by a walk and helps nobody; it keeps its descendants
    from being used, and nothing ever evicts it.

    Seen broken: not seen
    """
    for node in nodes:
        if not node[FULL].anywhere:
            yield f"{state.describe(node)} has full data neither on {GPU} nor on {CPU}"


@node_law("RES-2", premises.AUXILIARY_DATA, over=Difference.rebuilt_nodes)
def auxiliary_follows_full(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Window data and recurrent states are on a medium only where their node's full data is.

    Where the profile says that nodes are not whole on the host, they may be there alone under
    write_back, while the full data is on the device.

    Why: no prefix can use them without it, so they hold room that does not count as cached; and the
    one eviction that would free them, that of the full data, never comes.

    Seen broken: https://github.com/sgl-project/sglang/issues/25068
    """
    for node in nodes:
        for component in (SWA, MAMBA):
            for medium in (GPU, CPU):
                has_full = node[FULL].slots(medium) is not None or (
                    medium is CPU and parts_on_host(state) and node[FULL].device is not None
                )
                if not has_ground(node[component].slots(medium) is not None, has_full):
                    yield (
                        f"{state.describe(node)} has {component} data on {medium} "
                        "and no full data there"
                    )


@node_law("RES-3", premises.DEVICE_CHILD, over=Difference.rebuilt_and_adjacent)
def device_prefix_closed(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Where full data is on the device, that of the parent is too, and does not arrive later.

    While it is being loaded it has its slots already; but it may not be there for good below data
    that is still being loaded.

    Why: the device cannot use a page without all pages before it. And if that load fails, what is
    below it loses the ground that it stands on.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/4596,
    https://github.com/sgl-project/sglang/issues/25088
    """
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        own, above = node[FULL], parent[FULL]
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


@node_law("RES-4", premises.HOST_CHILD, over=Difference.rebuilt_and_adjacent)
def backed_parents(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Every node on the host has its parent on the host, unless the policy is write_back.

    Why: a prefix on the host with a hole in it cannot be loaded back, and a node that is not copied
    because its parent was not is deleted when the device needs its room.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/31902
    """
    if not state.config.backed_parents:
        return
    for node in nodes:
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if not has_ground(node[FULL].host is not None, parent[FULL].host is not None):
            yield (
                f"{state.describe(node)} is on the host but its parent "
                f"{state.describe(parent)} is not"
            )


@law("RES-5", Kind.STEP, premises.INSERT_WITH_BACKUP, needs=(Need.SNAPSHOT, Need.HITS))
def write_through_completes(step: Step) -> Iterator[str]:
    """After an insert, all of its path that was hit often enough has a host copy, or is counted.

    A copy in flight is a copy, and it needs one of every node above it. So does window data of the
    last window, and the state at the end, that was healed since its node was copied. What has none
    is counted by the outcome as declined, page by page. The first that is declined would not fit
    even if all left the host that may leave; whether what is impossible is tried is free.

    Why: a node that is skipped in silence is deleted when the device needs its room, and a prompt
    that was to be kept is computed again. Nobody can tell why.

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
        if stop.node.hit_count >= threshold and stop.node[FULL].device is not None
    ]
    for position, stop in due:
        if stop.node[FULL].host is None:
            continue
        backed = tuple(above.node[FULL].host is not None for above in path[: position + 1])
        for gap in backup_chain(backed, needs_backed_parents=True):
            yield (
                f"{state.describe(stop.node)} has a host copy but {state.describe(path[gap].node)} "
                "above it has none"
            )
    left = [stop for _, stop in due if stop.node[FULL].host is None]
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


@node_law("RES-6", premises.ANY_NODE, over=Difference.rebuilt_nodes)
def slots_fit_pages(state: Snapshot, nodes: Collection[NodeState]) -> Iterator[str]:
    """Data on a medium is one slot a page, a recurrent state one slot, and each is of that pool.

    A tombstone is therefore a node without window slots, never one with a few: data of a part of a
    node's pages belongs to a node of its own. A copy in flight has its target slots.

    Why: with a slot too few every page behind the gap is read from the place of its neighbour.

    Seen broken: https://github.com/sgl-project/sglang/issues/25991,
    https://github.com/sgl-project/sglang/issues/29350
    """
    for node in nodes:
        for component, data in node.data.items():
            for medium in (GPU, CPU):
                slots, pending = data.slots(medium), data.pending(medium)
                if slots is not None:
                    yield from _misfits(state, node, component, medium, slots)
                elif pending is not None:
                    yield (
                        f"{state.describe(node)} waits for transfer {pending} to fill its "
                        f"{component} slots on {medium}, and has none there"
                    )


@law("RES-7", Kind.STEP, premises.INSERT, needs=(Need.SNAPSHOT, Need.HITS))
def request_counts_once(step: Step) -> Iterator[str]:
    """An insert counts one hit at every node of its key that its request has not reached before.

    What the request has reached before, `counted_pages` says: a node that ends there is not counted
    again, unless the profile says that every insert counts. A new node begins with none, and counts
    this insert like any other. By profile, nothing is counted where nothing goes by hits; and where
    matches count, a match counts one hit at every node of the prefix that it finds, also at one
    that it uses in part, and an insert none.

    Why: hits decide what is copied to the host and what is evicted last. Counted twice, a prompt
    that nobody shares looks popular; never counted, a long prompt is never copied.

    Seen broken: https://github.com/sgl-project/sglang/issues/36647,
    https://github.com/sgl-project/sglang/issues/33714
    """
    asked, profile = step.operation, step.after.profile
    if not isinstance(asked, Insert | Match) or not isinstance(step.outcome, Inserted | Matched):
        return
    if isinstance(asked, Match) and not profile.hits_counted_at_match:
        return  # That it counts none, says MATCH-5.
    if not (profile.idle_hits_counted or step.after.config.goes_by_hits):
        return
    hits_before: list[int] = []
    for stop in path_of(step.before, asked.key):
        hits_before += [stop.node.hit_count] * stop.shared_pages
    for node, shared in path_of(step.after, asked.key):
        start = step.after.starts[node.node_id]
        counts = int(_counts_hit(step, start, start + len(node.pages)))
        for page in range(start, start + shared):
            expected = (hits_before[page] if page < len(hits_before) else 0) + counts
            if node.hit_count != expected:
                yield (
                    f"page {page} in {step.after.describe(node)} has {node.hit_count} hits after "
                    f"{type(asked).__name__}, which should have made it {expected}"
                )
                break


def _counts_hit(step: Step, start: int, end: int) -> bool:
    """Whether an insert, or a match, counts a hit at a node of these pages, by the profile."""
    asked, profile = step.operation, step.after.profile
    if isinstance(step.outcome, Matched):
        return start < step.outcome.prefix_pages
    if profile.hits_counted_at_match or not isinstance(asked, Insert):
        return False
    return end > (asked.counted_pages if profile.hits_once_a_request else 0)


def _misfits(
    state: Snapshot, node: NodeState, component: Component, medium: Medium, slots: tuple[int, ...]
) -> Iterator[str]:
    wanted = 1 if component is MAMBA else len(node.pages)
    if len(slots) != wanted:
        yield (
            f"{state.describe(node)} has {len(slots)} {component} slots on {medium}; "
            f"its {len(node.pages)} pages need {wanted}"
        )
    capacity = state.config.capacity(component, medium)
    if slots and (min(slots) < 0 or max(slots) >= capacity):
        outside = [slot for slot in slots if not 0 <= slot < capacity]
        yield (
            f"{state.describe(node)} has {component} slots {outside} on {medium}; "
            f"that pool has slots 0..{capacity}"
        )
