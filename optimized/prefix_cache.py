"""The door for engines: arrays of tokens in, arrays of slots out.

Every call is one of `kvcanon.spec.cache.Cache`, with the same meaning and the same refusals; only
keys and slots come as arrays. Tokens are a one-dimensional array of int32, uint32 or int64 without
gaps, of NumPy or of torch on the CPU; slots are int32 (or int64 where they come in).

What readers get wrong: nothing here waits for a copy, except `flush`, and `evict` under write_back.
A load-back is enqueued, and names the slots that it fills. Compute may start on a layer as soon as
`wait_layer` says that it is there, long before `poll` settles the transfer and `match` counts it.
"""

from __future__ import annotations

from kvcanon.optimized import _core
from kvcanon.optimized.codes import COMPONENTS, EVICTION_POLICIES, STATUSES, WRITE_POLICIES
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
            engine=self._bridge,
        )
        self._namespaces: list[Namespace] = []
        self._numbers: dict[Namespace, int] = {}
        self.namespace(DEFAULT_NAMESPACE)

    @property
    def tree(self) -> _core.Tree:
        """A view of the state for snapshots and tests."""
        return _core.Tree(self)

    def namespace(self, namespace: Namespace) -> int:
        """The number of a namespace, which every call with tokens takes; 0 is the default one.

        Numbers are for good: a namespace takes memory for as long as the cache lives.

        Raises:
            BadArgument: it is no `Namespace` of texts.
        """
        if not isinstance(namespace, Namespace):
            kind = type(namespace).__name__
            raise BadArgument("namespace", f"is a {kind}; give a kvcanon.spec.types.Namespace")
        number = self._numbers.get(namespace)
        if number is None:
            texts = (namespace.extra_key, namespace.cache_salt, namespace.lora)
            if not all(text is None or isinstance(text, str) for text in texts):
                raise BadArgument("namespace", "has a field that is neither text nor None")
            number = self._add_namespace(encode_namespace(namespace), namespace_seed(namespace))
            self._numbers[namespace] = number
            self._namespaces.append(namespace)
        return number

    def namespace_of(self, number: int) -> Namespace:
        """The namespace that has a number."""
        return self._namespaces[number]

    def insert_host(
        self,
        tokens: _core.Tokens,
        start_pages: int,
        payload: HostPayload,
        namespace: int = 0,
    ) -> HostInserted:
        """Place fetched pages in the host tier: the last step of a prefetch.

        Raises:
            BadArgument: the payload does not fit the tokens, the pools or the configuration.
            PrefixNotCached: what comes before the pages is not in the tree.
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
        *pages, placements = self._insert_host(tokens, start_pages, (full, swa, mamba), namespace)
        if self.pools is not None:
            for number, first, slots in placements:
                data = payloads[number][first : first + len(slots)]
                self.pools.write_host(COMPONENTS[number], slots.tolist(), data)
        return HostInserted(*pages)

    def wait_layer(self, transfer_id: TransferId, layer: int) -> bool:
        """Return once a layer of a load-back can be read, or never will be: which of the two.

        On a GPU it is the current stream that waits. Layers count in each component, from 0. Any
        thread may ask, also after the transfer has settled.

        Raises:
            BadArgument: the engine does not tell of layers, or the layer is below 0.
        """
        if self._bridge is None:
            raise BadArgument("engine", "is needed to load anything; there is no host tier")
        return self._bridge.wait_layer(transfer_id, layer)

    def poll(self) -> list[tuple[TransferId, TransferStatus]]:
        """Take acknowledgements, in order, as far as they have come."""
        return [(each, STATUSES[status]) for each, status in self._poll()]

    def flush(self) -> list[tuple[TransferId, TransferStatus]]:
        """Wait for every transfer in flight, and settle it."""
        return [(each, STATUSES[status]) for each, status in self._flush()]

    def stats(self) -> Stats:
        """What the cache has done since it was made, and what it holds now; from any thread."""
        return read_stats(self.tree, self.config, self.pools)


def _engine_for(pools: Pools) -> TransferEngine:
    if pools.device.type == "cpu":
        return ThreadedEngine()
    from kvcanon.optimized.cuda_engine import CudaEngine  # noqa: PLC0415 (it needs Triton)

    return CudaEngine(pools)


def _three(counts: Counts) -> tuple[int, int, int]:
    return counts.full, counts.swa, counts.mamba
