"""Compares the board of a replay with the state after, page by page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from attrs import frozen

from kvcanon.spec.replay.board import Board, Piece
from kvcanon.spec.snapshot import kept
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, Component, Medium, NodeId
from kvcanon.spec.views import COLUMN, NO_SLOTS, PageRow, Step


class PageData(NamedTuple):
    """One component's data of a page, or the mamba state at its end, on a medium."""

    node_id: NodeId | None
    """The node in the state before; None for a page that is new."""
    page: int
    component: Component
    medium: Medium


def lost_on_device(was: PageRow, now: PageRow | None) -> bool:
    """Whether a page lost data of any component on the device."""
    return any(
        was.slot(each, GPU) is not None and (now is None or now.slot(each, GPU) is None)
        for each in COLUMN
    )


@frozen(eq=False, slots=False)
class ObservedChanges:
    """The changes of a step, by the nodes of the state before."""

    step: Step

    @kept
    def rows(self) -> dict[NodeId, dict[int, tuple[PageRow, PageRow | None]]]:
        """The changed page rows of each node by depth, before and after the step."""
        before, after = self.step.changed
        rows: dict[NodeId, dict[int, tuple[PageRow, PageRow | None]]] = defaultdict(dict)
        for number, row in before.items():
            rows[row.node_id][row.depth] = row, after.get(number)
        return rows

    def _rows_of(self, piece: Piece) -> dict[int, tuple[PageRow, PageRow | None]] | None:
        """The rows of a piece's node, by depth; None if the node did not change."""
        return self.rows.get(piece.node_id) if piece.node_id is not None else None

    def stays(self, piece: Piece, _short: int = 0) -> int:
        """How many pages of a piece, from its first page, keep their full data on the device."""
        rows = self._rows_of(piece)
        if rows is None:
            return piece.end - piece.begin
        for page in range(piece.begin, piece.end):
            was, now = rows[page]
            if now is None or now.slot(FULL, GPU) != was.slot(FULL, GPU):
                return page - piece.begin
        return piece.end - piece.begin

    def stays_at_first(self, piece: Piece, short: int) -> int:
        """The same, if only the end of a last victim leaves, and the rest at a later turn."""
        spare = max(0, piece.end - piece.begin - short)
        return self.stays(piece) or spare

    def gave_up(self, piece: Piece, component: Component) -> bool:
        """Whether a piece lost its host copy of a component, even if it got another one."""
        rows = self._rows_of(piece)
        if rows is None:
            return False
        was, now = rows[piece.end - 1]
        old = was.slot(component, CPU)
        return old is not None and (now is None or now.slot(component, CPU) != old)

    def may_have_given_up(self, piece: Piece, component: Component) -> bool:
        """The same, or whether its copy may have left and come back to the same slots.

        A node that loses data on the device later in the same step is copied once more.
        """
        rows = self._rows_of(piece)
        if rows is None:
            return False
        was, now = rows[piece.end - 1]
        again = lost_on_device(was, now)
        return was.slot(component, CPU) is not None and (again or self.gave_up(piece, component))

    def changes(self, media: Collection[Medium]) -> dict[PageData, bool]:
        """The data that came to a medium (True) or left it (False)."""
        before, after = self.step.changed
        components = self.step.before.config.components
        found: dict[PageData, bool] = {}
        for number in before.keys() | after.keys():
            was, now = before.get(number), after.get(number)
            if was is not None and now is not None and was[2:4] == now[2:4]:
                continue  # Its slots are the same.
            row = was or now
            assert row is not None
            node_id = None if was is None else was.node_id
            for medium in media:
                old = NO_SLOTS if was is None else was.slots(medium)
                new = NO_SLOTS if now is None else now.slots(medium)
                for component in components if old != new else ():
                    has = new[COLUMN[component]] is not None
                    if has is (old[COLUMN[component]] is None):
                        found[PageData(node_id, row.depth, component, medium)] = has
        return found


def expected_changes(board: Board, media: Collection[Medium]) -> dict[PageData, bool]:
    """The data that came to a medium (True) or left it (False) on the board."""
    found: dict[PageData, bool] = {}
    for piece in board.every():
        if piece.on == piece.was:
            continue
        for medium in media:
            for component in piece.was[medium] ^ piece.on[medium]:
                begin = piece.end - 1 if component is MAMBA else piece.begin
                for page in range(begin, piece.end):
                    item = PageData(piece.node_id, page, component, medium)
                    found[item] = component in piece.on[medium]
    return found


def discrepancies(
    step: Step, expected: dict[PageData, bool], found: dict[PageData, bool]
) -> Iterator[str]:
    """The differences of expected and found changes: a sentence for each node and direction."""
    if expected == found:
        return
    wrong: dict[tuple[NodeId | None, Component, Medium, bool, bool], list[int]] = defaultdict(list)
    for item in expected.keys() | found.keys():
        wanted, got = expected.get(item), found.get(item)
        if wanted != got:
            came = bool(wanted if got is None else got)
            key = item.node_id, item.component, item.medium, came, got is not None
            wrong[key].append(item.page)
    for (node_id, component, medium, came, happened), pages in sorted(wrong.items(), key=str):
        node = None if node_id is None else step.before.nodes[node_id]
        where = "new pages" if node is None else step.before.describe(node)
        what = f"{component} data of {_pages(pages)} in {where}"
        if happened:
            yield f"{what} {'came to' if came else 'left'} {medium}, and should not have"
        else:
            yield f"{what} should have {'come to' if came else 'left'} {medium}, and did not"


def _pages(pages: list[int]) -> str:
    first, last = min(pages), max(pages)
    return f"page {first}" if first == last else f"pages {first}..{last}"
