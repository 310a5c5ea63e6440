"""Chapter 13. Views: a key's path through a state, and a step seen page by page.

Laws must not depend on where an implementation cuts its nodes, so step laws compare *pages*. Each
page has a number that stands for its namespace and all tokens up to its end. It has the same number
before and after the step, in whichever node it is: after a cut the same pages are in other nodes,
and nothing else has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, zip_longest
from typing import Any, NamedTuple, TypeAlias

from attrs import Factory, field, frozen

from kvcanon.spec.difference import Difference
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Insert, Inserted, Match, Matched, Operation, Outcome
from kvcanon.spec.oracle.prefix import shared_pages, usable_prefix
from kvcanon.spec.snapshot import NodeState, Pool, RankView, Snapshot, TransferState, kept
from kvcanon.spec.tier import StoreCalls
from kvcanon.spec.transfer import Completion, EngineCalls
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Key,
    Medium,
    Namespace,
    NodeId,
    Page,
    ReceiptId,
    Slot,
    TransferId,
)

PageNumber: TypeAlias = int

PerComponent: TypeAlias = tuple[int | None, int | None, int | None]
"""Something of full, swa and mamba, in this order."""

COLUMN: Mapping[Component, int] = {FULL: 0, SWA: 1, MAMBA: 2}
"""The place of each component in a `PerComponent`."""

NO_SLOTS: PerComponent = (None, None, None)
"""The slots of a page that does not exist."""


class PageRow(NamedTuple):
    """All facts of a state about one page.

    A mamba state, with its lock refs, is in the row of the page at whose end it is.
    """

    node_id: NodeId
    depth: int
    """Pages before this one."""
    device: PerComponent
    """Slots on the device, filled or being filled."""
    host: PerComponent
    """Slots on the host, filled or being filled."""
    loading: PerComponent
    """Transfers that have not yet filled the device slots."""
    backing: PerComponent
    """Transfers that have not yet filled the host slots."""
    lock_refs: PerComponent
    hit_count: int
    priority: int
    created: int
    last_access: int

    def slots(self, medium: Medium) -> PerComponent:
        """The page's slots on a medium."""
        return self.device if medium is GPU else self.host

    def slot(self, component: Component, medium: Medium) -> Slot | None:
        """The page's slot in a pool."""
        return (self.device if medium is GPU else self.host)[COLUMN[component]]

    def resident(self, component: Component, medium: Medium) -> bool:
        """Whether the page's bytes are in that slot."""
        pending = (self.loading if medium is GPU else self.backing)[COLUMN[component]]
        return self.slot(component, medium) is not None and pending is None


class Change(NamedTuple):
    """A page of a node that differs between the states; None in a state that lacks the page."""

    number: PageNumber
    before: PageRow | None
    after: PageRow | None


class LostSlot(NamedTuple):
    """A slot that a page had before a step and no longer has."""

    number: PageNumber
    before: PageRow
    after: PageRow | None
    """None if the page left the tree."""
    component: Component
    medium: Medium
    slot: Slot
    now: Slot | None
    """The slot that has the data now; None if the page has no such data any more."""


class Stop(NamedTuple):
    """A node on a key's path, and how many of its pages the key shares."""

    node: NodeState
    shared_pages: int


def path_of(state: Snapshot, key: Key) -> tuple[Stop, ...]:
    """The nodes that a key shares pages with, from below the root down.

    Pages are compared by their tokens. The key may share only a part of the last node.
    """
    path: tuple[Stop, ...] | None = state.paths.get(key)
    if path is None:
        path = state.paths[key] = tuple(_walk(state, key))
    return path


def _walk(state: Snapshot, key: Key) -> list[Stop]:
    stops: list[Stop] = []
    parent_id, at = state.root_id, 0
    while at < len(key.pages):
        node = state.child(parent_id, key.namespace, key.pages[at])
        if node is None:
            break
        shared = shared_pages(node.pages, key.pages[at : at + len(node.pages)])
        stops.append(Stop(node, shared))
        if shared < len(node.pages):
            break
        at += shared
        parent_id = node.node_id
    return stops


