"""UnifiedRadixCache: translates the operations of the spec to SGLang's calls.

Its answers are passed on. What SGLang does not return (the freed slots, the pages without a host
copy) is read from its free lists and its tree. Slots are pages, as in a case; SGLang's token slots
do not leave this package.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import count

from attrs import Factory, define, field, frozen

from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.sglang import validate
from kvcanon.conformance.engines.sglang.events import SGLangEventTranslator
from kvcanon.conformance.engines.sglang.factory import World
from kvcanon.conformance.engines.sglang.peer_types import LockReceipt, SGLangNode, Tensor
from kvcanon.conformance.engines.sglang.release import called, named, takes
from kvcanon.conformance.engines.sglang.snapshot import (
    MatchedNode,
    Span,
    Tree,
    held_window,
    mapping_of,
    node_states,
)
from kvcanon.conformance.engines.sglang.transfers import PendingCopies
from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.errors import BadArgument, CacheBusy, ReceiptSpent, SlotNotHeld
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.snapshot import HoldState, PoolState, Snapshot
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Medium, Slot, Slots


@frozen(eq=False)
class OpenLock:
    """A lock that a request holds."""

    receipt: Receipt
    node: SGLangNode
    given: LockReceipt
    hold: HoldState


@define(eq=False)
class UnifiedCache:
    """A `UnifiedRadixCache`. `kvcanon.spec.cache` documents the methods."""

    world: World
    profile: Profile
    tree: Tree
    ids: count[int] = Factory(lambda: count(1))
    translator: SGLangEventTranslator = Factory(SGLangEventTranslator)
    locks: dict[int, OpenLock] = Factory(dict)
    waiting: list[Event] = Factory(list)
    held: dict[Component, set[Slot]] = field(init=False)
    in_flight: PendingCopies = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.held = {component: set() for component in self.config.components}
        self.in_flight = PendingCopies(self.world.cache, self.tree, self.ids)

    @property
    def config(self) -> CacheConfig:
        """The configuration that the cache was made with."""
        return self.world.config

    # Matching and locking.

    def match(self, key: Key) -> Matched:
        """Find the longest usable prefix of a key."""
        if not len(key):
            return Matched(0, 0, Slots())
        params = named("MatchPrefixParams")(key=self.tree.keys.radix_key(key))
        found = self.world.cache.match_prefix(params)
        tokens = self._tokens_of(found)
        return Matched(
            prefix_pages=self.tree.depth_pages(self.tree.node(end_of(found))),
            device_pages=len(tokens) // self.config.page_size,
            slots=self._slots_behind(tokens, self.tree.node(found.last_device_node)),
        )

    def lock(self, key: Key) -> Receipt:
        """Lock all of a key, which must end where a device match can end."""
        stops = self.tree.path(key)
        node = validate.node_at(self.tree, key, stops)
        if self._locks_in_part and (
            validate.usable_pages(self.tree, self.config, stops, host=False) < len(key)
        ):
            raise BadArgument("key", "ends where no match on the device does; nobody locks there")
        given = self.world.cache.inc_lock_ref(self.tree.handle(node))
        receipt = Receipt(next(self.ids), key)
        hold = self._hold(receipt.receipt_id, node, given)
        self.locks[receipt.receipt_id] = OpenLock(receipt, node, given, hold)
        return receipt

    def unlock(self, receipt: Receipt) -> None:
        """Release what a receipt holds."""
        lock = self.locks.get(receipt.receipt_id)
        if lock is None or lock.receipt != receipt:
            raise ReceiptSpent(receipt.receipt_id)
        del self.locks[receipt.receipt_id]
        self.world.cache.dec_lock_ref(self.tree.handle(lock.node), returned(lock.given))

    # Slots.

    def allocate(self, counts: Counts) -> Slots:
        """Allocate device slots; the last full slots map to the window slots."""
        validate.require_counts(self.config, counts)
        validate.require_room(self.tree, counts)
        full, swa = self._take_pages(counts)
        states = self.world.states.alloc(counts.mamba) if counts.mamba else None
        taken = {FULL: full, SWA: swa, MAMBA: states}
        slots = Slots(
            **{
                component.value: self.world.pools[component, GPU].slots(taken[component]) or ()
                for component in self.config.components
            }
        )
        for component in self.config.components:
            self.held[component].update(slots[component])
        return slots

    def free(self, slots: Slots) -> None:
        """Free slots: full slots with the window slots that they map to."""
        validate.require_held(self.held, slots)
        leads = mapping_of(self.world, slots.full)
        alone = validate.windows_alone(leads, slots, lambda: mapping_of(self.world))
        full = self.world.pools[FULL, GPU]
        self._free_full(slots.full)
        if alone:
            self.world.allocator.free_swa(full.tokens(alone))
        self._free_states(slots.mamba)
        self._let_go(slots)

    def free_slots(self, component: Component, medium: Medium) -> tuple[Slot, ...]:
        """The free slots of a pool, in the order of its free list."""
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
        """Insert the data of a key from page `start_pages` on."""
        if not 0 <= counted_pages <= len(key):
            raise BadArgument("counted_pages", f"is {counted_pages}, of {len(key)} pages")
        leads = mapping_of(self.world, slots.full)
        validate.require_handed_over(self.config, leads, key, start_pages, slots)
        validate.require_held(self.held, slots)
        stops = self.tree.path(key)
        validate.require_start(self.tree, stops, start_pages)
        before, present = self._free_counts(), validate.resident_pages(self.tree, stops)
        self.translator.learn(key)
        self._let_go(slots)
        params = self._insert_params(key, stops, slots)
        counted = counted_pages * self.config.page_size
        answer = self.world.cache.insert(
            called(named("InsertParams"), **params, inserted_len=counted, priority=priority)
        )
        if answer.mamba_exist:
            self._free_states(slots.mamba)
        freed = self._free_counts() - before
        return Inserted(present, slots.counts() - freed, freed)

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots."""
        counts = validate.evicted_counts(self.config, counts)
        size = self.config.page_size
        answer = self.world.cache.evict(
            named("EvictParams")(
                num_tokens=counts.full * size,
                swa_num_tokens=counts.swa * size,
                mamba_num=counts.mamba,
            )
        )
        return Evicted(
            Counts(
                answer.num_tokens_evicted // size,
                answer.swa_num_tokens_evicted // size,
                answer.mamba_num_evicted,
            )
        )

    def reset(self) -> None:
        """Empty the tree, and clear the allocators as SGLang's scheduler does."""
        receipts = len(self.locks) + len(self.in_flight.flying)
        if receipts:
            raise CacheBusy(receipts)
        nodes = list(self.tree.nodes())
        in_tree = {
            component: tuple([s for node in nodes for s in self.tree.slots(node, component, GPU)])
            for component in (FULL, MAMBA)
        }
        self.world.cache.reset()
        self._free_full(in_tree[FULL])
        self._free_states(in_tree[MAMBA])

    def take_events(self) -> tuple[Event, ...]:
        """The events since the last call."""
        self._hear()
        taken, self.waiting = tuple(self.waiting), []
        return taken

    def snapshot(self) -> Snapshot:
        """The whole state."""
        self._hear()
        nodes = list(self.tree.nodes())
        copies, pools = self.in_flight, self.world.pools
        return Snapshot(
            config=self.config,
            root_id=nodes[0].id,
            nodes=node_states(self.tree, nodes, copies.backing(nodes)),
            recency={name: tuple(self.tree.order(*name)) for name in pools},
            pools={
                (component, medium): PoolState(
                    pool.capacity,
                    pool.free_slots(),
                    frozenset(self.held[component]) if medium is GPU else frozenset(),
                )
                for (component, medium), pool in pools.items()
            },
            usage={component: self.tree.usage(component) for component in self.config.components},
            swa_of_full=mapping_of(self.world),
            holds=(
                *(lock.hold for lock in self.locks.values()),
                *(copy.hold for copy in copies.flying),
            ),
            transfers=copies.states(nodes),
            events=tuple(self.waiting),
            profile=self.profile,
        )

    # Helpers.

    def _hear(self) -> None:
        self.waiting += self.translator.translate(self.world.cache.take_events())

    def _hold(
        self, receipt_id: int, node: SGLangNode, given: LockReceipt, transfer_id: int | None = None
    ) -> HoldState:
        """What a lock holds at the time when it is taken."""
        begin: int | None = None
        gaps: tuple[Span, ...] = ()
        if SWA in self.config.components:
            begin, gaps = held_window(self.tree, node, given)
        has_state = MAMBA in self.config.components and node.parent is not None
        if has_state and self._locks_in_part:
            # An insert may attach a state to a node that its own copy locked before.
            has_state = node.id not in given.skip_lock_node_ids.get(self.tree.kinds[MAMBA], ())
        return HoldState(receipt_id, node.id, begin, has_state, transfer_id, gaps)

    @property
    def _locks_in_part(self) -> bool:
        """Whether a lock counts only the data present when it is taken."""
        return takes(named("IncLockRefResult"), "skip_lock_node_ids")

    def _tokens_of(self, found: EngineObject) -> Tensor:
        """The full token slots of a device match."""
        if hasattr(found, "device_indices"):
            return found.device_indices
        return self.world.cache.path_device_indices(found.last_device_node)

    def _slots_behind(self, tokens: Tensor, node: SGLangNode) -> Slots:
        """The slots of a prefix hit: full, the window slots they map to, and the mamba state."""
        full = self.world.pools[FULL, GPU].slots_of(tokens.tolist())
        swa: tuple[Slot, ...] = ()
        if SWA in self.config.components:
            leads = mapping_of(self.world, full)
            reach = [leads.get(slot) for slot in full]
            gap = max((at for at, slot in enumerate(reach) if slot is None), default=-1)
            swa = tuple([slot for slot in reach[gap + 1 :] if slot is not None])
        return Slots(full, swa, self.tree.slots(node, MAMBA, GPU) if full else ())

    def _take_pages(self, counts: Counts) -> tuple[Tensor, Tensor]:
        """Allocate full slots, and window slots for the last of them, as token slots."""
        allocator, size = self.world.allocator, self.config.page_size
        if SWA not in self.config.components:
            return allocator.alloc(counts.full * size), None
        full = allocator.full_attn_allocator.alloc(counts.full * size)
        swa = allocator.swa_attn_allocator.alloc(counts.swa * size)
        if counts.swa:
            _map(allocator, full[-counts.swa * size :], swa)
        return full, swa

    def _free_full(self, slots: Sequence[Slot]) -> None:
        """Free full slots, and the window slots that they map to.

        Later releases have a separate call for full slots without a window slot.
        """
        full, allocator = self.world.pools[FULL, GPU], self.world.allocator
        leads = mapping_of(self.world, slots)
        has_pairs = SWA in self.config.components
        if paired := [slot for slot in slots if slot in leads or not has_pairs]:
            allocator.free(full.tokens(paired))
        if alone := [slot for slot in slots if slot not in leads and has_pairs]:
            getattr(allocator, "free_full", allocator.free)(full.tokens(alone))

    def _free_states(self, slots: Sequence[Slot]) -> None:
        if slots:
            self.world.states.free(self.world.pools[MAMBA, GPU].tokens(slots))

    def _let_go(self, slots: Slots) -> None:
        for component, some in slots:
            if some:
                self.held[component].difference_update(some)

    def _insert_params(self, key: Key, stops: list[MatchedNode], slots: Slots) -> dict[str, object]:
        """The arguments of SGLang's insert: slots for the whole key, with those of the tree."""
        size, start = self.config.page_size, len(key) - len(slots.full)
        owned = [self.tree.data(s.node, FULL).value for s in stops if s.end_pages <= start]
        given = self.world.pools[FULL, GPU].tokens(slots.full)
        states = self.world.pools[MAMBA, GPU].tokens(slots.mamba) if slots.mamba else None
        slid = len(slots.swa) < len(slots.full)
        frontier = (len(key) - len(slots.swa)) * size if slid else 0
        return {
            "key": self.tree.keys.radix_key(key),
            "value": import_module("torch").cat([*owned, given]),
            "prev_prefix_len": start * size,
            "swa_evicted_seqlen": frontier,
            "component_evicted_seqlens": (
                {self.tree.kinds[SWA]: frontier} if SWA in self.config.components else {}
            ),
            "mamba_value": states,
        }

    def _free_counts(self, medium: Medium = GPU) -> Counts:
        """How many slots of each pool of a medium are free."""
        return Counts.of({each: len(self.free_slots(each, medium)) for each in Component})


def _map(allocator: EngineObject, full: Tensor, swa: Tensor) -> None:
    """Map full slots to window slots; earlier allocators have no call for it."""
    if hasattr(allocator, "set_full_to_swa_mapping"):
        allocator.set_full_to_swa_mapping(full, swa)
    else:
        allocator.full_to_swa_index_mapping[full] = swa


def end_of(found: EngineObject) -> object:
    """The node where a match ends, on the host too; earlier releases have one such node."""
    return found.best_match_node if hasattr(found, "best_match_node") else found.last_host_node


def returned(given: LockReceipt) -> object:
    """What `dec_lock_ref` takes for a receipt; earlier receipts do not convert themselves."""
    if hasattr(given, "to_dec_params"):
        return given.to_dec_params()
    return named("DecLockRefParams")(swa_uuid_for_lock=given.swa_uuid_for_lock)
