"""The canonical form: two states that differ only by renaming get the same form.

A walk through the tree, most recently used children first, numbers slots, nodes, receipts and
transfers in the order in which it finds them. The form leaves out the tokens of a page and its
namespace: a page is known by its position among the pages that follow the same prefix, a namespace
by its position among the namespaces. Of ticks the form has only the order, and only where a policy
reads them; of hits only whether a threshold is reached.

Everything else is in the form: the snapshot, the hidden state of the plain cache, what its users
hold, the completions that the engine was given, and whether page hashes and the bytes behind slots
are right. Pending events are left out: they follow from the state, and the laws check each of them.

The form must forget nothing else: of two states with one form only the first is visited.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from operator import attrgetter

from kvcanon.conformance.cases.client import ClientRequest, Stamps
from kvcanon.conformance.explore.form import Form, Part
from kvcanon.conformance.explore.plain_cache import completions_of, hidden_in, performed_by
from kvcanon.conformance.explore.product import Product
from kvcanon.conformance.explore.stored import RightRecords, form_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.snapshot import NodeState, Pool, Snapshot, TransferState
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    EvictionPolicy,
    Medium,
    Namespace,
    NodeId,
    Page,
    Slot,
)
from kvcanon.spec.views import COLUMN, PageNumber, path_of

DIGEST_BYTES = 16


def digest(form: Form) -> bytes:
    """Hash a form. Among 10**9 states two share a digest with a probability of 10**-20."""
    # Version 2 is the last one whose output does not depend on which parts are the same object.
    return blake2b(marshal.dumps(form, 2), digest_size=DIGEST_BYTES).digest()


def hits_that_count(config: CacheConfig) -> int | None:
    """The number of hits above which more make no difference; None where each hit matters."""
    if config.eviction_policy is EvictionPolicy.LFU:
        return None
    segments = 2 if config.eviction_policy is EvictionPolicy.SLRU else 0
    return max(config.backup_hits or 0, segments)


class Canonicalizer:
    """Computes the forms of states of caches with one configuration."""

    def __init__(self, config: CacheConfig, stamps: Stamps, right: RightRecords) -> None:
        """`right` are the records of the pages of a scope with a store."""
        policy = config.eviction_policy
        self.config = config
        self.stamps = stamps
        self.right = right
        self.hits = hits_that_count(config)
        self.by_age = policy in (EvictionPolicy.FIFO, EvictionPolicy.FILO)
        self.by_priority = policy is EvictionPolicy.PRIORITY
        self._chains: dict[tuple[bytes, tuple[Page, ...]], tuple[bytes, ...]] = {}

    def form(self, product: Product, state: Snapshot) -> Form:
        """The form of a state, whose snapshot is `state`."""
        return _Walk(self, product, state).form()

    def names(self, before: bytes, pages: tuple[Page, ...]) -> tuple[bytes, ...]:
        """The page hashes of pages that follow `before`: a page hash, or a namespace's seed."""
        chain = self._chains.get((before, pages))
        if chain is None:
            chain = self._chains[before, pages] = page_hashes(before, pages)
        return chain


