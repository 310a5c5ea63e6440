"""All the data that the plain cache has, and nothing else.

A node owns its slots, a request owns those in `held`, a pool owns those in its free list, and a
cancelled transfer those it still writes to: every slot has exactly one of these owners at any time.

What readers get wrong: nodes are mutable and their identity matters only inside one operation. What
outlives an operation, a hold or a transfer, names a node, and a cut always leaves that node at the
*lower* end of what it covered.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import Factory, define, field

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Receipt
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.transfer import Direction, TransferEngine
from kvcanon.spec.types import (
    CPU,
    DEFAULT_NAMESPACE,
    GPU,
    Component,
    Medium,
    Namespace,
    NodeId,
    Page,
    ReceiptId,
    Slot,
    TransferId,
)


@define(eq=False)
class Data:
    """One component's data at one node."""

    device: tuple[Slot, ...] | None = None
    host: tuple[Slot, ...] | None = None
    lock_refs: int = 0
    used: int = 0
    """Tick of its last use; for full data the node's `last_access` counts instead."""
    loading: Transfer | None = None
    """The transfer that has yet to fill `device`."""
    backing: Transfer | None = None
    """The transfer that has yet to fill `host`."""

    def slots(self, medium: Medium) -> tuple[Slot, ...] | None:
        """The slots on a medium, filled or being filled."""
        return self.device if medium is GPU else self.host


Edge: TypeAlias = Page | tuple[Namespace, Page]
"""What a child is found by: its first page, with its namespace where it hangs on the root."""


@define(eq=False)
class Node:
    """A stretch of pages with one residency."""

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
    shown: tuple[tuple[object, ...], NodeState] | None = None
    """What it was made of when it was last shown as a value, and that value."""

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
    """Slots that came back, the last of which goes first."""
    held: set[Slot] = Factory(set)
    """Slots that requests own."""
    payloads: dict[Slot, bytes] = Factory(dict)

    @property
    def free_slots(self) -> int:
        """How many slots are free."""
        return self.capacity - self.untouched + len(self.returned)

    def take(self, count: int) -> tuple[Slot, ...]:
        """Take free slots; the caller has made sure that there are so many."""
        assert 0 <= count <= self.free_slots
        reused = min(count, len(self.returned))
        slots = [self.returned.pop() for _ in range(reused)]
        fresh = self.untouched
        self.untouched += count - reused
        return (*slots, *range(fresh, self.untouched))

    def give_back(self, slots: tuple[Slot, ...]) -> None:
        """Take slots into the free list."""
        self.returned.extend(reversed(slots))


@define(eq=False)
class Hold:
    """What an open receipt holds: full data from `node` up, and the two parts that go early."""

    receipt: Receipt
    node: Node
    window_from: int | None
    """First page whose window data is held."""
    state_held: bool
    transfer: Transfer | None = None


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

    @property
    def target_medium(self) -> Medium:
        """The medium that it writes."""
        return self.direction.target

    @property
    def source_medium(self) -> Medium:
        """The medium that it reads."""
        return self.direction.source


PoolName: TypeAlias = tuple[Component, Medium]


def _fresh_root(config: CacheConfig) -> Node:
    data = {component: Data() for component in config.components}
    return Node(0, None, DEFAULT_NAMESPACE, (), 0, data, created=0, last_access=0)


@define(eq=False)
class State:
    """The whole cache."""

    config: CacheConfig
    engine: TransferEngine
    root: Node = field(init=False)
    nodes: dict[NodeId, Node] = field(init=False)
    pools: dict[PoolName, Pool] = field(init=False)
    owners: dict[PoolName, dict[Node, None]] = field(init=False)
    """The nodes that own slots of a pool: where victims are looked for."""
    swa_of_full: dict[Slot, Slot] = Factory(dict)
    full_of_swa: dict[Slot, Slot] = Factory(dict)
    holds: dict[ReceiptId, Hold] = Factory(dict)
    transfers: dict[TransferId, Transfer] = Factory(dict)
    """In flight, in the order in which they were enqueued."""
    arrived: dict[TransferId, bool] = Factory(dict)
    """Completions that the engine reported and that wait for those before them."""
    events: list[Event] = Factory(list)
    clock: int = 0
    next_id: int = 1
    """For nodes, receipts and transfers alike; never reused."""

    def __attrs_post_init__(self) -> None:
        names = [(c, m) for c in self.config.components for m in (GPU, CPU)]
        self.pools = {name: Pool(self.config.capacity(*name)) for name in names}
        self.forget()

    def forget(self) -> None:
        """Start over with an empty tree; pools and their holders stay as they are."""
        self.root = _fresh_root(self.config)
        self.nodes = {self.root.node_id: self.root}
        self.owners = {name: {} for name in self.pools}

    def new_id(self) -> int:
        """A number that no node, receipt or transfer had before."""
        self.next_id += 1
        return self.next_id - 1

    def tick(self) -> int:
        """A new moment: once an operation that uses or makes nodes."""
        self.clock += 1
        return self.clock
