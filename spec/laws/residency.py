"""RES: residency, or what data is on which medium.

Full data carries everything: window data and recurrent states are of no use without it, and data
deeper in the tree is of no use without what comes before.

What readers get wrong: a tombstone is not an absence of the node. It has its full data and lacks
window data; the prompt is known there, and can be healed, but no prefix can end in it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws.comparing import candidates, parts_on_host
from kvcanon.spec.operations import HostInserted, Insert, Inserted, InsertHost
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.grounds import has_ground
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Medium
from kvcanon.spec.views import Step, Stop, path_of, rows_along


@law("RES-1", Kind.STATE)
def no_dead_node(state: Snapshot) -> Iterator[str]:
    """Every node has full data, on the device or on the host.

    Why: a node with nothing in it is found by a walk and helps nobody; it keeps its descendants
    from being used, and nothing ever evicts it.

    Seen broken: not seen
    """
    for node in state.below_root():
        if not node[FULL].anywhere:
            yield f"{state.describe(node)} has full data neither on {GPU} nor on {CPU}"


@law("RES-2", Kind.STATE)
def auxiliary_follows_full(state: Snapshot) -> Iterator[str]:
    """Window data and recurrent states are on a medium only where their node's full data is.

    Where the profile says that nodes are not whole on the host, they may be there alone under
    write_back, while the full data is on the device.

    Why: no prefix can use them without it, so they hold room that does not count as cached; and the
    one eviction that would free them, that of the full data, never comes.

    Seen broken: https://github.com/sgl-project/sglang/issues/25068
    """
    for node in state.below_root():
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


@law("RES-3", Kind.STATE)
def device_prefix_closed(state: Snapshot) -> Iterator[str]:
    """Where full data is on the device, that of the parent is too, and does not arrive later.

    While it is being loaded it has its slots already; but it may not be there for good below data
    that is still being loaded.

    Why: the device cannot use a page without all pages before it. And if that load fails, what is
    below it loses the ground that it stands on.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/4596,
    https://github.com/sgl-project/sglang/issues/25088
    """
    for node in state.below_root():
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


@law("RES-4", Kind.STATE)
def backed_parents(state: Snapshot) -> Iterator[str]:
    """Every node on the host has its parent on the host, unless the policy is write_back.

    Why: a prefix on the host with a hole in it cannot be loaded back, and a node that is not copied
    because its parent was not is deleted when the device needs its room.

    Seen broken: https://github.com/sgl-project/sglang/pull/25065,
    https://github.com/sgl-project/sglang/issues/31902
    """
    if not state.config.backed_parents:
        return
    for node in state.below_root():
        parent = state.parent(node)
        if parent is None or parent.node_id == state.root_id:
            continue
        if not has_ground(node[FULL].host is not None, parent[FULL].host is not None):
            yield (
                f"{state.describe(node)} is on the host but its parent "
                f"{state.describe(parent)} is not"
            )


@law("RES-5", Kind.STEP, needs=(Need.SNAPSHOT, Need.HITS))
def write_through_completes(step: Step) -> Iterator[str]:
    """After an insert, all of its path that was hit often enough has a host copy, or is counted.

    A copy in flight is a copy, and it needs one of every node above it. What has none is counted by
    the outcome as declined, page by page, and is declined only where the host has no room and
    nobody left to evict.

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
    if left and fits_on_host(state, path):
        yield (
            f"insert left {', '.join(state.describe(n) for n, _ in left)} without a host copy "
            "though the host has room for all of its path, or could make it"
        )


@law("RES-6", Kind.STATE)
def slots_fit_pages(state: Snapshot) -> Iterator[str]:
    """Data on a medium is one slot a page, a recurrent state one slot, and each is of that pool.

    A tombstone is therefore a node without window slots, never one with a few: data of a part of a
    node's pages belongs to a node of its own. A copy in flight has its target slots.

    Why: with a slot too few every page behind the gap is read from the place of its neighbour.

    Seen broken: https://github.com/sgl-project/sglang/issues/25991,
    https://github.com/sgl-project/sglang/issues/29350
    """
    for node in state.below_root():
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