def present_pages(state: Snapshot, key: Key) -> int:
    """How many pages of a key are in the tree, with or without data."""
    return sum(stop.shared_pages for stop in path_of(state, key))


def usable_pages(state: Snapshot, key: Key, media: Sequence[Medium]) -> int:
    """The usable prefix of a key, in pages, if only data on one of `media` counts.

    A load in flight does not count on the device: its bytes are not there yet. A backup in flight
    counts on the host: the device still has the bytes.
    """
    size, components = state.config.page_size, state.config.components
    stops = path_of(state, key)
    full, swa, mamba = (
        tuple([each not in components or _is_usable(stop, each, media) for stop in stops])
        for each in (FULL, SWA, MAMBA)
    )
    lengths = tuple([stop.shared_pages * size for stop in stops])
    return usable_prefix(lengths, full, swa, mamba, state.config.window_tokens or 1) // size


def _is_usable(stop: Stop, component: Component, media: Sequence[Medium]) -> bool:
    """Whether a node's data can be used from one of these media, if the rest of a prefix can."""
    node, shared_pages = stop
    if component is MAMBA and shared_pages < len(node.pages):
        return False  # The state is that at the end of the node.
    data = node[component]
    return (GPU in media and data.resident(GPU)) or (CPU in media and data.host is not None)


