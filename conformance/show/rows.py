"""States as rows of JSON: what the page keeps of a state, and what a step changed of it.

A row has everything about a node in one list of scalars, so that a change is a place in the list
with the value before and after. So the page can step back as well as forward.

Children are not kept: they follow from the parents. Where a faulty tree says otherwise, the row of
the node has it in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import Factory, asdict, define

from kvcanon.spec.difference import Difference
from kvcanon.spec.events import Event
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import GPU, Component, Namespace, NodeId, Page

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
MOST_MAPPED = 512
"""Pools of so many slots are shown slot by slot."""
LONGEST_NAMESPACE = 80


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


class Namespaces:
    """The namespaces of a run, by number, each in words; of each book its own."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Namespace], int] = {("", Namespace()): 0}

    def number(self, namespace: Namespace, book: str = "") -> int:
        """The number of a namespace; 0 is the default one."""
        return self._numbers.setdefault((book, namespace), len(self._numbers))

    def words(self) -> list[str]:
        """Each namespace in words, by number; "" for the default one."""
        return [
            ", ".join(part for part in (book, _namespace_words(namespace)) if part)
            for book, namespace in self._numbers
        ]


def _namespace_words(namespace: Namespace) -> str:
    given = {name: value for name, value in asdict(namespace).items() if value is not None}
    words = ", ".join(f"{name} {value!r}" for name, value in given.items())
    return words if len(words) <= LONGEST_NAMESPACE else f"{words[:LONGEST_NAMESPACE]}..."


class SnapshotRows:
    """Keeps the rows of the last snapshot, and finds what the next one changes."""

    def __init__(self) -> None:
        self.now = StateRows()
        self.namespaces = Namespaces()
        self._last: Snapshot | None = None

    def move_to(self, state: Snapshot) -> Delta:
        """Take the next state, and return what changed."""
        last = self._last
        listed: dict[NodeId, frozenset[NodeId]] = {}
        rows = {
            node_id: _row(state, node, self.namespaces, _oddity(state, node, listed))
            if (node := state.nodes.get(node_id)) is not None
            else None
            for node_id in (state.nodes if last is None else _concerned(last, state))
        }
        self._last = state
        return self.now.change(
            rows,
            root=state.root_id,
            recency={pool_name(*pool): tuple(order) for pool, order in state.recency.items()},
            pools=_pools(state),
            holds=_holds(state),
            transfers=_transfers(state),
        )


def _concerned(before: Snapshot, state: Snapshot) -> Iterable[NodeId]:
    """The nodes that differ, and the children that one of them began or ceased to list."""
    touched = Difference(before, state).touched
    concerned = dict.fromkeys(touched)
    for node_id in touched:
        was, now = (
            set[NodeId]() if node is None else set(node.child_ids)
            for node in (before.nodes.get(node_id), state.nodes.get(node_id))
        )
        concerned.update(dict.fromkeys(was ^ now))
    return concerned


def _oddity(state: Snapshot, node: NodeState, listed: dict[NodeId, frozenset[NodeId]]) -> str:
    """Where parents and children disagree, in words; "" in a sound tree.

    `listed` keeps the children that each node lists as a set, made once for each state.
    """
    odd, parent_id = [], node.parent_id
    if node.node_id != state.root_id:
        if parent_id is None or parent_id not in state.nodes:
            odd.append(f"its parent {parent_id} is not in the tree")
        else:
            if parent_id not in listed:
                listed[parent_id] = frozenset(state.nodes[parent_id].child_ids)
            if node.node_id not in listed[parent_id]:
                odd.append(f"node {parent_id} does not list it as a child")
    for child_id in node.child_ids:
        child = state.nodes.get(child_id)
        if child is None:
            odd.append(f"its child {child_id} is not in the tree")
        elif child.parent_id != node.node_id:
            odd.append(f"it lists node {child_id}, whose parent is {child.parent_id}")
    return "; ".join(odd)


class WaitingEvents:
    """The events that wait in a cache, followed from state to state."""

    def __init__(self, state: Snapshot | None) -> None:
        self._waiting: tuple[Event, ...] = () if state is None else state.events

    def emitted(self, state: Snapshot | None, *, taken: bool) -> tuple[Event, ...]:
        """The events that are new in a state; `taken` says that the call took those before."""
        if state is None:
            return ()
        waiting, self._waiting = self._waiting, state.events
        if not taken and state.events[: len(waiting)] == waiting:
            return state.events[len(waiting) :]
        # More waited than may wait, so that others are in their place.
        return state.events


def pages_text(pages: Iterable[Page]) -> str:
    """Pages as text: units with spaces between them, the two tokens of a bigram as "1:2"."""
    return "|".join(
        " ".join(f"{unit[0]}:{unit[1]}" if isinstance(unit, tuple) else f"{unit}" for unit in page)
        for page in pages
    )


def _row(state: Snapshot, node: NodeState, namespaces: Namespaces, oddity: str) -> Row:
    row: Row = [
        -1 if node.parent_id is None or node.node_id == state.root_id else node.parent_id,
        namespaces.number(node.namespace),
        pages_text(node.pages),
    ]
    for component in Component:
        data = node[component]
        row += [
            0 if data.device is None else runs(data.device),
            0 if data.host is None else runs(data.host),
            data.lock_refs,
            0 if data.loading is None else str(data.loading),
            0 if data.backing is None else str(data.backing),
        ]
    row += [node.hit_count, node.priority, node.created, node.last_access, oddity]
    return row


def pool_name(component: Component, medium: object) -> str:
    """The name of a pool, as "full GPU"."""
    return f"{component.value} {'GPU' if medium is GPU else 'CPU'}"


def _pools(state: Snapshot) -> dict[str, list[object]]:
    pools: dict[str, list[object]] = {}
    for (component, medium), pool in state.pools.items():
        if not pool.capacity:
            continue
        usage = state.usage.get(component) if medium is GPU else None
        mapped = pool.capacity <= MOST_MAPPED
        pools[pool_name(component, medium)] = [
            pool.capacity,
            len(pool.free),
            len(pool.held),
            None if usage is None else usage.evictable,
            None if usage is None else usage.protected,
            runs(sorted(pool.free)) if mapped else 0,
            runs(sorted(pool.held)) if mapped else 0,
        ]
    return pools


def _holds(state: Snapshot) -> list[object]:
    return [
        [
            hold.receipt_id,
            hold.node_id,
            hold.window_from_pages,
            int(hold.state_held),
            hold.transfer_id,
            [list(gap) for gap in hold.window_gaps],
        ]
        for hold in state.holds
    ]


def _transfers(state: Snapshot) -> list[object]:
    return [
        [
            transfer.transfer_id,
            transfer.direction.value,
            [[node_id, component.value] for node_id, component in transfer.parts],
            {component.value: runs(slots) for component, slots in transfer.sources.items()},
            {component.value: runs(slots) for component, slots in transfer.targets.items()},
            int(transfer.cancelled),
        ]
        for transfer in state.transfers
    ]
