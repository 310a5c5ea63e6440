"""Insert: a request hands the slots that it computed to the cache.

For the part of the key that is in the tree, incoming slots are duplicates and are freed, unless a
node lacks that data: then the node adopts them. The rest of the key becomes a new leaf.

A mamba state is at the end of a node, so the path is cut where a state of the insert ends. Others
that part from the prompt there can go on from that state.

A node may have lost window data that the request still has; the insert restores it (*heals* the
node). If the request has freed window data that the node still has, nothing changes.
"""

from __future__ import annotations

from itertools import pairwise

from attrs import define

from kvcanon.reference.backup import back_up, unbacked_pages
from kvcanon.reference.events import emit_stored
from kvcanon.reference.match import on_device, touch
from kvcanon.reference.slots import place, release, require_held, unhold
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import PathNode, add_leaf, cut, cut_path_at, path_to, upwards, walk
from kvcanon.spec.errors import BadArgument, PrefixNotCached, TransferPending
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot, Slots


@define
class _Incoming:
    """The incoming slots, by page of the key, and how many were adopted and freed."""

    slots: Slots
    full_from: int
    """First page with an incoming full slot."""
    swa_from: int
    """First page with an incoming window slot."""
    state_pages: tuple[int, ...]
    """How many pages are before the end of each incoming state."""
    adopted: dict[Component, int]
    freed: dict[Component, int]

    def full(self, begin: int, end: int) -> tuple[Slot, ...]:
        return self.slots.full[begin - self.full_from : end - self.full_from]

    def swa(self, begin: int, end: int) -> tuple[Slot, ...]:
        return self.slots.swa[begin - self.swa_from : end - self.swa_from]


def insert(
    state: State,
    key: Key,
    start_pages: int,
    slots: Slots,
    *,
    counted_pages: int,
    priority: int,
    state_pages: tuple[int, ...] = (),
) -> Inserted:
    """Take ownership of the slots of `key` from page `start_pages` on."""
    walked = walk(state, key)
    _check_call(state, key, start_pages, slots, counted_pages, state_pages=state_pages)
    _check_path(walked, start_pages)
    present = _present_pages(walked)
    unhold(state, slots)
    none = dict.fromkeys(Component, 0)
    swa_from = len(key) - len(slots.swa)
    at_end = (len(key),) * len(slots.mamba)
    incoming = _Incoming(
        slots, start_pages, swa_from, state_pages or at_end, adopted=dict(none), freed=dict(none)
    )
    tick = state.tick()

    end = state.root
    for node, shared in walked:
        end = node if shared == len(node.pages) else cut(state, node, shared)
        _merge(state, end, incoming, tick)
    if end.end < len(key):
        leaf = add_leaf(state, end, key, tick, priority)
        end = _fill_leaf(state, leaf, incoming, tick)
    _attach_states(state, end, incoming, tick)

    touch(state, end, tick)
    for node in path_to(end):
        node.priority = max(node.priority, priority)
        if node.end > counted_pages:
            node.hit_count += 1
    backups = _back_up_hit_nodes(state, end)
    return Inserted(
        present_pages=present,
        adopted=Counts.of(incoming.adopted),
        freed=Counts.of(incoming.freed),
        backups=backups,
        backup_declined_pages=unbacked_pages(state, end),
    )


def _check_call(
    state: State, key: Key, start: int, slots: Slots, counted: int, *, state_pages: tuple[int, ...]
) -> None:
    """Refuse slots that do not fit the key or that no request holds."""
    if not 0 <= start <= len(key):
        raise BadArgument("start_pages", f"is {start}; the key has {len(key)} pages")
    if not 0 <= counted <= len(key):
        raise BadArgument("counted_pages", f"is {counted}; the key has {len(key)} pages")
    if len(slots.full) != len(key) - start:
        raise BadArgument(
            "slots.full", f"has {len(slots.full)} slots for pages {start}..{len(key)} of the key"
        )
    if len(slots.swa) > len(slots.full):
        raise BadArgument("slots.swa", "has more slots than pages are handed over")
    _check_states(key, slots, state_pages)
    require_held(state, slots)
    _check_pairs(state, slots)


def _check_states(key: Key, slots: Slots, state_pages: tuple[int, ...]) -> None:
    """Refuse states without a page of the key, and pages that are not in order."""
    if not state_pages:
        if len(slots.mamba) > min(1, len(key)):
            raise BadArgument(
                "slots.mamba",
                "holds the one state at the end of a key that is not empty; name the pages of "
                "several in state_pages",
            )
        return
    if len(state_pages) != len(slots.mamba):
        raise BadArgument(
            "state_pages", f"has {len(state_pages)} pages for {len(slots.mamba)} states"
        )
    ascending = all(earlier < later for earlier, later in pairwise((0, *state_pages)))
    if not ascending or state_pages[-1] > len(key):
        raise BadArgument(
            "state_pages", f"is {state_pages}; give ascending pages from 1 to {len(key)}"
        )