class PageNumbers:
    """Numbers pages by their namespace and all tokens up to their end, exactly.

    Two pages have the same number only if namespace and tokens agree; no hash can collide.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[PageNumber, Page] | Namespace, PageNumber] = {}

    def seed(self, namespace: Namespace) -> PageNumber:
        """The number of the empty prefix of a namespace."""
        return self._numbers.setdefault(namespace, len(self._numbers))

    def extend(self, before: PageNumber, pages: Sequence[Page]) -> list[PageNumber]:
        """The numbers of pages that follow the page (or seed) numbered `before`."""
        known, numbers = self._numbers, list[PageNumber]()
        for page in pages:
            before = known.setdefault((before, page), len(known))
            numbers.append(before)
        return numbers

    def of_key(self, key: Key) -> list[PageNumber]:
        """The number of each page of a key."""
        return self.extend(self.seed(key.namespace), key.pages)


@frozen
class Stamp:
    """The bytes read behind a slot that a match returned, and the bytes written for its page."""

    component: Component
    page_index: int
    """The index of the page in the key."""
    slot: Slot
    expected: bytes
    found: bytes


@frozen(eq=False)
class Unasked:
    """What a cache did in a call without being asked, and the states with it."""

    before: Snapshot
    after: Snapshot
    left: Mapping[NodeId, Collection[Pool]]
    """The data of nodes that left its medium."""
    moved: Collection[NodeId]
    """The nodes whose data is in other device slots."""
    begun: Sequence[TransferState]
    """The copies that began, and that the answer does not name."""


@frozen(eq=False, slots=False)
class Step:
    """One operation on a cache: the state before, the call and its outcome, the state after."""

    before: Snapshot
    operation: Operation
    outcome: Outcome
    after: Snapshot
    events: tuple[Event, ...] = ()
    """The events that the operation emitted."""
    stamps: tuple[Stamp, ...] = ()
    """What was read behind the slots that a match returned; empty if nothing was read."""
    given: Collection[ReceiptId] = frozenset()
    """The ids of receipts that the cache issued before, as far as they were observed."""
    ended: Mapping[TransferId, bool] = Factory(dict)
    """How copies that were in flight before have ended, from another source than the cache: True if
    the copy was performed. A copy that is not in it had not ended when the step was over."""
    asked: EngineCalls | None = None
    """What the cache asked of its engine; None where no engine of the judge makes its copies."""
    arrived: tuple[Completion, ...] | None = None
    """What `arrived` said just before this call; None if nobody asked."""
    ranks: tuple[RankView, ...] = ()
    """The same operation on each rank, if there are several; this step is that of the first."""
    store: StoreCalls | None = None
    """What the cache asked of the queue of its store, and what it was told; None without a store of
    the judge."""
    unasked: Unasked | None = None
    """What was taken out of the step, as nothing asked for it; None if nothing was."""
    _difference: Difference | None = field(default=None, alias="difference")
    """The difference of the two states, if it is known."""

    @kept
    def difference(self) -> Difference:
        """The difference of the two states."""
        known = self._difference
        return Difference(self.before, self.after) if known is None else known

    @kept
    def used(self) -> Key | None:
        """The prefix that a match or an insert used: the usable one, or all of the inserted key."""
        operation, outcome = self.operation, self.outcome
        if isinstance(operation, Match) and isinstance(outcome, Matched):
            return operation.key.prefix(max(0, outcome.prefix_pages))
        if isinstance(operation, Insert) and isinstance(outcome, Inserted):
            return operation.key
        return None

    @kept
    def numbers(self) -> PageNumbers:
        """The numbers of pages, in both states."""
        return PageNumbers()

    @kept
    def _numbers_of_keys(self) -> dict[Key, list[PageNumber]]:
        """A memo of `numbers_of`."""
        return {}

    def numbers_of(self, key: Key) -> Sequence[PageNumber]:
        """The number of each page of a key."""
        found = self._numbers_of_keys.get(key)
        if found is None:
            found = self._numbers_of_keys[key] = self.numbers.of_key(key)
        return found

    @kept
    def changed(self) -> tuple[Mapping[PageNumber, PageRow], Mapping[PageNumber, PageRow]]:
        """The pages of all nodes that differ between the states, before and after.

        A page in neither table is untouched: its node, with all its data, is equal in both states.
        A page in only one table was added or removed.
        """
        before, after = self.difference.changed
        if not before and not after:
            return {}, {}
        return (
            page_rows(self.before, self.numbers, before),
            page_rows(self.after, self.numbers, after),
        )

    @kept
    def changes(self) -> Sequence[Change]:
        """The pages that may differ, those of the state before first."""
        before, after = self.changed
        kept = [Change(number, row, after.get(number)) for number, row in before.items()]
        came = [Change(number, None, row) for number, row in after.items() if number not in before]
        return kept + came

    @kept
    def orders(self) -> dict[Key, Mapping[Pool, RecencyOrder]]:
        """A memo of `recency_orders`: the orders of a step about a key."""
        return {}

    @kept
    def lost(self) -> Sequence[LostSlot]:
        """The slots that pages lost: their data left the medium, or is in another slot."""
        before, after = self.changed
        lost: list[LostSlot] = []
        for number, was in before.items():
            now = after.get(number)
            device, host = (None, None) if now is None else (now.device, now.host)
            if was.device == device and was.host == host:
                continue
            for component, column in COLUMN.items():
                for medium, olds, news in ((GPU, was.device, device), (CPU, was.host, host)):
                    old, new = olds[column], None if news is None else news[column]
                    if old is not None and old != new:
                        lost.append(LostSlot(number, was, now, component, medium, old, new))
        return lost


def page_rows(
    state: Snapshot, numbers: PageNumbers, nodes: Iterable[NodeState]
) -> dict[PageNumber, PageRow]:
    """The rows of all pages of the given nodes of a state."""
    ends: dict[NodeId | None, PageNumber] = {}

    def number(node: NodeState) -> list[PageNumber]:
        """The numbers of a node's pages; those of its ancestors are computed once and kept."""
        path = [node]
        while (parent_id := path[-1].parent_id) not in ends and parent_id != state.root_id:
            path.append(state.nodes[parent_id])  # type: ignore[index]  # The root has no rows.
        for up in reversed(path):
            before = ends.get(up.parent_id)
            found = numbers.extend(
                numbers.seed(up.namespace) if before is None else before, up.pages
            )
            ends[up.node_id] = found[-1]
        return found

    rows: dict[PageNumber, PageRow] = {}
    for node in nodes:
        rows.update(zip(number(node), rows_of(state, node), strict=True))
    return rows


