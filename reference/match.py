"""Match: finds the longest usable prefix of a key.

A match is not read-only: it makes the prefix recent, and it cuts a node if the prefix ends inside
one. It changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

from kvcanon.reference.state import Data, Node, State
from kvcanon.reference.tree import PathNode, node_ending_at, path_to, upwards, walk, walked_pages
from kvcanon.spec.operations import Matched
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.oracle.window import window_nodes
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Key, Slots


def match(state: State, key: Key) -> Matched:
    """Find the longest usable prefix, and make it recent."""
    walked = walk(state, key)
    branch_pages = walked_pages(walked) if state.config.mamba else None
    prefix_pages = _usable_pages(state, walked, _anywhere)
    device_pages = _usable_pages(state, walked, on_device)
    end = node_ending_at(state, walked, prefix_pages)
    touch(state, end, state.tick())
    path = path_to(end)
    pending = {
        data.loading.transfer_id
        for node in path
        for data in node.data.values()
        if data.loading is not None
    }
    slots = _device_slots([node for node in path if node.end <= device_pages])
    return Matched(prefix_pages, device_pages, slots, tuple(sorted(pending)), branch_pages)


def touch(state: State, end: Node, tick: int) -> None:
    """Make recent what a prefix uses: all full data, its window, and the mamba state at its end."""
    path_upwards = list(upwards(end))
    for node in path_upwards:
        node.last_access = tick
    if state.config.window_tokens is not None:
        size = state.config.page_size
        lengths = tuple([len(node.pages) * size for node in path_upwards])
        touched = window_nodes(lengths, state.config.window_tokens, size)
        for node in path_upwards[:touched]:
            node.data[SWA].used = tick
    if state.config.mamba:
        end.data[MAMBA].used = tick


def on_device(data: Data) -> bool:
    """Whether data is on the device; a load in flight has slots, but no bytes yet."""
    return data.device is not None and data.loading is None


def _anywhere(data: Data) -> bool:
    """Whether data is on the host or the device; not if it is only being loaded."""
    return data.host is not None or on_device(data)


def _usable_pages(state: State, walked: list[PathNode], present: Callable[[Data], bool]) -> int:
    """The usable prefix of a walked path, in pages, if only data that is `present` counts."""
    size = state.config.page_size

    def has(component: Component) -> tuple[bool, ...]:
        if component not in state.config.components:
            return (True,) * len(walked)
        return tuple(
            present(node.data[component]) and (component is not MAMBA or shared == len(node.pages))
            for node, shared in walked
        )

    usable_tokens = usable_prefix(
        tuple([shared * size for _, shared in walked]),
        has(FULL),
        has(SWA),
        has(MAMBA),
        state.config.window_tokens or 1,
    )
    return usable_tokens // size


def _device_slots(path: list[Node]) -> Slots:
    """The device slots along a path that its end can use."""
    if not path:
        return Slots()
    full = tuple([slot for node in path for slot in node.data[FULL].device or ()])
    swa: tuple[int, ...] = ()
    if SWA in path[-1].data:
        window = list(takewhile(lambda node: on_device(node.data[SWA]), reversed(path)))
        swa = tuple([slot for node in reversed(window) for slot in node.data[SWA].device or ()])
    mamba = path[-1].data[MAMBA].device or () if MAMBA in path[-1].data else ()
    return Slots(full, swa, mamba)
