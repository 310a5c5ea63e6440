"""UnifiedRadixCache: the operations of the book, as calls of SGLang's.

What an engine would never ask is refused here and never reaches SGLang: slots that nobody holds,
keys that end inside a node (its handles are nodes), locks of what is not on the device. What it
answers is passed on; what it does not say (which slots came free) is read in its free lists.

What readers get wrong: SGLang's own slots never come here. Every slot of a case is a page.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from itertools import count
from typing import Any

from attrs import Factory, define, frozen

from kvcanon.conformance.adapters.sglang.events import Names
from kvcanon.conformance.adapters.sglang.installed import called, named
from kvcanon.conformance.adapters.sglang.keys import keys_of
from kvcanon.conformance.adapters.sglang.making import World, kinds_of
from kvcanon.conformance.adapters.sglang.peer import LockReceipt, Node, Tensor
from kvcanon.conformance.adapters.sglang.seeing import Books, Stop, Tree, mapping_of, see
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import (
    BadArgument,
    CacheBusy,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
)
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.snapshot import HoldState, Snapshot
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Medium, Slot, Slots


@frozen(eq=False)
class OpenLock:
    """A lock that SGLang gave."""

    receipt: Receipt
    node: Node
    given: LockReceipt


@define(eq=False)
class UnifiedCache:
    """A `UnifiedRadixCache`. What its methods do, `kvcanon.spec.cache` says."""

    world: World
    profile: Profile
    tree: Tree
    names: Names = Factory(Names)
    held: dict[Component, set[Slot]] = Factory(dict)
    locks: dict[int, OpenLock] = Factory(dict)
    waiting: list[Event] = Factory(list)
    ids: count[int] = Factory(lambda: count(1))

    def __attrs_post_init__(self) -> None:
        self.held = {component: set() for component in self.config.components}

    @property
    def config(self) -> CacheConfig:
        """What the cache was asked to be."""
        return self.world.config

    # Matching and locking.

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        if not len(key):
            return Matched(0, 0, Slots())
        asked = named("MatchPrefixParams")(key=self.tree.keys.radix_key(key))
        found: Any = self.world.cache.match_prefix(asked)
        device_pages = len(found.device_indices) // self.config.page_size
        return Matched(
            prefix_pages=self.tree.depth_pages(found.best_match_node),
            device_pages=device_pages,
            slots=self._slots_behind(found.device_indices, found.last_device_node),
        )

    def lock(self, key: Key) -> Receipt:
        """Hold all of a key, which ends where a node does."""
        node = self._node_at(key)
        given = self.world.cache.inc_lock_ref(node)
        receipt = Receipt(next(self.ids), key)
        self.locks[receipt.receipt_id] = OpenLock(receipt, node, given)
        return receipt

    def unlock(self, receipt: Receipt) -> None:
        """Release what a receipt holds."""
        lock = self.locks.get(receipt.receipt_id)
        if lock is None or lock.receipt != receipt:
            raise ReceiptSpent(receipt.receipt_id)
        del self.locks[receipt.receipt_id]
        self.world.cache.dec_lock_ref(lock.node, lock.given.to_dec_params())

    # Slots.

    def allocate(self, counts: Counts) -> Slots:
        """Take free device slots; window slots are mapped from the last full slots."""
        self._require_counts(counts)
        if counts.swa > counts.full:
            raise BadArgument("swa", f"{counts.swa} slots asked for {counts.full} pages")
        for component in self.config.components:
            free = len(self.world.pools[component, GPU].free_slots())
            if free < counts[component]:
                raise OutOfSlots(f"{component} on GPU", counts[component], free)
        full, swa = self._take_pages(counts)
        taken = {FULL: full, SWA: swa, MAMBA: self._take_states(counts.mamba)}
        slots = Slots(
            **{
                component.value: self.world.pools[component, GPU].slots(tokens) or ()
                for component, tokens in taken.items()
                if component in self.config.components
            }
        )
        for component in self.config.components:
            self.held[component].update(slots[component])
        return slots

    def free(self, slots: Slots) -> None:
        """Give slots back: full slots with the window slots that they lead to."""
        self._require_held(slots)
        alone = self._alone(slots)
        full = self.world.pools[FULL, GPU]
        if slots.full:
            self.world.allocator.free(full.tokens(slots.full))
        if alone:
            self.world.allocator.free_swa(full.tokens(alone))
        if slots.mamba:
            self.world.states.free(self.world.pools[MAMBA, GPU].tokens(slots.mamba))
        self._let_go(slots)

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The free slots of a pool, as its own list has them."""
        pool = self.world.pools.get((component, medium))
        return () if pool is None else pool.free_slots()

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """The bytes behind a slot."""
        pool = self.world.pools.get((component, medium))
        if pool is None or not 0 <= slot < pool.capacity:
            raise BadArgument("slot", f"is {slot}; there is no such slot of {component}")
        return pool.read(slot)

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes behind a slot that a request holds."""
        if len(data) != self.config.slot_bytes:
            raise BadArgument("data", f"has {len(data)} bytes, not {self.config.slot_bytes}")
        if slot not in self.held.get(component, ()):
            raise SlotNotHeld(f"{component} on GPU", slot)
        self.world.pools[component, GPU].write(slot, data)

    # Inserting and evicting.

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Hand over the data of a key from a page on."""
        stops = self._require_insert(key, start_pages, slots, counted_pages)
        self._let_go(slots)
        before = self._free_counts()
        present = _resident_pages(self.tree, stops)
        self.names.learn(key)
        answer = self.world.cache.insert(self._insert_params(key, stops, slots, priority))
        if slots.mamba and answer.mamba_exist:
            self.world.states.free(self.world.pools[MAMBA, GPU].tokens(slots.mamba))
        after = self._free_counts()
        freed = Counts(*[after[c] - before[c] for c in (FULL, SWA, MAMBA)])
        handed = slots.counts()
        adopted = Counts(*[handed[c] - freed[c] for c in (FULL, SWA, MAMBA)])
        return Inserted(present, adopted, freed)

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        self._require_counts(counts)
        size = self.config.page_size
        answer: Any = self.world.cache.evict(
            named("EvictParams")(
                num_tokens=counts.full * size,
                swa_num_tokens=counts.swa * size,
                mamba_num=counts.mamba,
            )
        )
        freed = Counts(
            answer.num_tokens_evicted // size,
            answer.swa_num_tokens_evicted // size,
            answer.mamba_num_evicted,
        )
        return Evicted(freed)

    def reset(self) -> None:
        """Forget the whole tree; the allocators are cleared by whoever resets it."""
        if self.locks:
            raise CacheBusy(len(self.locks))
        full, states = self._tree_tokens()
        self.world.cache.reset()
        self.world.allocator.free(full)
        if self.world.states is not None:
            self.world.states.free(states)

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        self._hear()
        taken, self.waiting = tuple(self.waiting), []
        return taken

    def snapshot(self) -> Snapshot:
        """The whole state."""
        self._hear()
        books = Books(
            held=self.held,
            holds=tuple(self._hold(lock) for lock in self.locks.values()),
            transfers=(),
            backing={},
            events=tuple(self.waiting),
        )
        return see(self.world, self.tree, books, self.profile)

    # Inside.

    def _hear(self) -> None:
        self.waiting += self.names.translated(self.world.cache.take_events())

    def _slots_behind(self, tokens: Tensor, node: Node) -> Slots:
        """The slots of a matched prefix: full, what these lead to, and the state at its end."""
        full = self.world.pools[FULL, GPU].slots_of(tokens.tolist())
        swa: tuple[Slot, ...] = ()
        if SWA in self.config.components:
            leads = mapping_of(self.world)
            reach = [leads.get(slot) for slot in full]
            gap = max((at for at, slot in enumerate(reach) if slot is None), default=-1)
            swa = tuple([slot for slot in reach[gap + 1 :] if slot is not None])
        mamba: tuple[Slot, ...] = ()
        if MAMBA in self.config.components and full:
            state = self.tree.data(node, MAMBA).value
            mamba = self.world.pools[MAMBA, GPU].slots(state) or ()
        return Slots(full, swa, mamba)

    def _node_at(self, key: Key) -> Node:
        """The node that a key ends at. Raises: PrefixNotCached, BadArgument."""
        if not len(key):
            return self.tree.root
        stops = self.tree.path(key)
        present = sum(stop.shared_pages for stop in stops)
        if present < len(key):
            raise PrefixNotCached(len(key), present)
        if stops[-1].end_pages != len(key):
            raise BadArgument("key", "ends inside a node, which SGLang has no handle for; match it")
        if not self._ends_match(stops):
            raise BadArgument(
                "key", "ends where no match on the device does, so that nobody locks it"
            )
        return stops[-1].node

    def _ends_match(self, stops: list[Stop]) -> bool:
        """Whether a match on the device can end where a path does."""
        has = {
            component: tuple(
                [self.tree.data(stop.node, component).value is not None for stop in stops]
                if component in self.config.components
                else [True] * len(stops)
            )
            for component in Component
        }
        lengths = tuple([stop.shared_pages * self.config.page_size for stop in stops])
        window = self.config.window_tokens or 1
        usable = usable_prefix(lengths, has[FULL], has[SWA], has[MAMBA], window)
        return usable == sum(lengths)

    def _take_pages(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """Full slots, and window slots that the last of them lead to, as tokens."""
        allocator, size = self.world.allocator, self.config.page_size
        if SWA not in self.config.components:
            return allocator.alloc(counts.full * size), None
        full = allocator.full_attn_allocator.alloc(counts.full * size)
        swa = allocator.swa_attn_allocator.alloc(counts.swa * size)
        if counts.swa:
            allocator.set_full_to_swa_mapping(full[-counts.swa * size :], swa)
        return full, swa

    def _take_states(self, states: int) -> Tensor:
        return self.world.states.alloc(states) if states else None

    def _alone(self, slots: Slots) -> tuple[Slot, ...]:
        """The full slots that lead to window slots which are given back without them."""
        leads = mapping_of(self.world)
        with_full = {leads[slot] for slot in slots.full if slot in leads}
        if not with_full.issubset(slots.swa):
            raise BadArgument("slots.full", "are given back without the window slots they lead to")
        full_of = {swa: full for full, swa in leads.items()}
        return tuple(full_of[slot] for slot in slots.swa if slot not in with_full)

    def _let_go(self, slots: Slots) -> None:
        for component, some in slots:
            if some:
                self.held[component].difference_update(some)

    def _require_counts(self, counts: Counts) -> None:
        for component in Component:
            if counts[component] < 0:
                raise BadArgument(str(component), f"{counts[component]} slots; ask for 0 or more")
            if counts[component] and component not in self.config.components:
                raise BadArgument(str(component), "is no component of this cache")

    def _require_held(self, slots: Slots) -> None:
        for component, some in slots:
            if some and component not in self.config.components:
                raise BadArgument(str(component), "is no component of this cache")
            if len(set(some)) < len(some):
                raise BadArgument(str(component), "names a slot twice")
            for slot in some:
                if slot not in self.held[component]:
                    raise SlotNotHeld(f"{component} on GPU", slot)

    def _require_insert(
        self, key: Key, start_pages: int, slots: Slots, counted_pages: int
    ) -> list[Stop]:
        """Refuse what no engine asks for. Returns the path of the key."""
        if not 0 <= start_pages <= len(key) or not 0 <= counted_pages <= len(key):
            raise BadArgument("start_pages", f"is outside of the {len(key)} pages of the key")
        if len(slots.full) != len(key) - start_pages or len(slots.swa) > len(slots.full):
            raise BadArgument("slots", f"do not fit pages {start_pages}..{len(key)} of the key")
        self._require_held(slots)
        if MAMBA in self.config.components and len(slots.mamba) != 1:
            raise BadArgument("slots.mamba", "must be the state at the end of the key")
        leads = mapping_of(self.world)
        unpaired = len(slots.full) - len(slots.swa)
        reach = [leads.get(slot) for slot in slots.full]
        if SWA in self.config.components and reach != [*[None] * unpaired, *slots.swa]:
            raise BadArgument("slots.swa", "are not those that the full slots lead to")
        stops = self.tree.path(key)
        resident = _resident_pages(self.tree, stops)
        if resident < start_pages:
            raise PrefixNotCached(start_pages, resident)
        if start_pages and start_pages not in [stop.end_pages for stop in stops]:
            raise BadArgument("start_pages", "is inside a node; SGLang's requests own whole nodes")
        return stops

    def _insert_params(self, key: Key, stops: list[Stop], slots: Slots, priority: int) -> object:
        size, start = self.config.page_size, len(key) - len(slots.full)
        owned = [self.tree.data(s.node, FULL).value for s in stops if s.end_pages <= start]
        value = _cat([*owned, self.world.pools[FULL, GPU].tokens(slots.full)])
        slid = len(slots.swa) < len(slots.full)
        return called(
            named("InsertParams"),
            key=self.tree.keys.radix_key(key),
            value=value,
            prev_prefix_len=start * size,
            swa_evicted_seqlen=(len(key) - len(slots.swa)) * size if slid else 0,
            mamba_value=(self.world.pools[MAMBA, GPU].tokens(slots.mamba) if slots.mamba else None),
            priority=priority,
        )

    def _free_counts(self) -> dict[Component, int]:
        counts = dict.fromkeys(Component, 0)
        for component in self.config.components:
            counts[component] = len(self.world.pools[component, GPU].free_slots())
        return counts

    def _tree_tokens(self) -> tuple[Tensor, Tensor]:
        """All device slots of the tree, as tokens: full ones, and states."""
        full: list[Tensor] = []
        states: list[Tensor] = []
        for node in self.tree.nodes():
            if node is not self.tree.root:
                full.append(self.tree.data(node, FULL).value)
                if MAMBA in self.config.components:
                    states.append(self.tree.data(node, MAMBA).value)
        return _cat(each for each in full if each is not None), _cat(
            each for each in states if each is not None
        )

    def _hold(self, lock: OpenLock) -> HoldState:
        """A lock as the book has it: SGLang marks the node where the window begins."""
        window_from = None
        if SWA in self.config.components:
            window_from = self._window_from(lock.node, lock.given.swa_uuid_for_lock)
        return HoldState(
            receipt_id=lock.receipt.receipt_id,
            node_id=lock.node.id,
            window_from_pages=window_from,
            state_held=MAMBA in self.config.components and bool(len(lock.receipt.key)),
        )

    def _window_from(self, node: Node, boundary: object) -> int:
        """The first page of the node with this mark, or of the whole path."""
        while boundary is not None and node.parent is not None:
            if self.tree.data(node, SWA).metadata.get("uuid") == boundary:
                return self.tree.depth_pages(node.parent)
            node = node.parent
        return 0


def make_unified(world: World, profile: Profile) -> UnifiedCache:
    """The adapter of a world."""
    core: Any = getattr(world.cache, "tree_core", world.cache)
    keys = keys_of(world.config.page_size, core.root_node.key.token_ids)
    tree = Tree(core, keys, kinds_of(world.config), world.pools)
    return UnifiedCache(world, profile, tree)


def _resident_pages(tree: Tree, stops: list[Stop]) -> int:
    """How many leading pages of a path have full data on the device."""
    pages = 0
    for stop in stops:
        if tree.data(stop.node, FULL).value is None:
            break
        pages += stop.shared_pages
    return pages


def _cat(tensors: Iterable[Tensor]) -> Tensor:
    torch = import_module("torch")
    some = list(tensors)
    return torch.cat(some) if some else torch.empty((0,), dtype=torch.int64)