def rows_of(state: Snapshot, node: NodeState) -> list[PageRow]:
    """The row of each page of a node."""
    rows: list[PageRow] | None = state.rows.get(node.node_id)
    if rows is None:
        rows = state.rows[node.node_id] = _rows(node, state.starts[node.node_id])
    return rows


_page_row: Callable[[tuple[Any, ...]], PageRow] = partial(tuple.__new__, PageRow)
"""Makes a row of its fields; there are many rows, and a call with each field takes twice the time.
"""


def _rows(node: NodeState, start: int) -> list[PageRow]:
    """The rows of a node that begins at page `start`; the mamba state is in the last one."""
    full, swa, mamba = node.full, node.swa, node.mamba
    inside = (
        (full.loading, swa.loading, None),
        (full.backing, swa.backing, None),
        (full.lock_refs, swa.lock_refs, 0),
    )
    at_end = (
        (full.loading, swa.loading, mamba.loading),
        (full.backing, swa.backing, mamba.backing),
        (full.lock_refs, swa.lock_refs, mamba.lock_refs),
    )
    use = node.hit_count, node.priority, node.created, node.last_access
    end = start + len(node.pages) - 1
    pages = len(node.pages)
    on_device = _by_page(pages, full.device, swa.device, mamba.device)
    on_host = _by_page(pages, full.host, swa.host, mamba.host)
    return [
        _page_row((node.node_id, page, device, host, *(at_end if page == end else inside), *use))
        for page, (device, host) in enumerate(zip(on_device, on_host, strict=True), start)
    ]


def _by_page(
    pages: int,
    full: tuple[Slot, ...] | None,
    swa: tuple[Slot, ...] | None,
    mamba: tuple[Slot, ...] | None,
) -> Iterable[PerComponent]:
    """The slots of each page of a node, from its slots of each component on a medium."""
    none = (None,) * pages
    states = none[1:] + (mamba or (None,))[:1]
    return islice(zip_longest(full or none, swa or none, states), pages)


def rows_along(state: Snapshot, key: Key) -> list[PageRow]:
    """The row of each page of a key that is in the tree, from the root down."""
    rows: list[PageRow] = []
    for node, shared in path_of(state, key):
        rows.extend(rows_of(state, node)[:shared])
    return rows


def pages_by_node(rows: Mapping[PageNumber, PageRow]) -> dict[NodeId, list[PageNumber]]:
    """The pages of each node in a table of rows, in the order of the node's edge."""
    found: dict[NodeId, list[PageNumber]] = {}
    for number, row in rows.items():
        found.setdefault(row.node_id, []).append(number)
    return found


def pages_of_cut_nodes(step: Step) -> set[PageNumber]:
    """The pages of nodes that were cut: in one node before, in several after."""
    before, after = step.changed
    parts: dict[NodeId, set[NodeId]] = {}
    for number, row in before.items():
        if number in after:
            parts.setdefault(row.node_id, set()).add(after[number].node_id)
    return {number for number, row in before.items() if len(parts.get(row.node_id, ())) > 1}


OrderItem: TypeAlias = int
"""An item of an LRU order: a page, by its number; or a whole node, by the complement of its id, if
the node did not change and the key does not pass through it."""


