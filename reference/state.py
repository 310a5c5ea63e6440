"""State: all the data of the plain cache.

Every slot has exactly one owner at any time: a node, a request (slots in `held`), the free list of
its pool, or a cancelled transfer that may still write to it.

Holds and transfers outlive an operation and refer to nodes. A cut therefore always keeps the old
node as the *lower* part, so that it still ends where the hold or the transfer ends.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from attrs import Factory, define, field

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import BlockStored, Event
from kvcanon.spec.operations import Receipt
from kvcanon.spec.snapshot import HoldState, NodeState, PoolState, TransferState
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress, StoreQueue
from kvcanon.spec.transfer import Agree, Direction, TransferEngine
from kvcanon.spec.types import (
    CPU,
    DEFAULT_NAMESPACE,
    GPU,
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

Value = TypeVar("Value")
Shown: TypeAlias = tuple[tuple[object, ...], Value] | None
"""The facts of an object at the last snapshot, and the value that was made of them."""


@define(eq=False)
class Data:
    """One component's data at one node."""

    device: tuple[Slot, ...] | None = None
    host: tuple[Slot, ...] | None = None
    lock_refs: int = 0
    used: int = 0
    """Tick of its last use; for full data `Node.last_access` is used instead."""
    loading: Transfer | None = None
    """The transfer that has not yet filled `device`."""
    backing: Transfer | None = None
    """The transfer that has not yet filled `host`."""

    def slots(self, medium: Medium) -> tuple[Slot, ...] | None:
        """The slots on a medium, filled or being filled."""
        return self.device if medium is GPU else self.host


Edge: TypeAlias = Page | tuple[Namespace, Page]
"""The key of a child: its first page; below the root, with its namespace."""


@define(eq=False)
class Node:
    """A node of the radix tree: consecutive pages whose data is on the same media."""

    node_id: NodeId
    parent: Node | None
    namespace: Namespace
    pages: tuple[Page, ...]
    start: int
    """Pages before this node."""
    data: dict[Component, Data]
    created: int
    last_access: int
    children: dict[Edge, Node] = Factory(dict)
    hit_count: int = 0
    priority: int = 0
    hashes: tuple[bytes, ...] | None = None
    shown: Shown[NodeState] = None

    @property
    def end(self) -> int:
        """Pages up to and with this node."""
        return self.start + len(self.pages)

    @property
    def locked(self) -> bool:
        """Whether any component is locked."""
        return any(data.lock_refs for data in self.data.values())


@define(eq=False)
class Pool:
    """The slots of one component on one medium, and the bytes behind them."""

    capacity: int
    untouched: int = 0
    """Slots from this number on were never used, and are free."""
    returned: list[Slot] = Factory(list)
    """Slots that were freed; the last one is taken first."""
    held: set[Slot] = Factory(set)
    """Slots that requests own."""
    payloads: dict[Slot, bytes] = Factory(dict)
    leaving: int = 0
    """Slots that departures keep; they are free when the running eviction ends."""
    shown: Shown[PoolState] = None

    @property
    def free_slots(self) -> int:
        """How many slots are free, or will be when the running eviction ends."""
        return self.capacity - self.untouched + len(self.returned) + self.leaving

    def take(self, count: int) -> tuple[Slot, ...]:
        """Take free slots; the caller has checked that `count` are free."""
        assert 0 <= count <= self.free_slots
        reused = min(count, len(self.returned))
        slots = [self.returned.pop() for _ in range(reused)]
        fresh = self.untouched
        self.untouched += count - reused
        return (*slots, *range(fresh, self.untouched))

    def give_back(self, slots: tuple[Slot, ...]) -> None:
        """Put slots into the free list."""
        self.returned.extend(reversed(slots))


@define(eq=False)
class Hold:
    """What an open receipt holds: full data from `node` up, window data and mamba state."""

    receipt: Receipt
    node: Node
    window_from: int | None
    """First page whose window data is held."""
    state_held: bool
    transfer: Transfer | None = None
    shown: Shown[HoldState] = None


@define(eq=False)
class Transfer:
    """A copy in flight. `sources` and `targets` are fixed; `parts` follow the cuts of nodes."""

    transfer_id: TransferId
    direction: Direction
    parts: list[tuple[Node, Component]]
    sources: dict[Component, tuple[Slot, ...]]
    targets: dict[Component, tuple[Slot, ...]]
    hold: Hold | None = None
    cancelled: bool = False
    shown: Shown[TransferState] = None

    @property
    def target_medium(self) -> Medium:
        """The medium that it writes."""
        return self.direction.target

    @property
    def source_medium(self) -> Medium:
        """The medium that it reads."""
        return self.direction.source