def _check_path(walked: list[PathNode], start: int) -> None:
    """Refuse a path that is not on the device up to `start`, or is still being loaded."""
    resident = _present_pages(walked)
    if resident < start:
        raise PrefixNotCached(start, resident)
    for node, _ in walked:
        for data in node.data.values():
            if data.loading is not None:
                raise TransferPending(data.loading.transfer_id)


def _check_pairs(state: State, slots: Slots) -> None:
    """Refuse window slots that are not exactly those paired with the full slots."""
    unpaired = len(slots.full) - len(slots.swa)
    for index, full in enumerate(slots.full):
        expected = slots.swa[index - unpaired] if index >= unpaired else None
        if state.swa_of_full.get(full) != expected:
            raise BadArgument(
                "slots.swa",
                f"full slot {full} is paired with window slot {state.swa_of_full.get(full)}, "
                f"but {expected} is handed over for its page; free the one or hand it over",
            )


def _present_pages(walked: list[PathNode]) -> int:
    """How many leading pages of the walked path have full data on the device."""
    present = 0
    for node, shared in walked:
        if not on_device(node.data[FULL]):
            break
        present = node.start + shared
    return present


def _merge(state: State, node: Node, incoming: _Incoming, tick: int) -> None:
    """Give a node on the path the incoming slots that it lacks, and free the others."""
    begin = max(node.start, incoming.full_from)
    if begin >= node.end:
        return
    full = incoming.full(begin, node.end)
    if node.data[FULL].device is None:
        _adopt(state, node, FULL, full, incoming)
        emit_stored(state, node, GPU)
    else:
        _free(state, FULL, full, incoming)
    _merge_window(state, node, max(begin, incoming.swa_from), incoming, tick)


def _merge_window(state: State, node: Node, begin: int, incoming: _Incoming, tick: int) -> None:
    """Heal a tombstone from page `begin` on; it keeps its full slots, locked or not."""
    if begin >= node.end or SWA not in node.data:
        return
    swa = incoming.swa(begin, node.end)
    if node.data[SWA].device is not None:
        _free(state, SWA, swa, incoming)
        return
    if begin > node.start:
        cut(state, node, begin - node.start)
    if node.data[SWA].host is None:
        node.data[SWA].used = tick
    _adopt(state, node, SWA, swa, incoming)


def _fill_leaf(state: State, leaf: Node, incoming: _Incoming, tick: int) -> Node:
    """Give a new leaf its slots, and cut it so that its last node is no longer than the window."""
    _adopt(state, leaf, FULL, incoming.full(leaf.start, leaf.end), incoming)
    emit_stored(state, leaf, GPU)
    if incoming.swa_from < leaf.end and SWA in leaf.data:
        if leaf.start < incoming.swa_from:
            cut(state, leaf, incoming.swa_from - leaf.start)
        leaf.data[SWA].used = tick
        _adopt(state, leaf, SWA, incoming.swa(leaf.start, leaf.end), incoming)
        if len(leaf.pages) > state.config.window_pages:
            cut(state, leaf, len(leaf.pages) - state.config.window_pages)
    return leaf


def _attach_states(state: State, end: Node, incoming: _Incoming, tick: int) -> None:
    """Give the path the incoming states at pages that have none; free the others."""
    for page, slot in zip(incoming.state_pages, incoming.slots.mamba, strict=True):
        cut_path_at(state, end, page)
        node = next(each for each in upwards(end) if each.end == page)
        data = node.data[MAMBA]
        if data.device is not None:
            _free(state, MAMBA, (slot,), incoming)
            continue
        if data.host is None:
            data.used = tick
        _adopt(state, node, MAMBA, (slot,), incoming)


def _back_up_hit_nodes(state: State, end: Node) -> tuple[int, ...]:
    """Back up the path down to its deepest node with enough hits."""
    threshold = state.config.backup_hits
    if threshold is None:
        return ()
    for node in path_to(end)[::-1]:
        if node.hit_count >= threshold:
            return back_up(state, node)
    return ()


def _adopt(
    state: State, node: Node, component: Component, slots: tuple[Slot, ...], incoming: _Incoming
) -> None:
    place(state, node, component, GPU, slots)
    incoming.adopted[component] += len(slots)


def _free(state: State, component: Component, slots: tuple[Slot, ...], incoming: _Incoming) -> None:
    release(state, component, GPU, slots)
    incoming.freed[component] += len(slots)
