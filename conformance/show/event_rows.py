"""A tree from events alone, for caches that do not show their state: what a router knows.

Each page that an event stored is a node, below the page that the event names as its parent. Slots,
locks, windows and copies in flight are in no event, so that they are not shown. Of several streams
at once each has a book of its own: a hash in one book is another block than in the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TypeAlias

from kvcanon.conformance.show.rows import (
    ODDITY,
    ROW_LENGTH,
    UNKNOWN_SLOTS,
    Delta,
    Namespaces,
    Row,
    StateRows,
    pages_text,
)
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event, Residency
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

    def __init__(self) -> None:
        self.now = StateRows()
        self.namespaces = Namespaces()
        self._books = defaultdict[str, Residency](Residency)
        self._ids: dict[BookHash, NodeId] = {}
        self._hashes: dict[NodeId, BookHash] = {}
        self._children: dict[NodeId, set[NodeId]] = {}
        self.heard = False
        """Whether there was any event."""
        self._last_id = ROOT
        self.now.change({ROOT: _empty_row(-1)}, root=ROOT)

    def blocks(self, medium: Medium) -> int:
        """How many pages are on a medium."""
        return sum(len(book.on(medium)) for book in self._books.values())

    def move_to(self, events: Iterable[Event], book: str = "") -> Delta:
        """Fold the next events of a book, and return what they changed."""
        return self.move_books((book, event) for event in events)

    def move_books(self, events: Iterable[tuple[str, Event]]) -> Delta:
        """Fold the next events, each of its book, and return what they changed."""
        rows: dict[NodeId, Row | None] = {}
        for book, event in events:
            self.heard = True
            self._books[book].fold(event)
            if isinstance(event, AllBlocksCleared):
                for node_id in [at for at, each in self._hashes.items() if each[0] == book]:
                    rows[node_id] = None
                    self._forget(node_id)
                continue
            if isinstance(event, BlockStored) and (book, event.block_hash) not in self._ids:
                self._add(event, book, rows)
            known = self._ids.get((book, event.block_hash))
            if known is not None:
                self._set_media(known, rows)
                self._drop_if_empty(known, rows)
        return self.now.change(rows)

    def node_of(self, block_hash: bytes, books: Iterable[str]) -> NodeId | None:
        """The node of a block, from the first book that has the block."""
        found = (self._ids.get((book, block_hash)) for book in books)
        return next((node_id for node_id in found if node_id is not None), None)

    def leave_out_all_but(self, wanted: Collection[BookHash]) -> int:
        """Forget all pages but the wanted ones and those before them; returns how many."""
        kept = {ROOT}
        for each in wanted:
            node_id: object = self._ids.get(each)
            while isinstance(node_id, int) and node_id in self._hashes and node_id not in kept:
                kept.add(node_id)
                node_id = self.now.rows[node_id][0]
        out = [node_id for node_id in self._hashes if node_id not in kept]
        for node_id in out:
            del self.now.rows[node_id]
            self._forget(node_id)
        self._children = {at: below & kept for at, below in self._children.items()}
        return len(out)

    def _add(self, event: BlockStored, book: str, rows: dict[NodeId, Row | None]) -> None:
        before = event.parent_hash
        parent = ROOT if before is None else self._ids.get((book, before), ABSENT)
        node_id = self._last_id = self._last_id + 1
        self._ids[book, event.block_hash] = node_id
        self._hashes[node_id] = book, event.block_hash
        self._children.setdefault(parent, set()).add(node_id)
        row = rows[node_id] = _empty_row(parent)
        row[1] = self.namespaces.number(event.namespace, book)
        row[2] = pages_text([event.page])
        if before is not None and parent == ABSENT:
            row[ODDITY] = f"its parent {hash_text(before)} was not stored"

    def _forget(self, node_id: NodeId) -> None:
        del self._ids[self._hashes.pop(node_id)]
        self._children.pop(node_id, None)

    def _media_of(self, node_id: NodeId) -> set[Medium]:
        book, block_hash = self._hashes[node_id]
        return {medium for medium in Medium if (medium, block_hash) in self._books[book]}

    def _row_of(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> Row:
        row = rows.get(node_id)
        return row if row is not None else list(self.now.rows[node_id])

    def _set_media(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> None:
        row, media = self._row_of(node_id, rows), self._media_of(node_id)
        row[DEVICE] = UNKNOWN_SLOTS if GPU in media else 0
        row[HOST] = UNKNOWN_SLOTS if CPU in media else 0
        others = sorted(each.value for each in media - {GPU, CPU})
        if others or str(row[ODDITY]).startswith("also on "):
            row[ODDITY] = f"also on {', '.join(others)}" if others else ""
        rows[node_id] = row

    def _drop_if_empty(self, node_id: NodeId, rows: dict[NodeId, Row | None]) -> None:
        """Drop a page that is on no medium, and those above it that it alone kept."""
        while node_id in self._hashes and not (
            self._children.get(node_id) or self._media_of(node_id)
        ):
            parent = self._row_of(node_id, rows)[0]
            assert isinstance(parent, int)  # noqa: S101  # `_add` wrote it.
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
