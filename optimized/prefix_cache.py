"""The API for engines: arrays of tokens in, arrays of slots out.

Each call has the meaning and the errors of the same call in `kvcanon.spec.cache.Cache`; only keys
and slots are arrays. Tokens are a one-dimensional contiguous array of int32, uint32 or int64, of
NumPy or of torch on the CPU. Slots are int32; int64 is accepted, too.

No call waits for a copy, except `flush`, `wait_layer` on a CPU, and `evict` under write_back. A
load-back is only enqueued, and returns the slots that it fills. Compute may start on a layer once
`wait_layer` returns True, long before `poll` settles the transfer and `match` counts its pages.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from kvcanon.optimized import _core, native_types
from kvcanon.optimized.codes import (
    ALL_MEDIA,
    COMPONENTS,
    EVICTION_POLICIES,
    STATUSES,
    WRITE_POLICIES,
    three,
)
from kvcanon.optimized.engine_tensors import ComponentTensors
from kvcanon.optimized.page_orders import HostReads, PageQueue
from kvcanon.optimized.page_transfer import PoolsEngine, SlotArray, StagingEngine
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.split_dict import SplitDict
from kvcanon.optimized.stats import Stats, read_stats
from kvcanon.optimized.store_tier import StoreTier
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.optimized.transfer_bridge import TransferBridge
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy
from kvcanon.spec.hashing import encode_namespace, namespace_seed
from kvcanon.spec.operations import HostInserted, HostPayload, Ordered
from kvcanon.spec.tier import OrderId, OrderProgress
from kvcanon.spec.transfer import Agree, Completion, TransferEngine, TransferStatus
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    Component,
    Counts,
    Namespace,
    TransferId,
)

if TYPE_CHECKING:
    from kvcanon.optimized.cuda_engine import CudaEngine

logger = logging.getLogger(__name__)


class PrefixCache(_core.CacheCore):
    """A prefix KV cache for an engine's scheduler, which calls it from one thread.

    `pools` hold the bytes; a cache without a host tier works without pools, when the engine keeps
    the bytes itself. `engine` copies between the pools; by default it is a `ThreadedEngine` for
    pools on the CPU, and a `CudaEngine` for pools on a GPU. With `agree` the cache is one of
    several ranks, which settle the same copies; docs/ranks.md says which calls are collective.
    `padding_slots` are the first device slots of each pool, which kernels may use for padded
    tokens: the cache never gives them out. `device_slots` counts them.
    `store` carries out orders on a store below the host tier, as `ThreadedQueue` does. Its
    owner closes it, after the cache.

    The operations are methods of the native base class, so that a call enters no Python code.

    Raises:
        BadArgument: a host tier without pools, or more padding slots than a pool has.
    """

    def __init__(
        self,
        config: CacheConfig,
        pools: Pools | None = None,
        engine: TransferEngine | None = None,
        *,
        agree: Agree | None = None,
        padding_slots: Counts = Counts(),  # It is frozen.
        store: PageQueue | None = None,
    ) -> None:
        """Make an empty cache; the class describes the arguments."""
        if config.host_tier and pools is None:
            raise BadArgument("pools", "are needed where there is a host tier; give a Pools")
        self.config = config
        self.pools = pools
        # An engine that was made here is closed here.
        self._owned_engine = (
            _engine_for(pools)
            if engine is None and pools is not None and config.host_tier
            else None
        )
        self.engine: TransferEngine | None = self._owned_engine if engine is None else engine
        host = None
        if store is not None and pools is not None and FULL in pools.layouts:
            host = HostReads(pools.slab(FULL).numpy())
        self._bridge = (
            TransferBridge(self.engine, pools, agree, host)
            if self.engine is not None and pools is not None
            else None
        )
        super().__init__(
            page_size=config.page_size,
            unit_words=2 if config.bigram else 1,
            # A window or threshold larger than every prompt is as good as infinite.
            window_tokens=min(config.window_tokens or 0, _core.MAX_WINDOW_TOKENS),
            mamba=config.mamba,
            device_slots=three(config.device_slots),
            host_slots=three(config.host_slots),
            write_policy=WRITE_POLICIES.index(config.write_policy),
            eviction_policy=EVICTION_POLICIES.index(config.eviction_policy),
            load_back_threshold_pages=min(config.load_back_threshold_pages, _core.MAX_SLOTS + 1),
            events=config.events,
            # More than any machine has memory for is as good as no limit.
            max_pending_events=min(config.max_pending_events, 1 << 62),
            engine=self._bridge,
            padding_slots=three(padding_slots),
            store=None if store is None else ALL_MEDIA.index(store.medium),
        )
        self.store_tier: StoreTier | None = None
        """The open orders to the store below the host; None without a store."""
        if store is not None and host is not None:
            self.store_tier = StoreTier(self, store, host, agree)
        self._closed = False
        self._namespaces: SplitDict[int, Namespace] = SplitDict()
        self._numbers: SplitDict[Namespace, int] = SplitDict()
        self.namespace(DEFAULT_NAMESPACE)

    @property
    def tree(self) -> _core.Tree:
        """A view of the state for snapshots and tests."""
        return _core.Tree(self)

    def namespace(self, namespace: Namespace) -> int:
        """Return the number of a namespace, for all calls with tokens; 0 is the default namespace.

        Get it anew for each request. A number stays good while anything of its namespace is left
        (pages, events), and then until `MAX_IDLE_NAMESPACES` others were used later, or until a
        `reset`. After that it is refused, and is never the number of another namespace.

        Raises:
            BadArgument: it is not a `Namespace`, or a field is neither text nor None.
        """
        if not isinstance(namespace, Namespace):
            kind = type(namespace).__name__
            raise BadArgument("namespace", f"is a {kind}; give a kvcanon.spec.types.Namespace")
        number = self._numbers.get(namespace)
        if number is None or not self._use_namespace(number):
            texts = (namespace.extra_key, namespace.cache_salt, namespace.lora)
            if not all(text is None or isinstance(text, str) for text in texts):
                raise BadArgument("namespace", "has a field that is neither text nor None")
            encoded, seed = encode_namespace(namespace), namespace_seed(namespace)
            number, forgotten = self._add_namespace(encoded, seed)
            for each in forgotten:
                self._forget_namespace(each)
            self._numbers[namespace] = number
            self._namespaces[number] = namespace
        return number

    def namespace_of(self, number: int) -> Namespace:
        """Return the namespace with this number, as events have it.

        Raises:
            BadArgument: no namespace has this number, or it was forgotten.
        """
        namespace = self._namespaces.get(number)
        if namespace is None:
            raise BadArgument("number", f"is {number}, which is no number of a namespace")
        return namespace

    def reset(self, keep_store: bool = False) -> None:
        """Empty the tree, and forget all namespaces without pages or events.

        It lets go of the store below the host, whose pages may be of other weights, unless it is
        told to keep it.

        Slots that requests hold stay theirs. It is also what makes a cache usable again after a
        `CacheUnusable` that asks for it: then all receipts are spent and all copies forgotten.

        Raises:
            CacheBusy: receipts are open, or copies in flight.
            CacheUnusable: the engine cannot go on; make a new cache.
        """
        self._reset()
        if self.store_tier is not None:
            self.store_tier.start_anew(keep_store=keep_store)
        # Few are left, if any: to copy these is faster than to remove all others one by one.
        namespaces: SplitDict[int, Namespace] = SplitDict()
        numbers: SplitDict[Namespace, int] = SplitDict()
        for number, namespace in self._namespaces.pairs():
            if self._use_namespace(number):
                namespaces[number], numbers[namespace] = namespace, number
        self._namespaces, self._numbers = namespaces, numbers

    def _forget_namespace(self, number: int) -> None:
        namespace = self._namespaces.pop(number, None)
        if namespace is not None and self._numbers.get(namespace) == number:
            del self._numbers[namespace]

    def insert_host(
        self,
        tokens: native_types.Tokens,
        start_pages: int,
        payload: HostPayload,
        namespace: int = 0,
    ) -> HostInserted:
        """Place pages that were fetched from storage in the host tier: the last step of a prefetch.

        Raises:
            BadArgument: the payload does not fit the tokens, the pools or the configuration.
            PrefixNotCached: the pages before `start_pages` are not in the tree.
        """
        payloads = (payload.full, payload.swa, payload.mamba)
        if self.pools is not None:
            for component, layout in self.pools.layouts.items():
                some = payloads[COMPONENTS.index(component)]
                if not all(isinstance(data, bytes) for data in some):
                    raise BadArgument(f"payload.{component}", "is not made of bytes")
                if any(len(data) != layout.page_bytes for data in some):
                    raise BadArgument(
                        f"payload.{component}",
                        f"a slot has {layout.page_bytes} bytes; some differ",
                    )
        full, swa, mamba = map(len, payloads)

        def write(placements: list[tuple[int, int, SlotArray]]) -> None:
            if self.pools is not None:
                for number, first, slots in placements:
                    data = payloads[number][first : first + len(slots)]
                    if self._bridge is not None and COMPONENTS[number] is FULL:
                        self._bridge.keep_unread(slots)
                    self.pools.write_host(COMPONENTS[number], slots.tolist(), data)

        return HostInserted(
            *self._insert_host(tokens, start_pages, (full, swa, mamba), namespace, write)
        )

    def store(self, tokens: native_types.Tokens, namespace: int = 0) -> Ordered:
        """Order the write of the leading host pages of a prompt that the store does not have.

        It begins after the pages that are known to be stored, and copies no page: the store reads
        the host's memory. What was written counts from the `poll_store` on that says so.

        Raises:
            BadArgument: there is no store, or the tokens or the namespace are not valid.
        """
        number, words = namespace, self._page_words
        return self._stores().store(tokens, number, self.namespace_of(number), words)

    def prefetch(self, tokens: native_types.Tokens, namespace: int = 0) -> Ordered:
        """Order the fetch of the pages of a prompt that the host lacks, as many as have room.

        Each page has a free host slot reserved, until `end_prefetch`. Never evicts: call
        `evict_host` first if there are too few.

        Raises:
            BadArgument: there is no store, or the tokens or the namespace are not valid.
        """
        number, words = namespace, self._page_words
        return self._stores().prefetch(tokens, number, self.namespace_of(number), words)

    def poll_store(self) -> tuple[OrderProgress, ...]:
        """Take the progress of the orders that went on on all ranks. Never waits.

        With `agree` it waits for the other ranks to agree, if an order is open.
        """
        self._require_open()
        return () if self.store_tier is None else self.store_tier.poll()

    def end_prefetch(self, order_id: OrderId) -> HostInserted:
        """Place the pages of a prefetch that have arrived, and give the other slots back.

        Slots that a late read may still write to come free in a later `poll_store`.

        Raises:
            BadArgument: no open prefetch has this id.
        """
        return self._stores().end_prefetch(order_id)

    def commit_host(
        self,
        tokens: native_types.Tokens,
        start_pages: int,
        full: native_types.SlotArray,
        swa: native_types.SlotArray | None = None,
        mamba: native_types.SlotArray | None = None,
        *,
        namespace: int = 0,
    ) -> HostInserted:
        """Insert reserved host slots whose bytes the caller has written, without a copy.

        The slots are those of the pages from `start_pages` on; window slots are of the last pages.
        The tree takes the slots that it needs, and the others come free. A refused call leaves all
        slots reserved.

        Raises:
            SlotNotHeld: a slot is not reserved.
            PrefixNotCached: the pages before `start_pages` are not in the tree.
            BadArgument: the slots do not fit the tokens, or there is no host tier.
        """
        return HostInserted(*self._commit_host(tokens, start_pages, full, swa, mamba, namespace))

    def wait(self, transfer_id: TransferId) -> None:
        """Wait for a transfer and those before it in its direction; `poll` settles them then.

        Returns at once for a transfer that has settled.

        Raises:
            BadArgument: there is no host tier, or the cache is closed.
        """
        self._copies().wait(transfer_id)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for a layer of a load-back: True once it can be read, False if the load failed.

        On a GPU the current stream waits, not the thread. Layers are counted from 0 in each
        component. Any thread may call this, also after the transfer has settled.

        Raises:
            BadArgument: the engine has no `wait_layer`, the layer is below 0, or the cache is
                closed.
        """
        return self._copies().wait_layer(transfer_id, layer)

    def arrived(self) -> list[Completion]:
        """Return the transfers that `settle` can settle, with how each ended here. Never waits.

        They are of each direction those that have ended, up to the first that has not.
        """
        return [Completion(each, ok) for each, ok in self._arrived()]

    def settle(self, completions: Iterable[Completion]) -> list[tuple[TransferId, TransferStatus]]:
        """Settle exactly these transfers, with these outcomes: each id with its status.

        Raises:
            BadArgument: one is not among `arrived`, is named twice or before an earlier one of its
                direction, or is named as done and failed here.
        """
        try:
            named = [(each.transfer_id, each.ok) for each in completions]
        except (AttributeError, TypeError):
            raise BadArgument(
                "completions", "are not those of `arrived`; give Completions"
            ) from None
        return [(each, STATUSES[status]) for each, status in self._settle(named)]

    def poll(self) -> list[tuple[TransferId, TransferStatus]]:
        """Settle the transfers that have arrived, in order: each id with its status. Never waits.

        With `agree` it settles those that have arrived on all ranks, and waits for these to agree.
        """
        return [(each, STATUSES[status]) for each, status in self._poll()]

    def flush(self) -> list[tuple[TransferId, TransferStatus]]:
        """Wait for every transfer in flight, and settle it: each id with its status."""
        return [(each, STATUSES[status]) for each, status in self._flush()]

    def invalidate(self, reason: str) -> list[tuple[TransferId, TransferStatus]]:
        """Forget the whole tree, since what it caches is wrong now: the model's weights changed.

        Waits for the copies in flight, and returns them as `flush` does. Logs the reason. Slots
        that requests hold, and reserved host slots, stay theirs.

        Raises:
            CacheBusy: receipts are open; unlock them first.
        """
        self._require_no_receipts()
        settled = self.flush()
        nodes = self.stats().nodes
        self.reset()
        logger.info("%d nodes were forgotten: %s", nodes, reason)
        return settled

    def detach(self, *, contents_kept: bool, after: object = None) -> None:
        """Let go of the device memory, before the engine frees or moves its tensors.

        With `contents_kept` the bytes will be the same after `attach`, and the tree stays as it is.
        Otherwise all device data is evicted now: what has a copy on the host stays in the tree, and
        under write_back everything is copied there first, as far as host slots suffice. Slots that
        requests hold stay theirs in both cases.

        Until `attach`, calls that give or fill device slots are refused; the host tier works on.
        `after` is as in `evict`.

        Raises:
            CacheBusy: receipts are open or copies in flight; unlock and `flush` first.
            BadArgument: there are no pools, or they are detached.
        """
        self._require_open()
        if self.pools is None:
            raise BadArgument("pools", "are needed to detach; this cache has none")
        if not self.pools.attached:
            raise BadArgument("pools", "are detached; attach them first")
        self._require_no_receipts(copies=True)
        if not contents_kept:
            full, swa, mamba = (self.config.capacity(each, GPU) for each in COMPONENTS)
            self.evict(full, swa, mamba, after=after)
        self.pools.detach()
        self._detach(detached=True)

    def attach(self, tensors: Mapping[Component, ComponentTensors] | None = None) -> None:
        """Take device memory again: the engine's `tensors`, or new zeros without them.

        The geometry must be that of before; addresses and strides between slots may differ.

        Raises:
            BadArgument: the pools are attached, or the tensors have another geometry.
        """
        self._require_open()
        if self.pools is None:
            raise BadArgument("pools", "are needed to attach; this cache has none")
        self.pools.attach(tensors)
        try:
            if isinstance(self.engine, PoolsEngine):
                self.engine.use_pools()
        except BaseException:
            self.pools.detach()
            raise
        self._detach(detached=False)

    def close(self) -> None:
        """Wait for the copies in flight, and end the threads of an engine that was made here.

        Later calls are refused, except `close` and `stats`. Pools, and an engine that was given,
        stay open: their owner closes them.
        """
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._close()
        if self._owned_engine is not None:
            self._owned_engine.close()

    def __enter__(self) -> Self:
        """Return the cache, which is closed at the end of the block."""
        return self

    def __exit__(self, *_raised: object) -> None:
        """Close the cache."""
        self.close()

    @property
    def _page_words(self) -> int:
        return self.config.page_size * (2 if self.config.bigram else 1)

    def _stores(self) -> StoreTier:
        self._require_open()
        if self.store_tier is None:
            raise BadArgument("store", "is none; make the cache with a store below its host tier")
        return self.store_tier

    def _copies(self) -> TransferBridge:
        self._require_open()
        if self._bridge is None:
            raise BadArgument("engine", "is needed to load anything; there is no host tier")
        return self._bridge

    def _require_open(self) -> None:
        if self._closed:
            raise BadArgument("cache", "is closed; make a new one")

    def _require_no_receipts(self, *, copies: bool = False) -> None:
        """Check that no receipt is open, nor, if asked, a copy in flight. Raises: CacheBusy."""
        stats = self.stats()
        open_receipts = stats.receipts - (0 if copies else stats.transfers_in_flight)
        if open_receipts:
            raise CacheBusy(open_receipts)

    def stats(self) -> Stats:
        """Return counters and present sizes of the cache. Any thread may call this."""
        staging = self.engine.memory_bytes if isinstance(self.engine, StagingEngine) else {}
        store = None if self.store_tier is None else self.store_tier.queue.stats()
        return read_stats(self.tree, self.config, self.pools, staging, store)


def _engine_for(pools: Pools) -> ThreadedEngine | CudaEngine:
    """The engine of a cache that is given none: of threads on a CPU, of streams on a GPU."""
    if pools.device.type == "cpu":
        return ThreadedEngine()
    from kvcanon.optimized.cuda_engine import CudaEngine  # noqa: PLC0415 (it needs Triton)

    return CudaEngine(pools)
