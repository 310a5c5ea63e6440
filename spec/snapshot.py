"""Chapter 10. Snapshot: the whole state of a cache at one moment, as a value.

A snapshot has only facts: nodes, pages, slots, locks. Oracles and laws compute what follows from
them: which leaf may be evicted, which prefix is usable.

Where a cache cuts its nodes is its own choice, so the laws are about pages. Their texts name nodes
only to say where to look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Self, TypeVar, overload

from attrs import Factory, field, frozen

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Outcome
from kvcanon.spec.oracle.eviction import may_leave_device, may_leave_host
from kvcanon.spec.tier import StoreState
from kvcanon.spec.transfer import Direction
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

Owner = TypeVar("Owner")
Value = TypeVar("Value")


class kept(Generic[Owner, Value]):  # noqa: N801  # It stands where `property` would.
    """A property that is computed at the first look, and then kept in the object.

    A `cached_property` does the same, but it takes a lock, and in a class of attrs with slots each
    look-up fails once before it succeeds. A step looks a dozen of them up.
    """

    def __init__(self, compute: Callable[[Owner], Value]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Owner], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Owner]) -> Self: ...

    @overload
    def __get__(self, instance: Owner, owner: type[Owner]) -> Value: ...

    def __get__(self, instance: Owner | None, owner: type[Owner]) -> Self | Value:
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value  # From now on it is found first.


@frozen
class ComponentState:
    """One component's data at one node.

    `device` and `host` have one slot a page of the node, or exactly one for mamba; None if the data
    is not on that medium. They have the slots from the enqueue of the copy on; `loading` and
    `backing` name the transfer that has not yet filled them.
    """

    device: tuple[Slot, ...] | None = None
    host: tuple[Slot, ...] | None = None
    lock_refs: int = 0
    loading: TransferId | None = None
    backing: TransferId | None = None

    def slots(self, medium: Medium) -> tuple[Slot, ...] | None:
        """The slots on a medium, filled or being filled."""
        return self.device if medium is GPU else self.host if medium is CPU else None

    def pending(self, medium: Medium) -> TransferId | None:
        """The transfer that has not yet filled the slots on a medium."""
        return self.loading if medium is GPU else self.backing if medium is CPU else None

    def resident(self, medium: Medium) -> bool:
        """Whether the bytes are on a medium: it has slots, and no copy has yet to fill them."""
        return self.slots(medium) is not None and self.pending(medium) is None

    @property
    def anywhere(self) -> bool:
        """Whether the data is on some medium, or being copied there."""
        return self.device is not None or self.host is not None


NO_DATA = ComponentState()


def _of(component: Component) -> Any:  # noqa: ANN401  # It passes for the value that it makes.
    """The default of a field of a node that is one component's part of `data`."""
    return Factory(lambda node: node.data.get(component, NO_DATA), takes_self=True)


class PartsOf(NamedTuple):
    """The components that a node has in some way."""

    device: frozenset[Component]
    """On the device, filled or being filled."""
    host: frozenset[Component]
    locked: frozenset[Component]
    loading: frozenset[Component]
    """Being copied to the device."""
    backing: frozenset[Component]
    """Being copied to the host."""


@frozen(slots=False)
class NodeState:
    """One node of the radix tree: consecutive pages whose data is on the same media."""

    node_id: NodeId
    parent_id: NodeId | None
    child_ids: tuple[NodeId, ...]
    namespace: Namespace
    pages: tuple[Page, ...]
    """The edge from the parent: at least one whole page; none for the root."""
    data: Mapping[Component, ComponentState]
    hit_count: int = 0
    priority: int = 0
    created: int = 0
    last_access: int = 0
    """Tick of the last operation that used the node: the recency of its full data."""
    hashes: tuple[bytes, ...] | None = None
    """The hashes of its pages; None if the cache has not computed them yet."""
    full: ComponentState = field(default=_of(FULL), init=False, eq=False, repr=False)
    """As `node[FULL]`: laws look at it all the time."""
    swa: ComponentState = field(default=_of(SWA), init=False, eq=False, repr=False)
    mamba: ComponentState = field(default=_of(MAMBA), init=False, eq=False, repr=False)

    def __getitem__(self, component: Component) -> ComponentState:
        return self.data.get(component, NO_DATA)

    @kept
    def parts(self) -> PartsOf:
        """Its components, by what they have."""
        data = self.data.items()
        return PartsOf(
            device=frozenset([component for component, each in data if each.device is not None]),
            host=frozenset([component for component, each in data if each.host is not None]),
            locked=frozenset([component for component, each in data if each.lock_refs]),
            loading=frozenset([component for component, each in data if each.loading is not None]),
            backing=frozenset([component for component, each in data if each.backing is not None]),
        )


