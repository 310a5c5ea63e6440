"""Snapshots as rows: takes a cache's states one after another, and says what each changed."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import asdict

from kvcanon.conformance.show.rows import Delta, Row, StateRows, runs
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import Event
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import GPU, Component, Namespace, NodeId, Page

MOST_MAPPED = 512
"""Pools of so many slots are shown slot by slot."""
LONGEST_NAMESPACE = 80


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

    def __init__(self, namespaces: Namespaces) -> None:
        self.now = StateRows()
        self._namespaces = namespaces
        self._last: Snapshot | None = None

    def move_to(self, state: Snapshot) -> Delta:
        """Take the next state, and return what changed."""
        last = self._last
        listed: dict[NodeId, frozenset[NodeId]] = {}
        rows = {
            node_id: _row(state, node, self._namespaces, _oddity(state, node, listed))
            if (node := state.nodes.get(node_id)) is not None
            else None
            for node_id in (state.nodes if last is None else _concerned(last, state))
        }
        self._last = state
        return self.now.change(
            rows,
            root=state.root_id,
            recency={_pool_name(*pool): tuple(order) for pool, order in state.recency.items()},
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


def _pool_name(component: Component, medium: object) -> str:
    return f"{component.value} {'GPU' if medium is GPU else 'CPU'}"


def _pools(state: Snapshot) -> dict[str, list[object]]:
    pools: dict[str, list[object]] = {}
    for (component, medium), pool in state.pools.items():
        if not pool.capacity:
            continue
        usage = state.usage.get(component) if medium is GPU else None
        mapped = pool.capacity <= MOST_MAPPED
        pools[_pool_name(component, medium)] = [
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
