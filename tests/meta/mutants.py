"""Faults of the plain cache, each by overriding one function, each modelled on what has happened.

A mutant names the law that it is made to break. Others may speak too, or first: a slot that leaks
is also a wrong count. What must not be is that its own law never speaks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle

from attrs import frozen

from kvcanon.conformance.overriding import Overrides, Plant
from kvcanon.reference import (
    announce,
    cache,
    evict,
    host,
    host_insert,
    insert,
    load,
    lock,
    match,
    slots,
    transfer,
    tree,
    victims,
)
from kvcanon.reference.state import Data, Hold, Node, State, Transfer
from kvcanon.spec.operations import Inserted, Receipt
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.oracle.window import window_nodes
from kvcanon.spec.transfer import Direction, TransferStatus
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    Namespace,
    Page,
    Slot,
    Slots,
    TransferId,
)


@frozen
class Mutant:
    """A fault and the law that it breaks."""

    name: str
    law_id: str
    plant: Plant
    upstream: str
    """The row of the table of historical bugs that it is modelled on, or "none"."""


MUTANTS: list[Mutant] = []


def mutant(law_id: str, upstream: str = "none") -> Callable[[Plant], Plant]:
    """Enter a fault into the list."""

    def enter(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(plant.__name__, law_id, plant, upstream))
        return plant

    return enter


# The tree.


@mutant("TREE-5", "sgl#38482")
def cut_makes_the_lower_part_recent(patch: Overrides) -> None:
    """What did not match moves to the most recent end when its node is cut."""
    cut_data = tree._cut_data

    def refreshing(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        node.data[component].used = 1 << 40
        return upper

    patch.setattr(tree, "_cut_data", refreshing)


@mutant("LOCK-3", "sgl#24153")
def cut_forgets_locks(patch: Overrides) -> None:
    """The upper part of a locked node is not locked."""
    cut_data = tree._cut_data

    def forgetting(node: Node, component: Component, at: int) -> Data:
        upper = cut_data(node, component, at)
        upper.lock_refs = 0
        return upper

    patch.setattr(tree, "_cut_data", forgetting)


@mutant("ASYNC-3", "sgl#16946")
def cut_forgets_copies_in_flight(patch: Overrides) -> None:
    """The upper part of a node that is being copied is not a part of the copy."""

    def careless(state: State, upper: Node, lower: Node, component: Component, data: Data) -> None:
        for medium in (GPU, CPU):
            if data.slots(medium) is not None:
                state.owners[component, medium][upper] = None

    patch.setattr(tree, "_follow_cut", careless)


@mutant("TREE-5", "sgl#22935")
def cut_moves_the_state_up(patch: Overrides) -> None:
    """A recurrent state goes to the upper part, at whose end it was never true."""
    follow_cut = tree._follow_cut

    def moving(state: State, upper: Node, lower: Node, component: Component, data: Data) -> None:
        if component is MAMBA:
            upper.data[MAMBA], lower.data[MAMBA] = lower.data[MAMBA], data
            for medium in (GPU, CPU):
                state.owners[MAMBA, medium].pop(lower, None)
        follow_cut(state, upper, lower, component, upper.data[component])

    patch.setattr(tree, "_follow_cut", moving)


@mutant("MATCH-4", "sgl#24638")
def namespaces_share_the_root(patch: Overrides) -> None:
    """A prompt of one tenant finds the pages of another."""

    def mixed(parent: Node, namespace: Namespace, page: Page) -> Page:
        return page

    patch.setattr(tree, "edge", mixed)


# Matching and recency.


@mutant("MATCH-1", "sgl#17061")
def match_ignores_tombstones(patch: Overrides) -> None:
    """A prefix is used though window data before its end is gone."""

    def careless(
        lengths: tuple[int, ...],
        full: tuple[bool, ...],
        swa: tuple[bool, ...],
        state: tuple[bool, ...],
        window: int,
    ) -> int:
        return usable_prefix(lengths, full, (True,) * len(lengths), state, window)

    patch.setattr(match, "usable_prefix", careless)


@mutant("MATCH-1", "vllm#48959")
def match_window_is_one_short(patch: Overrides) -> None:
    """A window of all tokens but one is taken for enough."""

    def short(
        lengths: tuple[int, ...],
        full: tuple[bool, ...],
        swa: tuple[bool, ...],
        state: tuple[bool, ...],
        window: int,
    ) -> int:
        return usable_prefix(lengths, full, swa, state, max(1, window - 1))

    patch.setattr(match, "usable_prefix", short)


@mutant("MATCH-2", "vllm#45704")
def load_in_flight_counts_as_there(patch: Overrides) -> None:
    """Slots are handed out before the bytes are in them."""
    patch.setattr(match, "on_device", lambda data: data.device is not None)


@mutant("REC-1", "sgl#26615")
def refresh_whole_path(patch: Overrides) -> None:
    """Window data far before the end is made recent."""
    patch.setattr(match, "window_nodes", lambda lengths, *_: len(lengths))


@mutant("REC-1")
def refresh_last_node_only(patch: Overrides) -> None:
    """Window data that can still be reached is not made recent."""
    patch.setattr(match, "window_nodes", lambda *args: min(1, window_nodes(*args)))


@mutant("REC-2", "sgl#8931")
def match_refreshes_nothing(patch: Overrides) -> None:
    """A match leaves no trace in recency."""
    patch.setattr(match, "touch", lambda *_: None)


@mutant("REC-5", "sgl#31643")
def refresh_every_state_above(patch: Overrides) -> None:
    """All recurrent states of a path are made recent, not only the one that was found."""
    touch = match.touch

    def wide(state: State, end: Node, tick: int) -> None:
        touch(state, end, tick)
        if state.config.mamba:
            for node in tree.upwards(end):
                node.data[MAMBA].used = tick

    patch.setattr(match, "touch", wide)
    patch.setattr(insert, "touch", wide)


@mutant("REC-3", "vllm#47802")
def evict_most_recent_first(patch: Overrides) -> None:
    """The policy is not asked."""
    patch.setattr(victims, "rank", lambda state, node: (0, -node.last_access))


# Locks.


@mutant("LOCK-8", "sgl#36350")
def unlock_keeps_the_window(patch: Overrides) -> None:
    """A release gives back full data only."""
    patch.setattr(lock, "_release_window", lambda held: None)


@mutant("LOCK-6", "sgl#26919")
def lock_does_not_cut(patch: Overrides) -> None:
    """The node in which the window begins is not cut: less than the window is held."""
    patch.setattr(lock, "cut_path_at", lambda *_: None)


@mutant("LOCK-4", "trt#12667")
def evict_locked_leaves(patch: Overrides) -> None:
    """A leaf is evicted under a running request."""

    def careless(node: Node) -> bool:
        full = node.data[FULL]
        busy = any(data.loading or data.backing for data in node.data.values())
        parted = all(child.data[FULL].device is None for child in node.children.values())
        return node.parent is not None and full.device is not None and parted and not busy

    def unlink(state: State, node: Node) -> None:
        assert node.parent is not None
        del node.parent.children[tree.edge(node.parent, node.namespace, node.pages[0])]
        del state.nodes[node.node_id]

    patch.setattr(victims, "is_device_leaf", careless)
    patch.setattr(evict, "remove_leaf", unlink)


# Slots.


@mutant("ALLOC-1", "sgl#7130")
def evicted_window_slots_leak(patch: Overrides) -> None:
    """Window slots of victims never come back."""

    def leaking(state: State, node: Node, component: Component, medium: Medium) -> None:
        if component is SWA:
            slots.take(state, node, component, medium)
        else:
            slots.drop(state, node, component, medium)

    patch.setattr(victims, "drop", leaking)


@mutant("ALLOC-1", "sgl#38355")
def duplicates_leak(patch: Overrides) -> None:
    """Slots of what the tree has already are counted as freed, and are not."""

    def leaking(
        state: State, component: Component, some: tuple[Slot, ...], incoming: insert._Incoming
    ) -> None:
        incoming.freed[component] += len(some)

    patch.setattr(insert, "_free", leaking)


@mutant("ALLOC-4", "sgl#27586")
def healing_keeps_the_old_mapping(patch: Overrides) -> None:
    """A node takes a window slot, and the mapping does not lead to it."""
    place = slots.place

    def unpaired(
        state: State,
        node: Node,
        component: Component,
        medium: Medium,
        some: tuple[Slot, ...],
        *,
        filled_by: Transfer | None = None,
    ) -> None:
        pairs = dict(state.swa_of_full), dict(state.full_of_swa)
        place(state, node, component, medium, some, filled_by=filled_by)
        state.swa_of_full, state.full_of_swa = pairs

    patch.setattr(insert, "place", unpaired)


@mutant("ALLOC-6")
def refusal_evicts(patch: Overrides) -> None:
    """A call that is refused has made room before."""
    allocate = slots.allocate

    def eager(state: State, counts: Counts) -> object:
        if counts.full > state.pools[FULL, GPU].free_slots:
            evict.evict(state, Counts(full=1))
        return allocate(state, counts)

    patch.setattr(slots, "allocate", eager)


# Evicting.


@mutant("EVICT-2", "sgl#4987")
def evict_takes_more(patch: Overrides) -> None:
    """More full data leaves than was asked for."""
    evict_rightly = evict.evict

    def greedy(state: State, counts: Counts) -> Counts:
        return evict_rightly(state, Counts(counts.full and counts.full + 2, counts.swa))

    patch.setattr(cache, "evict", greedy)


@mutant("EVICT-3", "sgl#28161")
def window_leaves_its_state_behind(patch: Overrides) -> None:
    """A recurrent state stays where its window data went."""

    def alone(state: State, node: Node, component: Component) -> None:
        slots.drop(state, node, component, GPU)

    patch.setattr(evict, "_evict_inside", alone)


@mutant("EVICT-5", "sgl#33713")
def backed_leaf_is_deleted(patch: Overrides) -> None:
    """A leaf with a host copy leaves the tree instead of the device."""
    vacate = victims.vacate

    def deleting(state: State, node: Node, medium: Medium) -> None:
        vacate(state, node, medium)
        if medium is GPU and not node.children and node.data[FULL].host is not None:
            host.delete_from_host(state, node)

    patch.setattr(evict, "vacate", deleting)


# Loading back.


@mutant("LOAD-1", "sgl#26302")
def short_of_either_is_short_of_full(patch: Overrides) -> None:
    """The smaller of two free rooms is taken for the room for full data."""
    turns = cycle((True, False))

    def confused(needed: Counts, free: Counts) -> Counts:
        """The first of the two questions of a load, what to evict, gets a wrong answer."""
        rightly = slots.shortage(needed, free)
        if not next(turns) or not free.swa:
            return rightly
        return Counts(max(0, needed.full - min(free.full, free.swa)), rightly.swa, rightly.mamba)

    patch.setattr(load, "shortage", confused)


@mutant("LOAD-2", "vllm#39702")
def load_evicts_its_own_path(patch: Overrides) -> None:
    """The path of a load is not held while room is made for it, and room is made amply."""

    def unheld(state: State, counts: Counts) -> Counts:
        held = next(reversed(state.holds.values()))
        lock._count(held, -1)
        freed = evict.evict(state, Counts(counts.full and counts.full + held.node.end, counts.swa))
        lock._count(held, 1)
        return freed

    patch.setattr(load, "evict", unheld)


@mutant("DATA-2", "sgl#27444")
def load_holds_nothing(patch: Overrides) -> None:
    """What a copy reads and writes may be evicted while it is in flight."""

    def elsewhere(state: State, end: Node, key: Key, window_from: int | None) -> Hold:
        if window_from is not None:
            tree.cut_path_at(state, end, window_from)
        return lock.hold(state, state.root, key, None)

    patch.setattr(load, "hold", elsewhere)


@mutant("LOAD-5", "sgl#27444")
def load_gives_up_the_host_copy(patch: Overrides) -> None:
    """The host slots that a load reads come free when it is enqueued."""
    enqueue = transfer.enqueue

    def moving(
        state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
    ) -> Transfer:
        enqueued = enqueue(state, direction, parts, held)
        for node, component in parts:
            slots.drop(state, node, component, CPU)
        return enqueued

    patch.setattr(load, "enqueue", moving)


# Copies.


@mutant("ASYNC-1")
def settle_as_they_come(patch: Overrides) -> None:
    """Acknowledgements are taken in the order in which they arrive."""

    def hasty(
        state: State, direction: Direction | None = None
    ) -> tuple[tuple[TransferId, TransferStatus], ...]:
        settled = []
        for completion in state.engine.poll():
            arrived = state.transfers[completion.transfer_id]
            status = transfer._settle_one(state, arrived, ok=completion.ok)
            settled.append((completion.transfer_id, status))
        return tuple(settled)

    patch.setattr(cache, "settle", hasty)


@mutant("ASYNC-5", "sgl#27108")
def failure_cancels_nothing(patch: Overrides) -> None:
    """Copies that build on a failed one go on."""
    patch.setattr(transfer, "_builds_on", lambda later, failed: False)


@mutant("DATA-1", "dynamo#15079")
def failure_counts_as_done(patch: Overrides) -> None:
    """A failed copy is taken for a good one."""
    settle_one = transfer._settle_one

    def blind(state: State, settling: Transfer, *, ok: bool) -> TransferStatus:
        return settle_one(state, settling, ok=True)

    patch.setattr(transfer, "_settle_one", blind)


@mutant("DATA-1", "trt#8830")
def copy_moves_nothing(patch: Overrides) -> None:
    """A copy is acknowledged and no byte has moved."""
    patch.setattr(transfer, "_copy_slot", lambda *_: None)


# Events and names.


@mutant("EVENT-10", "sgl#22894")
def demotion_is_silent(patch: Overrides) -> None:
    """Routers are not told that a page left the device."""
    announce_removed = announce.announce_removed

    def of_the_host_only(state: State, node: Node, medium: Medium) -> None:
        if medium is CPU:
            announce_removed(state, node, medium)

    patch.setattr(victims, "announce_removed", of_the_host_only)


@mutant("EVENT-10", "lmc#3532")
def host_eviction_is_silent(patch: Overrides) -> None:
    """Routers are not told that a page left the host."""
    announce_removed = announce.announce_removed

    def of_the_device_only(state: State, node: Node, medium: Medium) -> None:
        if medium is GPU:
            announce_removed(state, node, medium)

    patch.setattr(victims, "announce_removed", of_the_device_only)


@mutant("EVENT-10", "sgl#38486")
def host_insert_is_silent(patch: Overrides) -> None:
    """Routers are not told of pages that were fetched."""
    patch.setattr(host_insert, "announce_stored", lambda *_: None)


@mutant("NS-3", "sgl#24568")
def names_ignore_the_namespace(patch: Overrides) -> None:
    """Equal tokens of two tenants have one name."""
    patch.setattr(announce, "namespace_seed", lambda namespace: b"")


# The host.


@mutant("RES-4", "sgl#31902")
def fetched_pages_hang_on_anything(patch: Overrides) -> None:
    """Fetched pages are attached below a node that has no host copy."""
    refill = host_insert._refill

    def attaching(state: State, node: Node, fetched: host_insert._Fetched) -> Node | None:
        refilled = refill(state, node, fetched)
        return node if refilled is None and node.data[FULL].host is None else refilled

    patch.setattr(host_insert, "_refill", attaching)


@mutant("RES-7", "sgl#36647")
def hits_count_twice(patch: Overrides) -> None:
    """An insert counts two hits at each node."""
    touch = match.touch

    def counting(state: State, end: Node, tick: int) -> None:
        touch(state, end, tick)
        for node in tree.upwards(end):
            node.hit_count += 1

    patch.setattr(insert, "touch", counting)


@mutant("LOCK-8", "sgl#27038")
def any_receipt_will_do(patch: Overrides) -> None:
    """A receipt that was spent releases the newest hold instead."""
    open_hold = lock._open_hold

    def lenient(state: State, receipt: Receipt) -> Hold:
        if receipt.receipt_id in state.holds or not state.holds:
            return open_hold(state, receipt)
        return next(reversed(state.holds.values()))

    patch.setattr(lock, "_open_hold", lenient)


@mutant("LOCK-10", "sgl#24972")
def poll_closes_a_receipt(patch: Overrides) -> None:
    """Taking acknowledgements releases a lock of a request."""

    def careless(
        state: State, direction: Direction | None = None
    ) -> tuple[tuple[TransferId, TransferStatus], ...]:
        settled = transfer.settle(state, direction)
        of_requests = [held for held in state.holds.values() if held.transfer is None]
        if of_requests:
            lock.release_hold(state, of_requests[0])
        return settled

    patch.setattr(cache, "settle", careless)


@mutant("TREE-6")
def free_refreshes(patch: Overrides) -> None:
    """Giving slots back makes some node recent."""
    free = slots.free

    def touching(state: State, some: Slots) -> None:
        free(state, some)
        for node in list(state.nodes.values())[1:2]:
            node.last_access = state.tick()

    patch.setattr(slots, "free", touching)


@mutant("REC-6", "vllm#47802")
def insert_ignores_priority(patch: Overrides) -> None:
    """What was asked to stay longer is ranked like anything else."""

    def plain(
        state: State, key: Key, start_pages: int, some: Slots, *, counted_pages: int, priority: int
    ) -> Inserted:
        return insert.insert(state, key, start_pages, some, counted_pages=counted_pages, priority=0)

    patch.setattr(cache, "insert", plain)