class _Walk:
    """The walk through one state: the numbers given so far."""

    def __init__(self, canon: Canonicalizer, product: Product, state: Snapshot) -> None:
        self._canon = canon
        self._product = product
        self._state = state
        self._hidden = hidden_in(product.subject.cache)
        self._reads = Capability.READ in product.subject.can
        self._namespaces: dict[Namespace, int] = {}
        self._nodes: dict[NodeId, int] = {state.root_id: 0}
        self._slots: dict[Pool, dict[Slot, int]] = {name: {} for name in state.pools}
        self._transfers = {
            each.transfer_id: number for number, each in enumerate(state.transfers, 1)
        }
        nodes = state.nodes.values()
        self._last = _ranks(node.last_access for node in nodes)
        self._created = _ranks(node.created for node in nodes) if canon.by_age else {}
        self._used: list[dict[int, int]] = []
        if self._hidden is not None:
            for column, component in enumerate(canon.config.components):
                ticks = [
                    self._hidden.used[node.node_id][column]
                    for node in nodes
                    if node[component].anywhere
                ]
                self._used.append(_ranks(ticks) if component is not FULL else {})

    def form(self) -> Form:
        """The whole form. The tree comes first, since it numbers what the other parts refer to."""
        state = self._state
        return (
            self._tree(),
            self._requests(),
            tuple(self._transfer(each) for each in state.transfers),
            self._engine(),
            self._holds(),
            tuple(
                tuple(self._nodes.get(node_id, -1) for node_id in order)
                for order in state.recency.values()
            ),
            self._store(),
            self._pools(),
            tuple((usage.evictable, usage.protected) for usage in state.usage.values()),
            self._mapping(),
        )

    # The tree.

    def _tree(self) -> Form:
        parts: list[Form] = []
        ends: dict[NodeId, tuple[PageNumber, bytes]] = {}
        stack = self._first_nodes()
        while stack:
            node = stack.pop()
            self._nodes[node.node_id] = len(self._nodes)
            namespace = self._namespaces.setdefault(node.namespace, len(self._namespaces))
            before = ends.get(node.parent_id) if node.parent_id is not None else None
            if before is None:
                seed = self._canon.stamps.numbers.seed(node.namespace)
                before = seed, namespace_seed(node.namespace)
            numbers = self._canon.stamps.numbers.extend(before[0], node.pages)
            names = self._canon.names(before[1], node.pages)
            ends[node.node_id] = numbers[-1], names[-1]
            parts.append(self._node(node, namespace, numbers, names))
            children = [self._state.nodes[child_id] for child_id in node.child_ids]
            stack.extend(sorted(children, key=attrgetter("last_access")))
        return tuple(parts)

    def _first_nodes(self) -> list[NodeState]:
        """The nodes below the root, as a stack: the node to walk first comes last.

        Namespaces are ordered by their most recently used node.
        """
        children = [self._state.nodes[child_id] for child_id in self._state.root.child_ids]
        newest: dict[Namespace, int] = {}
        for child in children:
            newest[child.namespace] = max(newest.get(child.namespace, 0), child.last_access)
        return sorted(children, key=lambda node: (newest[node.namespace], node.last_access))

    def _node(
        self,
        node: NodeState,
        namespace: int,
        numbers: Sequence[PageNumber],
        names: tuple[bytes, ...],
    ) -> Form:
        canon, hits = self._canon, node.hit_count
        return (
            self._nodes.get(node.parent_id or 0, -1) if node.parent_id is not None else -1,
            namespace,
            len(node.pages),
            self._last[node.last_access],
            hits if canon.hits is None else min(hits, canon.hits),
            self._created[node.created] if canon.by_age else 0,
            node.priority if canon.by_priority else 0,
            _named(node.hashes, names),
            # A store has the hashes of pages, so there the pages themselves matter.
            names[-1] if self._product.queue is not None else 0,
            *[
                self._data(node, component, column, numbers)
                for column, component in enumerate(canon.config.components)
            ],
        )

    def _data(
        self, node: NodeState, component: Component, column: int, numbers: Sequence[PageNumber]
    ) -> Form:
        data = node[component]
        if not data.anywhere:
            return (data.lock_refs, data.loading is not None, data.backing is not None)
        of_pages = numbers[-1:] if component is MAMBA else numbers
        used = 0
        if self._hidden is not None and component is not FULL:
            used = self._used[column][self._hidden.used[node.node_id][column]]
        return (
            data.lock_refs,
            self._transfers.get(data.loading, -1) if data.loading is not None else 0,
            self._transfers.get(data.backing, -1) if data.backing is not None else 0,
            used,
            *self._slots_of((component, GPU), data.device, of_pages),
            -1,
            *self._slots_of((component, CPU), data.host, of_pages),
        )

    def _slots_of(
        self, pool: Pool, slots: tuple[Slot, ...] | None, numbers: Sequence[PageNumber]
    ) -> list[int]:
        """Each slot as twice its number, plus one if the right bytes are behind it."""
        if slots is None:
            return []
        known = self._slots[pool]
        return [
            2 * known.setdefault(slot, len(known)) + self._is_right(pool, slot, number)
            for slot, number in zip(slots, numbers, strict=False)
        ]

    def _is_right(self, pool: Pool, slot: Slot, number: PageNumber) -> bool:
        """Whether a slot holds the bytes written for its page; True where bytes cannot be read."""
        if self._hidden is not None:
            data = self._hidden.payloads[pool].get(slot)
        elif self._reads:
            data = self._product.subject.cache.read(*pool, slot)
        else:
            return True
        return data == self._canon.stamps.of_page(pool[0], number)

    # Requests, copies, receipts and pools.

    def _requests(self) -> Form:
        """Requests: where their keys leave the tree, which later pages they share, and their slots.

        They are sorted by what describes each request alone.
        """
        beyond: dict[tuple[Namespace, tuple[Page, ...]], dict[Page, int]] = {}
        parts: list[Form] = []
        for about, request in sorted(
            ((self._about(each), each) for each in self._product.client.requests),
            key=lambda pair: pair[0],
        ):
            key, shared = request.key, about[2]
            letters = []
            for at in range(shared, len(key)):
                siblings = beyond.setdefault((key.namespace, key.pages[:at]), {})
                letters.append(siblings.setdefault(key.pages[at], len(siblings)))
            namespace = self._namespaces.setdefault(key.namespace, len(self._namespaces))
            numbers = self._canon.stamps.numbers.of_key(key)
            slots = tuple(
                tuple(self._slots_of((component, GPU), some, numbers[len(numbers) - len(some) :]))
                for component, some in request.slots
                if (component, GPU) in self._slots
            )
            parts.append((*about, namespace, tuple(letters), slots))
        return tuple(parts)

    def _about(self, request: ClientRequest) -> tuple[int, ...]:
        """What describes a request alone: where its key leaves the tree, and its counts."""
        path = path_of(self._state, request.key)
        return (
            self._namespaces.get(request.key.namespace, -1),
            self._nodes.get(path[-1].node.node_id, -1) if path else 0,
            sum(stop.shared_pages for stop in path),
            len(request.key),
            request.start_pages,
            *(len(some) for _, some in request.slots),
        )

    def _transfer(self, transfer: TransferState) -> Form:
        parts = [(self._nodes.get(i, -1), COLUMN[component]) for i, component in transfer.parts]
        return (
            transfer.direction.value,
            transfer.cancelled,
            tuple(parts),
            self._copied(transfer.sources, transfer.direction.source),
            self._copied(transfer.targets, transfer.direction.target),
        )

    def _copied(self, slots: Mapping[Component, tuple[Slot, ...]], medium: Medium) -> Form:
        return tuple(
            (COLUMN[component], *self._numbered((component, medium), some))
            for component, some in slots.items()
        )

    def _engine(self) -> Form:
        """The outcomes decided for copies in flight, and whether the cache has them."""
        engine, product = self._product.engine, self._product
        completions = completions_of(engine)
        opened, performed = engine.open_transfer_ids, performed_by(engine)
        arrived: Mapping[int, bool] = (
            self._hidden.arrived
            if self._hidden is not None
            else {
                i: product.decided.get(i, True)
                for i in self._transfers
                if i not in opened and i not in completions
            }
        )
        return (
            tuple((self._transfers.get(i, -1), i in performed) for i in opened),
            tuple((self._transfers.get(i, -1), ok) for i, ok in completions.items()),
            tuple(sorted((self._transfers.get(i, -1), ok) for i, ok in arrived.items())),
        )

    def _holds(self) -> Form:
        holds = [
            (
                self._nodes.get(hold.node_id, -1),
                -1 if hold.window_from_pages is None else hold.window_from_pages,
                hold.state_held,
                0 if hold.transfer_id is None else self._transfers.get(hold.transfer_id, -1),
            )
            for hold in self._state.holds
        ]
        return (len(self._product.client.receipts), *sorted(holds))

    def _pools(self) -> Form:
        """How many slots each pool has, free and held, and which held slots have a second owner."""
        parts = []
        for name, pool in self._state.pools.items():
            known = self._slots[name]
            parts.append(
                (
                    pool.capacity,
                    len(pool.free),
                    tuple(sorted(known[slot] for slot in pool.free if slot in known)),
                    len(pool.held),
                    tuple(sorted(known[slot] for slot in pool.held if slot in known)),
                )
            )
        return tuple(parts)

    def _mapping(self) -> Form:
        if SWA not in self._canon.config.components:
            return ()
        full, swa = self._slots[FULL, GPU], self._slots[SWA, GPU]
        pairs = [
            (full.get(one, -1), swa.get(other, -1))
            for one, other in self._state.swa_of_full.items()
        ]
        return tuple(sorted(pairs))

    def _store(self) -> Form:
        """What the store and its orders decide, and the slots that prefetches hold."""
        product, store = self._product, self._state.store
        if product.queue is None or store is None:
            return ()
        slots = []
        for order in store.orders:
            numbers = self._canon.stamps.numbers.of_key(order.key)
            its = numbers[len(numbers) - len(order.slots) :]
            slots.append(tuple(self._slots_of((FULL, CPU), order.slots, its)))
        prefetches = product.client.prefetches
        return (*form_of(product.queue, self._state, prefetches, self._canon.right), *slots)

    def _numbered(self, pool: Pool, slots: Iterable[Slot]) -> list[int]:
        known = self._slots[pool]
        return [known.setdefault(slot, len(known)) for slot in slots]


def _named(hashes: tuple[bytes, ...] | None, names: tuple[bytes, ...]) -> Part:
    """Whether a node has no page hashes or the right ones; wrong ones as they are."""
    if hashes is None:
        return 0
    return 1 if hashes == names else hashes


def _ranks(ticks: Iterable[int]) -> dict[int, int]:
    return {tick: rank for rank, tick in enumerate(sorted(set(ticks)))}
