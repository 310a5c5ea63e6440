"""Room on the host: SGLang's controller asks for it pool by pool, and the tree evicts for it."""

from __future__ import annotations

from collections.abc import Sequence

from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import DriveHostEvictionResult

from kvcanon.optimized.native_types import Three
from kvcanon.optimized.sglang.copy_order import NOTHING
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.pool_slots import FULL, KINDS, MAMBA, SWA

DIGEST_FACTOR, DIGEST_MASK = 1_000_003, (1 << 42) - 1
"""How SGLang folds what a rank reclaimed on its host into one number."""


def expect_copy(core: CoreState, tokens: Three) -> None:
    """Note that the controller is about to copy this many tokens, or states, to the host."""
    slots, rooms = core.slots, NOTHING
    if len(slots.host_tables) > 1:
        # The controller may take slots of one pool before it asks for room in another.
        rooms = slots.rooms_for(tokens)
    core.copies.order.expect(tokens, rooms)


def make_room(
    core: CoreState, kind: ComponentType, tokens: int
) -> tuple[DriveHostEvictionResult, list[int]]:
    """Free host slots of a component, or make room for the whole copy that needs them.

    Returns also, of each eviction that freed full slots, the first row and how many there were.
    """
    slots, order = core.slots, core.copies.order
    if not order.needs(kind):
        wanted = [0, 0, 0]
        if kind in slots.host_tables:
            wanted[kind] = tokens
        result, reclaimed, _ = _make(core, wanted, NOTHING)
        return result, reclaimed
    # The controller makes room pool by pool, for the whole of a copy. Room for all of it is made
    # here. What the controller has taken from a pool since is room that was there.
    had, now = order.rooms, slots.rooms_for(order.expected)
    free = max(now[FULL], had[FULL]), max(now[SWA], had[SWA]), max(now[MAMBA], had[MAMBA])
    if core.copies.joined:
        result, reclaimed = _make_for_each(core, core.copies.joined, free)
    elif order.is_declined():
        return DriveHostEvictionResult(), []
    else:
        result, reclaimed, fits = _make(core, order.expected, free)
        if not fits:
            order.declined = order.nodes
    freed = result.tracker.get
    order.rooms = had[FULL] + freed(FULL, 0), had[SWA] + freed(SWA, 0), had[MAMBA] + freed(MAMBA, 0)
    return result, reclaimed


def digest_with(digest: int, reclaimed: list[int]) -> int:
    """A digest of what a rank has reclaimed so far, with what it reclaims now."""
    for number in reclaimed:
        digest = (digest * DIGEST_FACTOR + number + 1) & DIGEST_MASK
    return digest


def _make(
    core: CoreState, wanted: Sequence[int], free: Sequence[int]
) -> tuple[DriveHostEvictionResult, list[int], bool]:
    """Evict until this many tokens fit, if possible; returns also whether they do."""
    device, host, freed, reclaimed, fits = core.engine_nodes.make_room(wanted, free)
    return DriveHostEvictionResult(device, host, freed), reclaimed, fits


def _make_for_each(
    core: CoreState, node_ids: tuple[int, ...], room: Three
) -> tuple[DriveHostEvictionResult, list[int]]:
    """Make room for a copy of several nodes: for one after the other, as for copies of each.

    A node that has room is locked meanwhile, as it is while it is copied.
    """
    nodes, receipts = core.nodes, []
    result, reclaimed, free = DriveHostEvictionResult(), [], list(room)
    for node in node_ids:
        lacks = core.slots.tokens_of(nodes.slots_to_back_up((node,))[0])
        made, taken, fits = _make(core, lacks, free)
        for kind in KINDS:
            free[kind] += made.tracker.get(kind, 0)
        reclaimed += taken
        _add(result, made)
        if not fits:
            break
        for kind in KINDS:
            free[kind] -= lacks[kind]
        receipts.append((node, nodes.lock(node)[0]))
    for node, receipt in receipts:
        nodes.unlock(node, receipt)
    return result, reclaimed


def _add(total: DriveHostEvictionResult, made: DriveHostEvictionResult) -> None:
    """Add what an eviction freed; SGLang complains of a result that is dropped with slots in it."""
    for kind, freed in made.device_frees.items():
        total.device_frees[kind] += freed
    for kind, freed in made.host_frees.items():
        total.host_frees[kind] += freed
        total.tracker[kind] += made.tracker[kind]
    made.device_frees.clear()
    made.host_frees.clear()
