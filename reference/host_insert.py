"""Host insert: places pages that were fetched from storage on the host.

Nodes that are on the device only are *refilled*: they get a host copy from the fetched bytes. Pages
that are not in the tree become a new node, on the host only.

Fetched pages after a gap are of no use. If parents need a host copy, too, all pages from the first
one without a copy on are dropped. A copy that is still in flight is a gap, because it may fail.
"""

from __future__ import annotations

from attrs import define

from kvcanon.reference.events import emit_stored
from kvcanon.reference.host import ensure_host_slots
from kvcanon.reference.lock import hold, release_hold
from kvcanon.reference.slots import place
from kvcanon.reference.state import Node, State
from kvcanon.reference.tree import (
    add_leaf,
    cut,
    node_ending_at,
    path_to,
    upwards,
    walk,
    walked_pages,
)
from kvcanon.spec.errors import BadArgument, PrefixNotCached
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Component, Counts, Key


@define
class _Fetched:
    """The fetched bytes, by page of the key, and how many pages were placed where."""

    payload: HostPayload
    full_from: int
    swa_from: int
    tick: int
    placed: int = 0
    refilled: int = 0
    present: int = 0

    def full(self, begin: int, end: int) -> tuple[bytes, ...]:
        return self.payload.full[begin - self.full_from : end - self.full_from]

    def swa(self, begin: int, end: int) -> tuple[bytes, ...]:
        return self.payload.swa[begin - self.swa_from : end - self.swa_from]


def insert_host(state: State, key: Key, start_pages: int, payload: HostPayload) -> HostInserted:
    """Place the fetched pages of `key` from page `start_pages` on."""
    walked = walk(state, key)
    _check(state, key, start_pages, payload, walked_pages(walked))
    fetched = _Fetched(payload, start_pages, len(key) - len(payload.swa), state.tick())
    node = node_ending_at(state, walked, walked_pages(walked))
    # The path is held, so that evictions for the new pages do not take it.
    held = hold(state, node, key, None)
    end = _place_full(state, key, node, fetched)
    if end.end == len(key):
        _place_window(state, key, end, fetched)
        _place_state(state, end, fetched)
    release_hold(state, held)
    dropped = len(payload.full) - fetched.placed - fetched.refilled - fetched.present
    return HostInserted(fetched.placed, fetched.refilled, fetched.present, dropped)


def _check(state: State, key: Key, start: int, payload: HostPayload, cached: int) -> None:
    """Refuse a payload that cannot be placed, before anything has changed."""
    if not state.config.host_tier:
        raise BadArgument("insert_host", "needs a host tier; choose a write policy")
    if not 0 <= start <= len(key):
        raise BadArgument("start_pages", f"is {start}; the key has {len(key)} pages")
    if len(payload.full) != len(key) - start:
        raise BadArgument(
            "payload.full", f"has {len(payload.full)} pages for pages {start}..{len(key)}"
        )
    if len(payload.swa) > len(payload.full) or len(payload.mamba) > min(1, len(payload.full)):
        raise BadArgument("payload", "has window data or states for pages that it lacks")
    by_component = {FULL: payload.full, SWA: payload.swa, MAMBA: payload.mamba}
    for component, payloads in by_component.items():
        if payloads and component not in state.config.components:
            raise BadArgument(f"payload.{component}", "is for a component this cache lacks")
        if any(len(data) != state.config.slot_bytes for data in payloads):
            raise BadArgument(
                f"payload.{component}", f"a slot has {state.config.slot_bytes} bytes; some differ"
            )
    if cached < start:
        raise PrefixNotCached(start, cached)


def _place_full(state: State, key: Key, last: Node, fetched: _Fetched) -> Node:
    """Refill the path and add a leaf; returns the last node down to which host copies reach."""
    end = state.root
    for node in path_to(last):
        reached = _refill(state, node, fetched)
        if reached is None:
            return end
        end = reached
    if end.end < len(key):
        end = _new_host_leaf(state, key, end, fetched)
    return end


def _refill(state: State, node: Node, fetched: _Fetched) -> Node | None:
    """Give a node a host copy if it lacks one; None if the host copies end before it."""
    full = node.data[FULL]
    begin = max(node.start, fetched.full_from)
    if full.host is not None:
        if full.backing is not None:
            return None
        fetched.present += max(0, node.end - begin)
        return node
    if begin > node.start and state.config.backed_parents:
        return None
    if begin >= node.end:
        return node
    if not ensure_host_slots(state, Counts(full=node.end - begin)):
        return None
    if begin > node.start:
        cut(state, node, begin - node.start)
    _fill(state, node, FULL, fetched.full(begin, node.end), fetched.tick)
    emit_stored(state, node, CPU)
    fetched.refilled += len(node.pages)
    return node


def _new_host_leaf(state: State, key: Key, parent: Node, fetched: _Fetched) -> Node:
    """Add a leaf for the rest of the key, or for as many pages as find a free host slot."""
    wanted = len(key) - parent.end
    ensure_host_slots(state, Counts(full=wanted))
    fitting = min(wanted, state.pools[FULL, CPU].free_slots)
    if fitting == 0:
        return parent
    leaf = add_leaf(state, parent, key.prefix(parent.end + fitting), fetched.tick)
    _fill(state, leaf, FULL, fetched.full(leaf.start, leaf.end), fetched.tick)
    emit_stored(state, leaf, CPU)
    fetched.placed += fitting
    return leaf


def _place_window(state: State, key: Key, end: Node, fetched: _Fetched) -> None:
    """Give the nodes at the end the window data that they lack on the host, all or none."""
    if not fetched.payload.swa:
        return
    # The window is held, so that window data it has on the host is not evicted for the rest.
    held = hold(state, end, key, fetched.swa_from)
    lacking = [
        node
        for node in upwards(end)
        if node.start >= fetched.swa_from and node.data[SWA].host is None
    ]
    if ensure_host_slots(state, Counts(swa=sum(len(node.pages) for node in lacking))):
        for node in lacking:
            _fill(state, node, SWA, fetched.swa(node.start, node.end), fetched.tick)
    release_hold(state, held)


def _place_state(state: State, end: Node, fetched: _Fetched) -> None:
    """Give the end the mamba state that it lacks on the host."""
    states = fetched.payload.mamba
    if states and end.data[MAMBA].host is None and ensure_host_slots(state, Counts(mamba=1)):
        _fill(state, end, MAMBA, states, fetched.tick)


def _fill(
    state: State, node: Node, component: Component, payloads: tuple[bytes, ...], tick: int
) -> None:
    """Place bytes in free host slots of a node."""
    pool = state.pools[component, CPU]
    slots = pool.take(len(payloads))
    pool.payloads.update(zip(slots, payloads, strict=True))
    data = node.data[component]
    if data.device is None:
        data.used = tick
    place(state, node, component, CPU, slots)