@frozen
class HoldState:
    """An open receipt, and what the cache says that it holds."""

    receipt_id: ReceiptId
    node_id: NodeId
    """The last node that is held."""
    window_from_pages: int | None
    """First page whose window data is held; None if none is, or it was released early."""
    state_held: bool
    """Whether the mamba state at the end is held."""
    transfer_id: TransferId | None = None
    """The transfer that holds it; None for a request."""
    window_gaps: tuple[tuple[int, int], ...] = ()
    """Ranges of pages, (begin, end), whose window data it does not hold: some caches lock only
    window data that is present, and these pages had none when the receipt was opened."""


@frozen
class TransferState:
    """A transfer in flight: enqueued and not yet settled."""

    transfer_id: TransferId
    direction: Direction
    parts: tuple[tuple[NodeId, Component], ...]
    """The nodes whose data it copies, root first. A cut of a node makes two parts of one."""
    sources: Mapping[Component, tuple[Slot, ...]]
    targets: Mapping[Component, tuple[Slot, ...]]
    cancelled: bool = False
    """Its nodes no longer wait for it; its target slots are freed when it ends."""


@frozen(slots=False)
class PoolState:
    """The slots of one component on one medium."""

    capacity: int
    free: tuple[Slot, ...]
    held: frozenset[Slot] = frozenset()
    """Slots that requests own. On the host: those of prefetches, or that a client fills itself."""

    @kept
    def free_set(self) -> frozenset[Slot]:
        """The free slots, without order."""
        return frozenset(self.free)


NO_POOL = PoolState(0, ())
"""The pool of a component or medium that a cache lacks."""


@frozen
class Usage:
    """A cache's own counts of the tree's slots in one device pool; admission relies on them."""

    evictable: int
    """On nodes whose component is not locked."""
    protected: int
    """On nodes whose component is locked."""


Pool = tuple[Component, Medium]


@frozen(slots=False)
class Snapshot:
    """The whole state of a cache.

    `recency` has the LRU order of the nodes that have a component's data on a medium. If two nodes
    were used by the same operation, the upper one comes first.
    """

    config: CacheConfig
    root_id: NodeId
    nodes: Mapping[NodeId, NodeState]
    recency: Mapping[Pool, tuple[NodeId, ...]]
    pools: Mapping[Pool, PoolState]
    usage: Mapping[Component, Usage]
    swa_of_full: Mapping[Slot, Slot]
    """The window slot of each full slot; attention kernels look it up."""
    holds: tuple[HoldState, ...] = ()
    transfers: tuple[TransferState, ...] = ()
    """In the order in which they were enqueued."""
    events: tuple[Event, ...] = ()
    """Events that were not taken yet."""
    profile: Profile = field(default=CANON)
    store: StoreState | None = None
    """The store below the host; None without one."""

    @kept
    def starts(self) -> Starts:
        """For each node that is reachable from the root, the number of pages before it."""
        return Starts(self)

    @kept
    def paths(self) -> dict[Key, tuple[Any, ...]]:
        """A memo of `views.path_of`: the paths of keys."""
        return {}

    @kept
    def rows(self) -> dict[NodeId, list[Any]]:
        """A memo of `views.rows_of`: the rows of the pages of nodes."""
        return {}

    @kept
    def hashes(self) -> dict[NodeId, tuple[bytes, ...]]:
        """A memo of `laws.page_hashes`: the page hashes of nodes that do not show them."""
        return {}

    @kept
    def _found_below(self) -> dict[NodeId, dict[tuple[Namespace, Page], NodeState]]:
        """A memo of `child`: children by namespace and first page."""
        return {}

    @kept
    def upwards(self) -> Upwards:
        """For each node, the node and its ancestors, without the root."""
        return Upwards(self.nodes)

    @property
    def root(self) -> NodeState:
        """The root: no pages, no data, in no namespace."""
        return self.nodes[self.root_id]

    def below_root(self) -> tuple[NodeState, ...]:
        """Every node but the root."""
        return self._below_root

    @kept
    def _below_root(self) -> tuple[NodeState, ...]:
        return tuple([node for node in self.nodes.values() if node.node_id != self.root_id])

    def end(self, node: NodeState) -> int:
        """Pages from the root to the end of a node."""
        return self.starts[node.node_id] + len(node.pages)

    def parent(self, node: NodeState) -> NodeState | None:
        """The parent of a node; None for the root."""
        return None if node.parent_id is None else self.nodes[node.parent_id]

    def nodes_wait_for(self, transfer: TransferState) -> bool:
        """Whether nodes name the transfer that will fill them; by profile, not for a load-back."""
        loads = transfer.direction is Direction.LOAD_BACK
        return not loads or self.profile.load_back_usable is StoreMoment.ACKNOWLEDGED

    def children(self, node: NodeState) -> list[NodeState]:
        """The children of a node."""
        return [self.nodes[child_id] for child_id in node.child_ids]

    def child(self, node_id: NodeId, namespace: Namespace, page: Page) -> NodeState | None:
        """The child of a node that begins with a page, in a namespace."""
        found = self._found_below.get(node_id)
        if found is None:
            children = self.children(self.nodes[node_id])
            found = {(each.namespace, each.pages[0]): each for each in children}
            self._found_below[node_id] = found
        return found.get((namespace, page))

    def stand_as(self, other: Snapshot) -> None:
        """Reuse the page counts before each node of a state with the same pages."""
        object.__setattr__(self, "starts", other.starts)

    def is_reachable(self, node_id: NodeId) -> bool:
        """Whether a path leads from the root to a node."""
        try:
            self.starts[node_id]
        except KeyError:
            return False
        return True

    def reachable(self) -> list[NodeState]:
        """The nodes that paths from the root lead to, the root first; parents before children."""
        found, below, starts = list[NodeState](), [self.root_id], self.starts
        while below:
            node_id = below.pop()
            node = self.nodes[node_id]
            found.append(node)
            end = starts[node_id] + len(node.pages)
            for child_id in node.child_ids:
                child = self.nodes.get(child_id)
                if child is not None and child.parent_id == node_id:
                    starts[child_id] = end
                    below.append(child_id)
                elif self.is_reachable(child_id):
                    below.append(child_id)
        return found

    def describe(self, node: NodeState) -> str:
        """A text for a node, such as "node 7 (tokens 4..8)"."""
        if node.node_id == self.root_id:
            return f"the root (node {node.node_id})"
        size = self.config.page_size
        if not self.is_reachable(node.node_id):
            return f"node {node.node_id} (not reachable from the root)"
        start = self.starts[node.node_id]
        return f"node {node.node_id} (tokens {start * size}..{(start + len(node.pages)) * size})"