@define(eq=False)
class LeavingVictim:
    """A victim of the running eviction, under write_back: its data leaves when it is copied.

    The node has given the slots up, so that further victims are chosen as if it had left.
    """

    node: Node
    slots: dict[Component, tuple[Slot, ...]]
    """The device slots of the components that leave."""
    whole: bool
    """Whether the whole node leaves the device."""


@define(eq=False)
class OpenOrder:
    """An order to the store: of a write until it has ended, of a fetch until nobody needs it."""

    order_id: OrderId
    kind: OrderKind
    key: Key
    """Its last pages are those of the order."""
    start: int
    hashes: tuple[bytes, ...]
    """The names of its pages."""
    slots: tuple[Slot, ...] = ()
    """Of a fetch: the host slots that it fills, one for each page."""
    pages: int = 0
    """Leading pages that are done on every rank."""
    ended: bool = False
    cancelled: bool = False


@define(eq=False)
class Tier:
    """The store below the host, as the cache knows it."""

    queue: StoreQueue
    is_open: bool = True
    stored: dict[bytes, BlockStored] = Factory(dict)
    """The pages that it is known to have, as they were announced."""
    orders: dict[OrderId, OpenOrder] = Factory(dict)
    reported: dict[OrderId, OrderProgress] = Factory(dict)
    """How far the open orders are on this rank."""

    def writes(self) -> list[OpenOrder]:
        """The open orders that write."""
        return [order for order in self.orders.values() if order.kind is OrderKind.WRITE]


PoolName: TypeAlias = tuple[Component, Medium]


def _fresh_root(config: CacheConfig) -> Node:
    data = {component: Data() for component in config.components}
    return Node(0, None, DEFAULT_NAMESPACE, (), 0, data, created=0, last_access=0)


@define(eq=False)
class State:
    """The whole cache."""

    config: CacheConfig
    engine: TransferEngine
    agree: Agree | None = None
    """Asks the other ranks how far their copies are; None if there are no others."""
    root: Node = field(init=False)
    nodes: dict[NodeId, Node] = field(init=False)
    pools: dict[PoolName, Pool] = field(init=False)
    owners: dict[PoolName, dict[Node, None]] = field(init=False)
    """The nodes that own slots of a pool; victims are chosen among them."""
    swa_of_full: dict[Slot, Slot] = Factory(dict)
    full_of_swa: dict[Slot, Slot] = Factory(dict)
    holds: dict[ReceiptId, Hold] = Factory(dict)
    transfers: dict[TransferId, Transfer] = Factory(dict)
    """Transfers in flight, in the order in which they were enqueued."""
    arrived: dict[TransferId, bool] = Factory(dict)
    """Completions that the engine reported, of transfers that have not settled."""
    departures: list[LeavingVictim] = Factory(list)
    """Of the running eviction, in the order in which the victims were chosen."""
    victims_copy: Transfer | None = None
    """The copy of the victims in `departures`; None if the host lacks nothing of them."""
    tier: Tier | None = None
    """The store below the host; None without one."""
    events: list[Event] = Factory(list)
    """The log of events that wait to be taken."""
    events_given_up: bool = False
    """Whether more events would wait than may, so that the log was emptied and stays empty."""
    clock: int = 0
    next_id: int = 1
    """The next id of a node, receipt or transfer; ids are never reused."""

    def __attrs_post_init__(self) -> None:
        names = [(c, m) for c in self.config.components for m in (GPU, CPU)]
        self.pools = {name: Pool(self.config.capacity(*name)) for name in names}
        self.forget()

    def forget(self) -> None:
        """Start with an empty tree; pools, and the slots that requests hold, stay as they are."""
        self.root = _fresh_root(self.config)
        self.nodes = {self.root.node_id: self.root}
        self.owners = {name: {} for name in self.pools}

    def new_id(self) -> int:
        """An id that no node, receipt or transfer had before."""
        self.next_id += 1
        return self.next_id - 1

    def tick(self) -> int:
        """A new tick; an operation that uses or creates nodes draws one."""
        self.clock += 1
        return self.clock
