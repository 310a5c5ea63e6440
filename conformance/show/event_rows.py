"""A tree from events alone, for caches that do not show their state: what a router knows.

Each page that an event stored is a node, below the page that the event names as its parent. Slots,
locks, windows and copies in flight are in no event, so that they are not shown. Of several streams
at once each has a book of its own: a hash in one book is another block than in the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TypeAlias

from kvcanon.conformance.show.rows import ODDITY, ROW_LENGTH, UNKNOWN_SLOTS, Delta, Row, StateRows
from kvcanon.conformance.show.snapshot_rows import Namespaces, pages_text
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.types import CPU, GPU, Medium, NodeId

ROOT = 0
ABSENT = -2
"""The parent of a page whose parent was not stored; -1 is that of the root."""
DEVICE, HOST = 3, 4
"""The places of the full data in a row."""


WIRE_BYTES = 8

BookHash: TypeAlias = tuple[str, bytes]
"""The book of a block, and its hash."""


class EventRows:
    """Folds events into rows."""

    def __init__(self, namespaces: Namespaces) -> None:
        self.now = StateRows()
        self.namespaces = namespaces
        self.blocks: Counter[Medium] = Counter()
        """How many pages are on each medium."""
        self._ids: dict[BookHash, NodeId] = {}
        self._hashes: dict[NodeId, BookHash] = {}
        self._media: dict[NodeId, set[Medium]] = {}
        self._children: dict[NodeId, set[NodeId]] = {}
        self._last_id = ROOT
        self.now.change({ROOT: _empty_row(-1)}, root=ROOT)

    def move_to(self, events: Iterable[Event], book: str = "") -> Delta:
        """Fold the next events of a book, and return what they changed."""
        return self.move_books((book, event) for event in events)

    def move_books(self, events: Iterable[tuple[str, Event]]) -> Delta:
        """Fold the next events, each of its book, and return what they changed."""
        rows: dict[NodeId, Row | None] = {}
        for book, event in events:
            if isinstance(event, AllBlocksCleared):
                self._clear(book, rows)
            elif isinstance(event, BlockStored):
                self._store(event, book, rows)
            else:
                node_id = self._ids.get((book, event.block_hash))
                if node_id is not None:
                    self._take_off(node_id, event.medium)
                    self._drop_if_empty(node_id, rows)
        return self.now.change(rows)

    def node_of(self, block_hash: bytes, books: Iterable[str]) -> NodeId | None:
        """The node of a block in the first of some books that has it."""
        found = (self._ids.get((book, block_hash)) for book in books)
        return next((node_id for node_id in found if node_id is not None), None)

    def leave_out_all_but(self, wanted: Collection[BookHash]) -> int:
        """Forget the pages that are not wanted and are before none that is; returns how many."""
        kept = {ROOT}
        for each in wanted:
            node_id: object = self._ids.get(each)
            while isinstance(node_id, int) and node_id in self._media and node_id not in kept:
                kept.add(node_id)
                node_id = self.now.rows[node_id][0]
        out = [node_id for node_id in self._media if node_id not in kept]
        for node_id in out:
            del self._ids[self._hashes.pop(node_id)], self._media[node_id], self.now.rows[node_id]
            self._children.pop(node_id, None)
        self._children = {at: below & kept for at, below in self._children.items()}
        return len(out)

    def _clear(self, book: str, rows: dict[NodeId, Row | None]) -> None:
        for node_id, each in list(self._hashes.items()):
            if each[0] == book:
                for medium in tuple(self._media[node_id]):
                    self._take_off(node_id, medium)
                rows[node_id] = None
                self._forget(node_id)
        self._children[ROOT] = {
            node_id for node_id in self._children.get(ROOT, ()) if node_id in self._media
        }

    def _forget(self, node_id: NodeId) -> None:
        del self._media[node_id], self._ids[self._hashes.pop(node_id)]
        self._children.pop(node_id, None)

    def _take_off(self, node_id: NodeId, medium: Medium) -> None:
        if medium in self._media[node_id]:
            self._media[node_id].remove(medium)
            self.blocks[medium] -= 1

    def _store(self, event: BlockStored, book: str, rows: dict[NodeId, Row | None]) -> None:
        node_id = self._ids.get((book, event.block_hash))
        if node_id is None:
            before = event.parent_hash
            parent = ROOT if before is None else self._ids.get((book, before), ABSENT)
            node_id = self._last_id = self._last_id + 1
            self._ids[book, event.block_hash] = node_id
            self._hashes[node_id] = book, event.block_hash
            self._media[node_id] = set()
            self._children.setdefault(parent, set()).add(node_id)
            row = _empty_row(parent)
            row[1] = self.namespaces.number(event.namespace, book)
            row[2] = pages_text([event.page])
            if before is not None and parent == ABSENT:
                row[ODDITY] = f"its parent {hash_text(before)} was not stored"
            rows[node_id] = row
        if event.medium not in self._media[node_id]:
            self._media[node_id].add(event.medium)
            self.blocks[event.medium] += 1
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
            self._forget(node_id)
            self._children.get(parent, set()).discard(node_id)
            node_id = parent


def hash_text(block_hash: bytes) -> str:
    """A hash in short; one of 64 bits, as on the wire, is shown whole."""
    return block_hash.hex() if len(block_hash) <= WIRE_BYTES else block_hash.hex()[:8]


def _empty_row(parent: NodeId) -> Row:
    row: Row = [0] * ROW_LENGTH
    row[0], row[2], row[ODDITY] = parent, "", ""
    return row
