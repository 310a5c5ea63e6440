"""Eviction from the device: one victim a step, chosen by the native tree.

SGLang asks with a quota and stops after the first victim that suffices. Under write_back it copies
a victim between two steps.
"""

from __future__ import annotations

from typing import Protocol

import torch
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import EvictDeviceNextNodeResult

from kvcanon.optimized.native_types import VictimToCopy
from kvcanon.optimized.sglang.copy_order import NOTHING
from kvcanon.optimized.sglang.core_state import CoreState
from kvcanon.optimized.sglang.host_room import expect_copy
from kvcanon.optimized.sglang.pool_slots import FULL, KINDS, MAMBA, SWA
from kvcanon.spec.errors import BadArgument


class Controller(Protocol):
    """The calls of SGLang's controller that copy what it would not copy of a victim by itself."""

    def evict_host(self, num_tokens: int, component_type: ComponentType) -> int:
        """Free host slots."""

    def backup_node_for_write_back(self, node_id: int) -> int:
        """Copy what a node lacks on the host."""

    def writing_check(self, write_back: bool = False) -> None:
        """Wait for the copies to the host."""


class OfCache(Protocol):
    """A component of SGLang's, which knows the controller once that is there."""

    @property
    def cache(self) -> Controller:
        """SGLang's `UnifiedRadixCache`."""


def copy_first(
    core: CoreState, full: OfCache, victim: VictimToCopy, kind: ComponentType
) -> EvictDeviceNextNodeResult:
    """Name a victim for the controller to copy, or have it copied and evict it.

    A leaf is copied as a whole if its full data has no copy. What else a node lacks is copied
    where the walk is of that component.
    """
    node, as_leaf, with_it, needed = victim
    _, windows, states = needed
    core.copies.order.name_victim(node, with_it)
    expect_copy(core, needed)
    if as_leaf:
        return EvictDeviceNextNodeResult({}, {}, {}, [], node, made_progress=True)
    if kind is SWA and windows:
        return EvictDeviceNextNodeResult(
            made_progress=True, swa_backup_node_id=node, swa_backup_num_tokens=windows
        )
    if kind is MAMBA and states:
        return EvictDeviceNextNodeResult(made_progress=True, mamba_backup_node_id=node)
    _copy_parts(core, full.cache, node)
    device, host, tokens, lost = core.engine_nodes.evict_node(node, kind)
    return EvictDeviceNextNodeResult(device, host, tokens, [], None, True, lost)


def finish(
    core: CoreState, full: OfCache, kind: ComponentType, node_id: int
) -> EvictDeviceNextNodeResult:
    """Evict a component of a victim, after the attempt to copy it."""
    _end_copy(core, full.cache, node_id)
    try:
        if not core.copies.order.ends_apart() and core.nodes.has(node_id, kind):
            step = core.engine_nodes.evict_node(node_id, kind)
            return EvictDeviceNextNodeResult(step.device, step.host, step.tokens, [], None, True)
    except BadArgument:
        pass  # It is gone, or locked by now.
    return EvictDeviceNextNodeResult(made_progress=True)


def evict_excess_states(
    core: CoreState, tail_node_id: int, most: int, freed: list[torch.Tensor]
) -> None:
    """Evict the states nearest to the root, beyond the most that a path may have.

    Their slots are added to `freed` one by one: the caller frees them also after an error.
    """
    nodes = core.nodes
    path: list[int] = []
    node: int | None = tail_node_id
    while node is not None:
        if nodes.has(node, MAMBA):
            path.append(node)
        node = nodes.parent(node)
    excess = len(path) - most
    for holder in reversed(path):
        below = nodes.children(holder)
        if excess <= 0 or holder == tail_node_id:
            return
        if len(below) != 1 or not nodes.has(below[0], FULL):
            continue
        try:
            step = core.engine_nodes.evict_node(holder, MAMBA)
        except BadArgument:
            continue  # It is locked.
        states = step.device.get(MAMBA)
        if states is not None:
            freed += states
            excess -= 1


def _copy_parts(core: CoreState, controller: Controller, node_id: int) -> None:
    """Have what a victim lacks on the host besides full data copied, as far as there is room.

    The controller does so itself in a walk of that component; in a walk of full data it copies
    nothing of a leaf whose full data has a copy, and its windows and states would be lost.
    """
    needed = core.copies.order.expected
    if needed == NOTHING:
        return
    for kind, tokens, room in zip(KINDS, needed, core.slots.rooms_for(needed), strict=True):
        if room < tokens:
            controller.evict_host(tokens, kind)
    controller.backup_node_for_write_back(node_id)
    _end_copy(core, controller, node_id)


def _end_copy(core: CoreState, controller: Controller, node_id: int) -> None:
    """Wait for the copy of a victim, which the controller does only where full data is copied.

    Else slots would be freed, and written to, before they are read.
    """
    if node_id in core.copies.pending:
        controller.writing_check(write_back=True)
