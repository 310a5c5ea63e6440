"""Draws a state of a cache as SVG: the tree, its data on each medium, locks, copies and slots.

The tree grows to the right, as prompts do. A node is a box; each page is a column of it, each
component on each medium a row. A cell has the number of its slot. Colours are classes, which
`book.css` sets for light and dark pages; `standalone` puts them into the picture itself. The
description of a picture says in words all that it shows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from attrs import frozen

from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.lab.site.state_words import (
    describe_state,
    pools_in_words,
    receipts_and_copies,
    row_name,
)
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, GPU, MAMBA, Component, Medium, NodeId, Slot

CELL = 26
ROW = 20
HEAD = 22
LABEL = 104
GAP = 26
MARGIN = 8
CHAR = 6.3
MOST_SLOTS = 24
"""A pool with more slots is drawn as counts."""


@frozen
class Box:
    """Where a node is drawn."""

    node: NodeState
    left: float
    top: float
    width: float
    height: float


def draw_state(
    state: Snapshot, title: str, marked: Collection[NodeId] = (), styles: str = ""
) -> Markup:
    """Draw a state. `marked` nodes get a red frame; `styles` are CSS for a picture of its own."""
    rows = rows_of(state)
    boxes = _layout(state, rows)
    tree_height = max((box.top + box.height for box in boxes.values()), default=0) + MARGIN
    pools, height, pool_width = _pools(state, tree_height + 6)
    notes = list(receipts_and_copies(state))
    for at, note in enumerate(notes):
        pools.append(_text(note, MARGIN, height + 14 + 16 * at, "kv-note"))
    height += 16 * len(notes) + MARGIN
    width = max(
        max((box.left + box.width for box in boxes.values()), default=0),
        pool_width,
        max((len(note) * CHAR + MARGIN for note in notes), default=0),
    )
    width += MARGIN
    links = [_link(boxes, box) for box in boxes.values() if box.node.parent_id in boxes]
    return tag(
        "svg",
        tag("title", title),
        tag("desc", describe_state(state)),
        *([tag("style", Markup(styles))] if styles else []),
        *links,
        *(_node(state, box, rows, marked=box.node.node_id in marked) for box in boxes.values()),
        *pools,
        xmlns="http://www.w3.org/2000/svg",
        class_="kv",
        role="img",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        width=f"{width:.0f}",
        height=f"{height:.0f}",
    )


def rows_of(state: Snapshot) -> list[tuple[Component, Medium]]:
    """The rows of each node: a component on a medium, where there is a pool for it."""
    return [
        (component, medium)
        for component in state.config.components
        for medium in (GPU, CPU)
        if (pool := state.pools.get((component, medium))) is not None and pool.capacity
    ]


def nodes_named(text: str) -> set[NodeId]:
    """The nodes that the text of a violation names."""
    return {int(number) for number in re.findall(r"\bnodes? (\d+)\b", text)}


def _layout(state: Snapshot, rows: list[tuple[Component, Medium]]) -> dict[NodeId, Box]:
    """Place each node right of its parent, and below the branches before it."""
    boxes: dict[NodeId, Box] = {}
    height = HEAD + ROW * len(rows) + 6

    def place(node: NodeState, left: float, top: float) -> float:
        """Place a node and what is below it; return where the next branch begins."""
        is_root = node.node_id == state.root_id
        columns = max(len(node.pages), 1)
        width = 44.0 if is_root else LABEL + CELL * columns + 8
        boxes[node.node_id] = Box(node, left, top, width, HEAD + 4 if is_root else height)
        below = top
        for child_id in node.child_ids:
            child = state.nodes.get(child_id)
            if child is not None and child_id not in boxes:
                below = place(child, left + width + GAP, below)
        return max(below, top + (HEAD + 4 if is_root else height) + 12)

    below = place(state.root, MARGIN, MARGIN)
    for node in state.nodes.values():
        # A node that nothing leads to is a fault; it is drawn below the tree.
        if node.node_id not in boxes:
            below = place(node, MARGIN, below)
    return boxes


def _link(boxes: dict[NodeId, Box], box: Box) -> Markup:
    parent = boxes[box.node.parent_id] if box.node.parent_id is not None else box
    x1, y1 = parent.left + parent.width, parent.top + (HEAD + 4) / 2
    x2, y2 = box.left, box.top + (HEAD + 4) / 2
    middle = (x1 + x2) / 2
    path = f"M{x1:.0f} {y1:.0f}C{middle:.0f} {y1:.0f} {middle:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"
    return tag("path", d=path, class_="kv-link")


def _node(
    state: Snapshot, box: Box, rows: list[tuple[Component, Medium]], *, marked: bool
) -> Markup:
    node = box.node
    frame = "kv-node kv-marked" if marked else "kv-node"
    parts = [_rect(box.left, box.top, box.width, box.height, frame, radius=5)]
    if node.node_id == state.root_id:
        parts.append(_text("root", box.left + 8, box.top + 17, "kv-head"))
        return tag("g", *parts)
    parts.append(_text(f"node {node.node_id}", box.left + 8, box.top + 15, "kv-head"))
    for at, page in enumerate(node.pages):
        words = "·".join(_token(token) for token in page)
        words = words if len(words) <= 4 else f"{words[:3]}…"
        x = box.left + LABEL + CELL * at + CELL / 2
        parts.append(_text(words, x, box.top + 15, "kv-token", anchor="middle"))
    for at, (component, medium) in enumerate(rows):
        top = box.top + HEAD + ROW * at
        parts += _row(box, component, medium, top)
    return tag("g", *parts)


def _row(box: Box, component: Component, medium: Medium, top: float) -> Iterator[Markup]:
    data = box.node[component]
    refs = data.lock_refs if medium is GPU else 0
    yield _text(row_name(component, medium), box.left + 8, top + 14, "kv-label")
    if refs:
        yield _lock(box.left + LABEL - 23, top + 3, refs)
    slots, pending = data.slots(medium), data.pending(medium)
    pages = len(box.node.pages)
    for at in range(pages):
        left = box.left + LABEL + CELL * at
        if component is MAMBA:
            slot = slots[0] if slots and at == pages - 1 else None
            if at < pages - 1:
                continue
        else:
            slot = slots[at] if slots and at < len(slots) else None
        yield from _cell(left, top, slot, f"kv-{component.value}", medium, filling=pending)


def _cell(
    left: float, top: float, slot: Slot | None, kind: str, medium: Medium, *, filling: int | None
) -> Iterator[Markup]:
    """One page's slot: filled, being filled by a copy, or none."""
    if slot is None:
        yield _rect(left + 1, top + 1, CELL - 2, ROW - 3, "kv-none", radius=2)
        return
    host = " kv-host" if medium is CPU else ""
    coming = " kv-coming" if filling is not None else ""
    yield _rect(left + 1, top + 1, CELL - 2, ROW - 3, f"{kind}{host}{coming}", radius=2)
    arrow = ("↓" if medium is CPU else "↑") if filling is not None else ""
    style = "kv-slot-light" if coming or host else "kv-slot"
    yield _text(f"{arrow}{slot}", left + CELL / 2, top + 14, style, anchor="middle")


