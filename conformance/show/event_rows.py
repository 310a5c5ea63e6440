"""A tree from events alone, for caches that do not show their state: what a router knows.

Each page that an event stored is a node, below the page that the event names as its parent. Slots,
locks, windows and copies in flight are in no event, so that they are not shown.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvcanon.conformance.show.rows import ODDITY, ROW_LENGTH, UNKNOWN_SLOTS, Delta, Row, StateRows
from kvcanon.conformance.show.snapshot_rows import Namespaces, pages_text
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.types import CPU, GPU, Medium, NodeId

ROOT = 0
DEVICE, HOST = 3, 4
"""The places of the full data in a row."""


class EventRows:
    """Folds events into rows."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.now = StateRows()
        self._namespaces = namespaces
        self._ids: dict[bytes, NodeId] = {}
        self._hashes: dict[NodeId, bytes] = {}
        self._media: dict[NodeId, set[Medium]] = {}
        self._children: dict[NodeId, set[NodeId]] = {}
        self._last_id = ROOT
        self.now.change({ROOT: _empty_row(-1)}, root=ROOT)

    def move_to(self, events: Iterable[Event]) -> Delta:
        """Fold the next events, and return what they changed."""
        rows: dict[NodeId, Row | None] = {}
        for event in events:
            if isinstance(event, AllBlocksCleared):
                rows.update(dict.fromkeys(self._media))
                self._ids.clear()
                self._hashes.clear()
                self._media.clear()
                self._children.clear()
            elif isinstance(event, BlockStored):
                self._store(event, rows)
            else:
                node_id = self._ids.get(event.block_hash)
                if node_id is not None:
                    self._media[node_id].discard(event.medium)
                    self._drop_if_empty(node_id, rows)
        return self.now.change(rows)

    def _store(self, event: BlockStored, rows: dict[NodeId, Row | None]) -> None:
        parent = ROOT if event.parent_hash is None else self._ids.get(event.parent_hash, -1)
        node_id = self._ids.get(event.block_hash)
        if node_id is None:
            node_id = self._last_id = self._last_id + 1
            self._ids[event.block_hash] = node_id
            self._hashes[node_id] = event.block_hash
            self._media[node_id] = set()
            self._children.setdefault(parent, set()).add(node_id)
            row = _empty_row(parent)
            row[1] = self._namespaces.number(event.namespace)
            row[2] = pages_text([event.page])
            if parent == -1 and event.parent_hash is not None:
                row[ODDITY] = f"its parent {event.parent_hash.hex()[:8]} was not stored"
            rows[node_id] = row
        self._media[node_id].add(event.medium)
        self._set_media(node_id, rows)

    def _row_of(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> Row:
        row = rows.get(node_id)
        return row if row is not None else list(self.now.rows[node_id])

    def _set_media(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> None:
        row, media = self._row_of(node_id, rows), self._media[node_id]
        row[DEVICE] = UNKNOWN_SLOTS if GPU in media else 0
        row[HOST] = UNKNOWN_SLOTS if CPU in media else 0
        others = sorted(each.value for each in media - {GPU, CPU})
        if others or str(row[ODDITY]).startswith("also on "):
            row[ODDITY] = f"also on {', '.join(others)}" if others else ""
        rows[node_id] = row

    def _drop_if_empty(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> None:
        """Drop a page that is on no medium, and those above it that it alone kept."""
        self._set_media(node_id, rows)
        while node_id in self._media and not (self._media[node_id] or self._children.get(node_id)):
            parent = self._row_of(node_id, rows)[0]
            assert isinstance(parent, int)  # noqa: S101  # `_store` wrote it.
            rows[node_id] = None
            del self._media[node_id], self._ids[self._hashes.pop(node_id)]
            self._children.pop(node_id, None)
            self._children.get(parent, set()).discard(node_id)
            node_id = parent


def _empty_row(parent: NodeId) -> Row:
    row: Row = [0] * ROW_LENGTH
    row[0], row[2], row[ODDITY] = parent, "", ""
    return row