class Starts(dict[NodeId, int]):
    """The number of pages before each node that is reachable from the root.

    It is counted at the first look-up by `[]`, which raises KeyError for any other node.
    """

    def __init__(self, state: Snapshot) -> None:
        super().__init__({state.root_id: 0})
        self._nodes = state.nodes

    def __missing__(self, node_id: NodeId) -> int:
        path, at = list[NodeId](), node_id
        while at not in self:
            parent_id = self._nodes[at].parent_id
            parent = None if parent_id is None else self._nodes[parent_id]
            if parent_id is None or parent is None or at not in parent.child_ids:
                raise KeyError(node_id)
            if len(path) > len(self._nodes):
                raise KeyError(node_id)  # The parents form a circle.
            path.append(at)
            at = parent_id
        for below in reversed(path):
            self[below] = self[at] + len(self._nodes[at].pages)
            at = below
        return self[node_id]


class Upwards(dict[NodeId, tuple[NodeState, ...]]):
    """The nodes from each node up to below the root, found at the first look-up by `[]`."""

    def __init__(self, nodes: Mapping[NodeId, NodeState]) -> None:
        super().__init__()
        self._nodes = nodes

    def __missing__(self, node_id: NodeId) -> tuple[NodeState, ...]:
        path, node = list[NodeState](), self._nodes[node_id]
        while node.parent_id is not None:
            path.append(node)
            node = self._nodes[node.parent_id]
        found = self[node_id] = tuple(path)
        return found


def is_device_leaf(state: Snapshot, node: NodeState) -> bool:
    """Whether the node may be evicted from the device as a whole.

    Its full data is on the device, no component is locked, and no child has full data there.
    """
    if node.full.device is None or node.node_id == state.root_id:
        return False
    nodes = state.nodes
    below = [each for each in node.child_ids if nodes[each].full.device is not None]
    return may_leave_device(True, _is_locked(node), bool(below))


def is_host_leaf(state: Snapshot, node: NodeState) -> bool:
    """Whether the node may be evicted from the host as a whole: it is only there, and childless."""
    full = node.full
    if full.host is None or node.node_id == state.root_id:
        return False
    return may_leave_host(full.device is not None, True, _is_locked(node), bool(node.child_ids))


def _is_locked(node: NodeState) -> bool:
    return bool(node.full.lock_refs or node.swa.lock_refs or node.mamba.lock_refs)


@frozen(eq=False)
class RankView:
    """An operation on one of several ranks, which get the same calls."""

    outcome: Outcome
    after: Snapshot
    ended: Mapping[TransferId, bool]
    """How copies had ended on this rank when the operation was over, of those that were not settled
    before it."""
    agreed: tuple[int, ...] = ()
    """How many copies it named, each time that it called `agree` in the operation."""
    waits: int = 0
    """How often it waited for a copy."""
    hash_seed: int | None = None
    """The seed of Python's hashes in its process; None if all ranks share one process."""