def _lock(left: float, top: float, refs: int) -> Markup:
    """A padlock, and how many locks there are."""
    return tag(
        "g",
        tag("path", d=f"M{left + 2:.0f} {top + 5:.0f}v-1.5a3 3 0 0 1 6 0v1.5", class_="kv-shackle"),
        _rect(left, top + 5, 10, 7, "kv-lock", radius=1),
        _text(str(refs), left + 12, top + 12, "kv-refs"),
    )


def _pools(state: Snapshot, top: float) -> tuple[list[Markup], float, float]:
    """Draw the slots of each pool; return also where the drawing ends, below and at the right."""
    parts: list[Markup] = []
    widest = 0.0
    for component, medium in rows_of(state):
        pool = state.pools[component, medium]
        name = f"{row_name(component, medium)} slots"
        parts.append(_text(name, MARGIN, top + 14, "kv-label"))
        left = MARGIN + 108.0
        if pool.capacity > MOST_SLOTS:
            words = pools_in_words(state, component, medium)
            parts.append(_text(words, left, top + 14, "kv-note"))
            widest = max(widest, left + len(words) * CHAR)
        else:
            parts += _pool(state, component, medium, (left, top))
            widest = max(widest, left + 20 * pool.capacity)
        top += ROW
    return parts, top, widest


def _pool(
    state: Snapshot,
    component: Component,
    medium: Medium,
    corner: tuple[float, float],
) -> Iterator[Markup]:
    """A square for each slot, by who owns it."""
    (left, top), pool = corner, state.pools[component, medium]
    in_tree = {
        slot for node in state.nodes.values() for slot in node[component].slots(medium) or ()
    }
    copying = {
        slot
        for copy in state.transfers
        if copy.direction.target is medium
        for slot in copy.targets.get(component, ())
    }
    host = " kv-host" if medium is CPU else ""
    for slot in range(pool.capacity):
        if slot in pool.free_set:
            kind = "kv-free"
        elif slot in pool.held:
            kind = "kv-request"
        elif slot in in_tree or slot in copying:
            kind = f"kv-{component.value}{host}"
        else:
            kind = "kv-lost"
        light = kind == "kv-free" or bool(host)
        yield _rect(left + 20 * slot, top + 2, 18, 15, kind, radius=2)
        style = "kv-slot-light" if light else "kv-slot"
        yield _text(str(slot), left + 20 * slot + 9, top + 13, style, anchor="middle")


def _token(token: object) -> str:
    return "/".join(map(str, token)) if isinstance(token, tuple) else str(token)


def _rect(
    left: float, top: float, width: float, height: float, class_: str, *, radius: int
) -> Markup:
    return tag(
        "rect",
        x=f"{left:g}",
        y=f"{top:g}",
        width=f"{width:g}",
        height=f"{height:g}",
        rx=str(radius),
        class_=class_,
    )


def _text(words: str, left: float, top: float, class_: str, *, anchor: str = "start") -> Markup:
    at_middle = {} if anchor == "start" else {"text_anchor": anchor}
    return tag("text", words, x=f"{left:g}", y=f"{top:g}", class_=class_, **at_middle)
