"""Room on the host: SGLang's controller asks for it pool by pool, and the tree evicts for it."""

from __future__ import annotations

from attrs import Factory, define
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import DriveHostEvictionResult

from kvcanon.optimized.native_types import Amounts
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.pool_slots import KINDS

DIGEST_FACTOR, DIGEST_MASK = 1_000_003, (1 << 42) - 1
"""How SGLang folds what a rank reclaimed on its host into one number."""


def expect_copy(core: CoreState, tokens: Amounts) -> None:
    """Note that the controller is about to copy this many tokens, or states, to the host."""
    rooms = dict.fromkeys(tokens, 0)
    if len(core.slots.host_tables) > 1:
        # The controller may take slots of one pool before it asks for room in another.
        rooms = {kind: core.slots.room(kind) for kind in tokens}
    core.copies.order.expect(tokens, rooms)


def make_room(core: CoreState, kind: ComponentType, tokens: int) -> HostRoom:
    """Free host slots of a component, or make room for the whole copy that needs them."""
    slots, joined, order = core.slots, core.copies.joined, core.copies.order
    room = HostRoom(core, {kind: 0})
    if not order.needs(kind):
        if kind in slots.host_tables:
            room.make({kind: tokens})
        return room
    # The controller makes room pool by pool, for the whole of a copy. Room for all of it is made
    # here. What the controller has taken from a pool since is room that was there.
    room.free = {kind: max(slots.room(kind), had) for kind, had in order.rooms.items()}
    if joined:
        room.make_for_each(joined)
    elif not order.is_declined() and not room.make(order.expected):
        order.declined = order.nodes
    order.rooms = {kind: had + room.result.tracker[kind] for kind, had in order.rooms.items()}
    return room


def digest_with(digest: int, reclaimed: list[int]) -> int:
    """A digest of what a rank has reclaimed so far, with what it reclaims now."""
    for number in reclaimed:
        digest = (digest * DIGEST_FACTOR + number + 1) & DIGEST_MASK
    return digest


@define(eq=False)
class HostRoom:
    """One search for room: what is free by component, and what was evicted for it."""

    core: CoreState
    free: Amounts
    result: DriveHostEvictionResult = Factory(DriveHostEvictionResult)
    reclaimed: list[int] = Factory(list)
    """Of each eviction that freed full slots, the first row and how many there were."""

    def make(self, wanted: Amounts) -> bool:
        """Evict until this many tokens fit, if possible; returns whether they do.

        Stops at the first pool that stays short: no copy needs what others would lose.
        """
        for kind, tokens in wanted.items():
            short = tokens - self.free[kind]
            if short <= 0:
                continue
            pages = -(-short // self.core.slots.page_tokens(kind))
            device, host, counts, rows = self.core.engine_nodes.evict_host(kind, pages)
            for freed, each in device.items():
                self.result.device_frees[freed] += each
            for freed, each in host.items():
                self.result.host_frees[freed] += each
                self.result.tracker[freed] += counts[freed]
                if freed in self.free:
                    self.free[freed] += counts[freed]
            if rows is not None:
                self.reclaimed += [rows.runs()[0][0], len(rows)]
            if tokens > self.free[kind]:
                return False
        return True

    def make_for_each(self, node_ids: tuple[int, ...]) -> None:
        """Make room for a copy of several nodes: for one after the other, as for copies of each.

        A node that has room is locked meanwhile, as it is while it is copied.
        """
        nodes, receipts = self.core.nodes, []
        for node in node_ids:
            parts = zip(KINDS, nodes.slots_to_back_up((node,))[0], strict=True)
            tokens = {
                kind: len(rows) * self.core.slots.page_tokens(kind)
                for kind, rows in parts
                if rows is not None and kind in self.free
            }
            if not self.make(tokens):
                break
            for kind, count in tokens.items():
                self.free[kind] -= count
            receipts.append((node, nodes.lock(node)[0]))
        for node, receipt in receipts:
            nodes.unlock(node, receipt)
