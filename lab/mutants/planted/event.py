"""Faults of events: events that are missing, duplicate or wrong."""

from __future__ import annotations

from collections.abc import Callable

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import (
    backup,
    cache,
    departures,
    events,
    evict,
    host_insert,
    insert,
    transfer,
    tree,
)
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import BlockStored, Event
from kvcanon.spec.transfer import Agree, Direction, TransferEngine
from kvcanon.spec.types import CPU, FULL, GPU, Component, Medium


@mutant("EVENT-10", "C2 sgl#22894")
@around(events.emit_removed, departures)
def demotion_is_silent(
    emit_removed: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """No remove is emitted for a page that leaves the device and stays on the host."""
    if medium is CPU:
        emit_removed(state, node, medium)


@mutant("EVENT-10", "C19 lmc#3532")
@around(events.emit_removed, departures)
def host_eviction_is_silent(
    emit_removed: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """No remove is emitted for a page that leaves the host."""
    if medium is GPU:
        emit_removed(state, node, medium)


@mutant("EVENT-10", "C3 sgl#38486")
def host_insert_is_silent(patch: Overrides) -> None:
    """No store is emitted for pages that a host insert places."""
    patch.setattr(host_insert, "emit_stored", lambda *_: None)


def told_otherwise(patch: Overrides, tell: Callable[[list[BlockStored]], list[Event]]) -> None:
    """Replace the store events of a node, whichever operation emits them."""
    emit_stored = events.emit_stored

    def otherwise(state: State, node: Node, medium: Medium) -> None:
        at = len(state.events)
        emit_stored(state, node, medium)
        stores = [event for event in state.events[at:] if isinstance(event, BlockStored)]
        state.events[at:] = tell(stores)

    for module in (insert, host_insert, transfer):
        patch.setattr(module, "emit_stored", otherwise)


@mutant("EVENT-1", "C14 vllm#58119")
def last_page_is_stored_first(patch: Overrides) -> None:
    """The stores of a node are emitted from its last page to its first, children before parents."""
    told_otherwise(patch, lambda stores: list(reversed(stores)))


@mutant("EVENT-2", "D1 vllm#49125")
@around(insert._free)
def pages_are_stored_again(
    free: Original[None],
    state: State,
    component: Component,
    some: tuple[int, ...],
    incoming: insert._Incoming,
) -> None:
    """When an insert frees a duplicate, a store is emitted for a page that was stored before."""
    free(state, component, some, incoming)
    for node, owned in [(node, node.data[FULL].device) for node in state.owners[FULL, GPU]]:
        if component is FULL and owned is not None and node.hashes is not None:
            events.emit_stored(state, node, GPU)
            break


@mutant("EVENT-10", "C2 sgl#22894", founding=True)
@instead(transfer.enqueue, backup)
def backup_is_announced_at_its_enqueue(
    state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
) -> Transfer:
    """The store of a backup is emitted when the copy is enqueued, not when it is done."""
    enqueued = transfer.enqueue(state, direction, parts, held)
    for node, component in parts:
        if component is FULL:
            events.emit_stored(state, node, CPU)
    return enqueued


@mutant("EVENT-4", "C4 sgl#32537")
@around(events.emit_stored, insert)
def return_to_the_device_is_silent(
    emit_stored: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """No store is emitted for a page that is on the host and is computed again."""
    if node.data[FULL].host is None:
        emit_stored(state, node, medium)


@mutant("EVENT-4", "C5 sgl#29750")
@around(events.emit_removed, departures)
def deletion_is_silent(
    emit_removed: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """No remove is emitted for a page that leaves the tree; only demotions emit one."""
    if medium is GPU and node.data[FULL].host is not None:
        emit_removed(state, node, medium)


@mutant("EVENT-10", "sgl#24718", founding=True)
@around(evict._evict_inside)
def tombstone_is_announced(
    evict_inside: Original[None], state: State, node: Node, component: Component
) -> None:
    """A remove is emitted for a node that loses its window data only."""
    events.emit_removed(state, node, GPU)
    evict_inside(state, node, component)


@mutant("EVENT-5")
@around(tree.cut)
def cut_is_announced(cut: Original[Node], state: State, node: Node, at: int) -> Node:
    """A match that cuts a node emits stores for the upper part."""
    upper = cut(state, node, at)
    events.emit_stored(state, upper, GPU)
    return upper


@mutant("EVENT-6", "C17 vllm#44103")
def pages_are_told_under_other_names(patch: Overrides) -> None:
    """A store has a page hash that is not the hash of its page."""
    told_otherwise(
        patch,
        lambda stores: [evolve(event, block_hash=b"?" + event.block_hash[1:]) for event in stores],
    )


@mutant("EVENT-7", "C16 vllm-ascend#12252")
def parent_chain_skips_a_page(patch: Overrides) -> None:
    """A store names the page before the parent as the parent."""

    def skipping(stores: list[BlockStored]) -> list[Event]:
        earlier = [None, None, *(event.parent_hash for event in stores)]
        return [
            event if at < 2 else evolve(event, parent_hash=earlier[at + 1])
            for at, event in enumerate(stores)
        ]

    told_otherwise(patch, skipping)


@mutant("EVENT-8")
@around(events.emit_cleared, cache)
def reset_is_silent(emit_cleared: Original[None], state: State) -> None:
    """A reset emits no event."""
    if state.clock == 0:
        emit_cleared(state)


@mutant("EVENT-9", "C15 vllm#44451")
def tokens_and_names_do_not_line_up(patch: Overrides) -> None:
    """Each store has the tokens of all pages that were stored in the same call."""

    def together(stores: list[BlockStored]) -> list[Event]:
        units = tuple(unit for event in stores for unit in event.page)
        return [evolve(event, page=units) for event in stores]

    told_otherwise(patch, together)


@mutant("EVENT-9", "A29 sgl#10846")
def bigrams_are_told_as_tokens(patch: Overrides) -> None:
    """A store of a bigram page has only the first token of each pair."""

    def firsts(stores: list[BlockStored]) -> list[Event]:
        return [
            evolve(
                event,
                page=tuple([unit[0] if isinstance(unit, tuple) else unit for unit in event.page]),
            )
            for event in stores
        ]

    told_otherwise(patch, firsts)


@mutant("EVENT-10", "C13 vllm#45261")
@around(events.emit_stored, transfer)
def load_back_is_silent(
    emit_stored: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """No store is emitted for pages that a load-back brings to the device."""
    if medium is CPU:
        emit_stored(state, node, medium)


@mutant("EVENT-11")
@around(events.emit_removed, departures)
def only_the_latest_events_wait(
    emit_removed: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """When too many events wait, the oldest are dropped."""
    emit_removed(state, node, medium)
    del state.events[:-8]


@mutant("EVENT-12", "D18 trt#4596")
@around(events.emit_removed, departures)
def beginning_is_removed_first(
    emit_removed: Original[None], state: State, node: Node, medium: Medium
) -> None:
    """The removes of a node are emitted from its first page to its last."""
    at = len(state.events)
    emit_removed(state, node, medium)
    state.events[at:] = reversed(state.events[at:])


@mutant("EVENT-13")
@around(cache.ReferenceCache.__init__, cache.ReferenceCache)
def beginning_is_silent(
    begin: Original[None],
    self: cache.ReferenceCache,
    config: CacheConfig,
    engine: TransferEngine | None = None,
    agree: Agree | None = None,
) -> None:
    """A new cache emits no AllBlocksCleared: routers keep what its predecessor had."""
    begin(self, config, engine, agree)
    self.take_events()


@mutant("EVENT-14", "C2 sgl#22894")
@around(departures.end_departures, evict)
def demoted_pages_are_removed_first(end_departures: Original[None], state: State) -> None:
    """Under write_back the remove of a page on the device precedes its store on the host."""
    at = len(state.events)
    end_departures(state)
    state.events[at:] = sorted(state.events[at:], key=lambda e: isinstance(e, BlockStored))
