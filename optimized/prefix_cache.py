"""The API for engines: arrays of tokens in, arrays of slots out.

Each call has the meaning and the errors of the same call in `kvcanon.spec.cache.Cache`; only keys
and slots are arrays. Tokens are a one-dimensional contiguous array of int32, uint32 or int64, of
NumPy or of torch on the CPU. Slots are int32; int64 is accepted, too.

No call waits for a copy, except `flush`, `wait_layer` on a CPU, and `evict` under write_back. A
load-back is only enqueued, and returns the slots that it fills. Compute may start on a layer once
`wait_layer` returns True, long before `poll` settles the transfer and `match` counts its pages.
"""

from __future__ import annotations

from kvcanon.optimized import _core
from kvcanon.optimized.codes import COMPONENTS, EVICTION_POLICIES, STATUSES, WRITE_POLICIES
from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.stats import Stats, read_stats
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.optimized.transfer_bridge import TransferBridge
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.hashing import encode_namespace, namespace_seed
from kvcanon.spec.operations import HostInserted, HostPayload
from kvcanon.spec.transfer import TransferEngine, TransferStatus
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    Counts,
    Namespace,
    TransferId,
)


class PrefixCache(_core.CacheCore):
    """A prefix KV cache for an engine's scheduler, which calls it from one thread.

    `pools` hold the bytes; a cache without a host tier works without pools, when the engine keeps
    the bytes itself. `engine` copies between the pools; by default it is a `ThreadedEngine` for
    pools on the CPU, and a `CudaEngine` for pools on a GPU.

    The operations are methods of the native base class, so that a call enters no Python code.

    Raises:
        BadArgument: a host tier without pools.
    """

    def __init__(
        self,
        config: CacheConfig,
        pools: Pools | None = None,
        engine: TransferEngine | None = None,
    ) -> None:
        """Make an empty cache; the class describes the arguments."""
        if config.host_tier and pools is None:
            raise BadArgument("pools", "are needed where there is a host tier; give a Pools")
        self.config = config
        self.pools = pools
        self.engine = engine
        if self.engine is None and pools is not None and config.host_tier:
            self.engine = _engine_for(pools)
        self._bridge = (
            TransferBridge(self.engine, pools)
            if self.engine is not None and pools is not None
            else None
        )
        super().__init__(
            page_size=config.page_size,
            unit_words=2 if config.bigram else 1,
            # A window or threshold larger than every prompt is as good as infinite.
            window_tokens=min(config.window_tokens or 0, _core.MAX_WINDOW_TOKENS),
            mamba=config.mamba,
            device_slots=_three(config.device_slots),
            host_slots=_three(config.host_slots),
            write_policy=WRITE_POLICIES.index(config.write_policy),
            eviction_policy=EVICTION_POLICIES.index(config.eviction_policy),
            load_back_threshold_pages=min(config.load_back_threshold_pages, _core.MAX_SLOTS + 1),
            events=config.events,
            # More than any machine has memory for is as good as no limit.
            max_pending_events=min(config.max_pending_events, 1 << 62),
            engine=self._bridge,
        )
        self._namespaces: dict[int, Namespace] = {}
        self._numbers: dict[Namespace, int] = {}
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

    def reset(self) -> None:
        """Forget everything in the tree, and all namespaces of which nothing is left.

        Slots that requests hold stay theirs. It is also what makes a cache usable again after a
        `CacheUnusable` that asks for it: then all receipts are spent and all copies forgotten.

        Raises:
            CacheBusy: receipts are open, or copies in flight.
            CacheUnusable: the engine cannot go on; make a new cache.
        """
        self._reset()
        for number in [*self._namespaces]:
            if not self._use_namespace(number):
                self._forget_namespace(number)

    def _forget_namespace(self, number: int) -> None:
        namespace = self._namespaces.pop(number, None)
        if namespace is not None and self._numbers.get(namespace) == number:
            del self._numbers[namespace]

    def insert_host(
        self,
        tokens: _core.Tokens,
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
                    self.pools.write_host(COMPONENTS[number], slots.tolist(), data)

        return HostInserted(
            *self._insert_host(tokens, start_pages, (full, swa, mamba), namespace, write)
        )

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Wait for a layer of a load-back: True once it can be read, False if the load failed.

        On a GPU the current stream waits, not the thread. Layers are counted from 0 in each
        component. Any thread may call this, also after the transfer has settled.

        Raises:
            BadArgument: the engine has no `wait_layer`, or the layer is below 0.
        """
        if self._bridge is None:
            raise BadArgument("engine", "is needed to load anything; there is no host tier")
        return self._bridge.wait_layer(transfer_id, layer)

    def poll(self) -> list[tuple[TransferId, TransferStatus]]:
        """Settle the transfers that have ended, in order: each id with its status. Never waits."""
        return [(each, STATUSES[status]) for each, status in self._poll()]

    def flush(self) -> list[tuple[TransferId, TransferStatus]]:
        """Wait for every transfer in flight, and settle it: each id with its status."""
        return [(each, STATUSES[status]) for each, status in self._flush()]

    def stats(self) -> Stats:
        """Return counters and present sizes of the cache. Any thread may call this."""
        return read_stats(self.tree, self.config, self.pools)


def _engine_for(pools: Pools) -> TransferEngine:
    if pools.device.type == "cpu":
        return ThreadedEngine()
    from kvcanon.optimized.cuda_engine import CudaEngine  # noqa: PLC0415 (it needs Triton)

    return CudaEngine(pools)


def _three(counts: Counts) -> tuple[int, int, int]:
    return counts.full, counts.swa, counts.mamba
