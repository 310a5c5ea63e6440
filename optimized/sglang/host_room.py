"""Room on the host: SGLang's controller asks for it pool by pool, and the tree evicts for it."""

from __future__ import annotations

from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import DriveHostEvictionResult

from kvcanon.optimized.native_types import Three
from kvcanon.optimized.sglang.copy_order import NOTHING
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.pool_slots import FULL, MAMBA, SWA

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
        device, host, freed, reclaimed, _ = core.engine_nodes.make_room(wanted, NOTHING)
        return DriveHostEvictionResult(device, host, freed), reclaimed
    # The controller makes room pool by pool, for the whole of a copy. Room for all of it is made
    # here. What the controller has taken from a pool since is room that was there.
    had, now = order.rooms, slots.rooms_for(order.expected)
    free = max(now[FULL], had[FULL]), max(now[SWA], had[SWA]), max(now[MAMBA], had[MAMBA])
    joined = core.copies.joined
    if not joined and order.is_declined():
        return DriveHostEvictionResult(), []
    # A copy before an eviction locks nothing.
    locks = not core.native.settings.write_back
    device, host, freed, reclaimed, fits = core.engine_nodes.make_room_for(
        joined or order.nodes, free, locks
    )
    if not (fits or joined):
        order.declined = order.nodes
    more = freed.get
    order.rooms = had[FULL] + more(FULL, 0), had[SWA] + more(SWA, 0), had[MAMBA] + more(MAMBA, 0)
    return DriveHostEvictionResult(device, host, freed), reclaimed


def digest_with(digest: int, reclaimed: list[int]) -> int:
    """A digest of what a rank has reclaimed so far, with what it reclaims now."""
    for number in reclaimed:
        digest = (digest * DIGEST_FACTOR + number + 1) & DIGEST_MASK
    return digest