@law("RES-7", Kind.STEP, needs=(Need.SNAPSHOT, Need.HITS))
def request_counts_once(step: Step) -> Iterator[str]:
    """An insert counts one hit at every node of its key that its request has not reached before.

    What the request has reached before, `counted_pages` says: a node that ends there is not counted
    again, unless the profile says that every insert counts. A new node begins with none, and counts
    this insert like any other. By profile, nothing is counted where nothing goes by hits.

    Why: hits decide what is copied to the host and what is evicted last. Counted twice, a prompt
    that nobody shares looks popular; never counted, a long prompt is never copied.

    Seen broken: https://github.com/sgl-project/sglang/issues/36647,
    https://github.com/sgl-project/sglang/issues/33714
    """
    if not isinstance(step.operation, Insert) or not isinstance(step.outcome, Inserted):
        return
    if not (step.after.profile.idle_hits_counted or step.after.config.goes_by_hits):
        return
    hits_before: list[int] = []
    for stop in path_of(step.before, step.operation.key):
        hits_before += [stop.node.hit_count] * stop.shared_pages
    counted = step.operation.counted_pages if step.after.profile.hits_once_a_request else 0
    for node, shared in path_of(step.after, step.operation.key):
        start = step.after.starts[node.node_id]
        counts = int(start + len(node.pages) > counted)
        for page in range(start, start + shared):
            expected = (hits_before[page] if page < len(hits_before) else 0) + counts
            if node.hit_count != expected:
                yield (
                    f"page {page} in {step.after.describe(node)} has {node.hit_count} hits after "
                    f"an insert that should have made it {expected}"
                )
                break


@law("RES-8", Kind.STEP)
def fetched_pages_are_told(step: Step) -> Iterator[str]:
    """A host insert says truly what became of each page, and takes nothing from its key's path.

    Pages that were placed or refilled are those with a host copy that they had not before.

    Why: who fetched the pages frees or fetches again what was dropped. Told wrongly, it loses the
    pages or holds them twice.

    Seen broken: https://github.com/sgl-project/sglang/issues/13483
    """
    asked, told = step.operation, step.outcome
    if not isinstance(asked, InsertHost) or not isinstance(told, HostInserted):
        return
    given = len(asked.payload.full)
    counted = told.placed_pages + told.refilled_pages + told.present_pages + told.dropped_pages
    if counted != given:
        yield f"{given} pages were given, and {counted} are accounted for"
    before, after = rows_along(step.before, asked.key), rows_along(step.after, asked.key)
    had = sum(row.slot(FULL, CPU) is not None for row in before)
    has = sum(row.slot(FULL, CPU) is not None for row in after)
    if has - had != told.placed_pages + told.refilled_pages:
        yield (
            f"{told.placed_pages} pages are said to be placed and {told.refilled_pages} refilled, "
            f"but {has - had} pages of the key have a host copy that they had not"
        )
    for was, now in zip(before, after, strict=False):
        if was.device != now.device or was.slot(FULL, CPU) not in (None, now.slot(FULL, CPU)):
            where = step.after.describe(step.after.nodes[now.node_id])
            yield f"page {now.depth} in {where} lost or changed a slot that it had"


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


def fits_on_host(state: Snapshot, path: list[Stop]) -> bool:
    """Whether what a path has on the device only would fit into free slots, or victims are left.

    A pool that is short though something in it could still be evicted was not tried to the end.
    """
    for component in state.config.components:
        needed = sum(
            len(node[component].device or ()) for node, _ in path if node[component].host is None
        )
        is_short = needed > len(state.pools[component, CPU].free)
        if is_short and next(candidates(state, component, CPU), None) is None:
            return False
    return True
