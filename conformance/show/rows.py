"""States as rows of JSON: what the page keeps of a state, and what a step changed of it.

A row has everything about a node in one list of scalars, so that a change is a place in the list
with the value before and after. So the page can step back as well as forward.

Children are not kept: they follow from the parents. Where a faulty tree says otherwise, the row of
the node has it in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

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
        return {
            "root": self.root,
            "rows": [[node_id, *row] for node_id, row in self.rows.items()],
            "recency": self.recency,
            "pools": self.pools,
            "holds": self.holds,
            "transfers": self.transfers,
        }

    def change(
        self,
        rows: Mapping[NodeId, Row | None],
        *,
        root: NodeId | None = None,
        recency: Mapping[str, tuple[NodeId, ...]] | None = None,
        pools: Mapping[str, list[object]] | None = None,
        holds: list[object] | None = None,
        transfers: list[object] | None = None,
    ) -> Delta:
        """Take over what is new, and return it as a delta; None stands for no change.

        `n` has the nodes that came or went, with the row before and after, 0 for none; `c` the
        changed places of other rows, each with the value before and after; `r` the moves in orders
        of recency; `p`, `h`, `t` and `o` pools, holds, transfers and the root, before and after.
        """
        delta: Delta = {}
        self._change_rows(rows, delta)
        if root is not None and root != self.root:
            delta["o"] = [self.root, root]
            self.root = root
        if recency is not None:
            moves = {
                pool: moved(self.recency.get(pool, ()), recency.get(pool, ()))
                for pool in {**self.recency, **recency}
                if self.recency.get(pool, ()) != recency.get(pool, ())
            }
            if moves:
                delta["r"] = moves
            self.recency = dict(recency)
        if pools is not None:
            changed = {
                pool: [self.pools.get(pool, 0), pools.get(pool, 0)]
                for pool in {**self.pools, **pools}
                if self.pools.get(pool) != pools.get(pool)
            }
            if changed:
                delta["p"] = changed
            self.pools = dict(pools)
        if holds is not None and holds != self.holds:
            delta["h"] = [self.holds, holds]
            self.holds = holds
        if transfers is not None and transfers != self.transfers:
            delta["t"] = [self.transfers, transfers]
            self.transfers = transfers
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