@frozen(eq=False)
class RecencyOrder:
    """One LRU order before and after a step, in items that no cut can divide."""

    before: tuple[OrderItem, ...]
    after: tuple[OrderItem, ...]
    nodes: Mapping[NodeId, Sequence[PageNumber]]
    """The pages of nodes in the state after, of those that are not items as a whole."""

    def node_id(self, item: OrderItem) -> NodeId:
        """The node of an item, in the state after."""
        if item < 0:
            return ~item
        return [node_id for node_id, pages in self.nodes.items() if item in pages][-1]

    def moved(self, without: Collection[PageNumber]) -> dict[NodeId, NodeId]:
        """The nodes (after) that became more recent, and for each one that it overtook.

        The pages `without` are left out of both orders.
        """
        return {} if self.before == self.after else self.overtaken(*self.kept(without))

    def overtaken(
        self, before: Sequence[OrderItem], after: Sequence[OrderItem]
    ) -> dict[NodeId, NodeId]:
        """The nodes that one order of items has later than another, and for each one before it."""
        moved = overtaking(before, after).items()
        nodes = [(self.node_id(item), self.node_id(other)) for item, other in moved]
        return {node_id: other_id for node_id, other_id in nodes if node_id != other_id}

    def kept(self, without: Collection[PageNumber]) -> tuple[list[OrderItem], list[OrderItem]]:
        """The items that are in both orders, in each order; without the pages `without`."""
        before, after = dict.fromkeys(self.before), dict.fromkeys(self.after)
        both = (before.keys() & after.keys()).difference(without)
        return [item for item in before if item in both], [item for item in after if item in both]


def recency_orders(
    step: Step, key: Key, components: Collection[Component]
) -> Iterator[tuple[Component, Medium, RecencyOrder]]:
    """Every LRU order of these components, before and after a step about a key."""
    found = step.orders.get(key)
    if found is None:
        found = step.orders[key] = _RecencyOrders(step, key)
    for pool in step.before.recency:
        component, medium = pool
        if component in components:
            yield component, medium, found[pool]


class _RecencyOrders(dict[Pool, RecencyOrder]):
    """The LRU orders before and after a step about a key, found at the first look-up by `[]`."""

    def __init__(self, step: Step, key: Key) -> None:
        super().__init__()
        self._before, self._after = step.before, step.after
        self._nodes_before, self._nodes_after = (
            {**pages_along(step, state, key), **pages_by_node(rows)}
            for state, rows in zip((step.before, step.after), step.changed, strict=True)
        )

    def __missing__(self, pool: Pool) -> RecencyOrder:
        before = _items(self._before, pool, self._nodes_before)
        after = _items(self._after, pool, self._nodes_after)
        found = self[pool] = RecencyOrder(before, after, self._nodes_after)
        return found


def overtaking(
    before: Sequence[OrderItem], after: Sequence[OrderItem]
) -> dict[OrderItem, OrderItem]:
    """The items that became more recent, and for each one that it overtook.

    Both orders have the same items.
    """
    moved: dict[OrderItem, OrderItem] = {}
    if before == after:
        return moved
    at = 0
    for item in before:
        while after[at] in moved:
            at += 1
        if after[at] == item:
            at += 1
        else:
            moved[item] = after[at]
    return moved


def pages_along(step: Step, state: Snapshot, key: Key) -> dict[NodeId, Sequence[PageNumber]]:
    """The pages of the nodes on a key's path, also unshared pages of the last node."""
    found: dict[NodeId, Sequence[PageNumber]] = {}
    of_key, begin = step.numbers_of(key), 0
    for node, shared in path_of(state, key):
        pages = of_key[begin : begin + shared]
        unshared = node.pages[shared:]
        found[node.node_id] = [*pages, *step.numbers.extend(pages[-1], unshared)]
        begin += shared
    return found


def _items(
    state: Snapshot, pool: Pool, nodes: Mapping[NodeId, Sequence[PageNumber]]
) -> tuple[OrderItem, ...]:
    """An LRU order of nodes as items; a mamba state is at the last page of its node."""
    items: list[OrderItem] = []
    for node_id in state.recency.get(pool, ()):
        pages = nodes.get(node_id)
        if pages is not None:
            items.extend(pages[-1:] if pool[0] is MAMBA else pages)
        elif node_id in state.nodes:
            items.append(~node_id)
    return tuple(items)
