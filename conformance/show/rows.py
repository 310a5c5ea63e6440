"""States as rows of JSON: what the page keeps of a state, and what a step changed of it.

A row has everything about a node in one list of scalars, so that a change is a place in the list
with the value before and after. So the page can step back as well as forward.

Children are not kept: they follow from the parents. Where a faulty tree says otherwise, the row of
the node has it in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import Factory, define

from kvcanon.spec.types import NodeId

Row: TypeAlias = list[object]
"""The parent, the namespace's number, the pages, five values a component, then `TAIL`."""
Delta: TypeAlias = dict[str, object]
"""What a step changed; see `StateRows.change`."""

PARENT, NAMESPACE, PAGES, FIRST_COMPONENT = 0, 1, 2, 3
PER_COMPONENT = ("device", "host", "lock_refs", "loading", "backing")
TAIL = ("hit_count", "priority", "created", "last_access", "oddity")
ROW_LENGTH = FIRST_COMPONENT + 3 * len(PER_COMPONENT) + len(TAIL)
ODDITY = ROW_LENGTH - 1

_LETTERS = {"root": "o", "recency": "r", "pools": "p", "holds": "h", "transfers": "t"}
"""Fields by their letters in a delta."""

UNKNOWN_SLOTS = "?"
"""Stands for slots that only an event speaks of."""


@define
class StateRows:
    """The state that was recorded last. Its fields are JSON."""

    root: NodeId | None = None
    rows: dict[NodeId, Row] = Factory(dict)
    recency: dict[str, tuple[NodeId, ...]] = Factory(dict)
    """The nodes of each pool, the least recent first; a pool is named as "full GPU"."""
    pools: dict[str, list[object]] = Factory(dict)
    """Capacity, free, held, evictable, protected, the free slots and the held slots."""
    holds: list[object] = Factory(list)
    transfers: list[object] = Factory(list)

    def to_json(self) -> dict[str, object]:
        """The whole state, for the page to begin from."""
        others = {name: getattr(self, name) for name in _LETTERS}
        return others | {"rows": [[node_id, *row] for node_id, row in self.rows.items()]}

    def change(
        self,
        rows: Mapping[NodeId, Row | None],
        **news: Any,  # noqa: ANN401  # Each is of the type of its field.
    ) -> Delta:
        """Take over rows, and other fields by their names, and return what is new as a delta.

        `n` has the nodes that came or went, with the row before and after, 0 for none; `c` the
        changed places of other rows, each with the value before and after; `r` the moves in orders
        of recency; `p`, `h`, `t` and `o` pools, holds, transfers and the root, before and after.
        """
        delta: Delta = {}
        self._change_rows(rows, delta)
        for name, now in news.items():
            was = getattr(self, name)
            setattr(self, name, now)
            changed: object = [was, now] if now != was else None
            if name == "recency":
                changed = {pool: moved(*pair) for pool, pair in _changed(was, now, ()).items()}
            elif name == "pools":
                changed = _changed(was, now, 0)
            if changed:
                delta[_LETTERS[name]] = changed
        return delta

    def _change_rows(self, rows: Mapping[NodeId, Row | None], delta: Delta) -> None:
        whole, parts = list[object](), list[object]()
        for node_id, row in rows.items():
            was = self.rows.get(node_id)
            if row is None or was is None:
                if row is not was:
                    whole.append([node_id, was or 0, row or 0])
            elif row != was:
                places = [at for at, value in enumerate(row) if value != was[at]]
                part: list[object] = [node_id]
                for at in places:
                    part += [at, was[at], row[at]]
                parts.append(part)
            if row is None:
                self.rows.pop(node_id, None)
            else:
                self.rows[node_id] = row
        if whole:
            delta["n"] = whole
        if parts:
            delta["c"] = parts


def _changed(
    was: Mapping[str, Any], now: Mapping[str, Any], absent: object
) -> dict[str, list[Any]]:
    """What differs, by pool: before and after."""
    pairs = {pool: [was.get(pool, absent), now.get(pool, absent)] for pool in {**was, **now}}
    return {pool: pair for pool, pair in pairs.items() if pair[0] != pair[1]}


def moved(before: Sequence[NodeId], after: Sequence[NodeId]) -> list[object]:
    """What leaves an order, as [index, node] before, and what follows at its end.

    After a use, that is what moved to the end and nothing else. An order that changed elsewhere is
    written anew from there on.
    """
    places = {node_id: at for at, node_id in enumerate(before)}
    kept, last = 0, -1
    for node_id in after:
        at = places.get(node_id, -1)
        if at <= last:
            break
        kept, last = kept + 1, at
    stay = set(after[:kept])
    left = [[at, node_id] for at, node_id in enumerate(before) if node_id not in stay]
    return [left, list(after[kept:])]


def runs(numbers: Sequence[int]) -> str:
    """Numbers in their order as text, such as "0-4 9 3"; those that count up are a run."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)
