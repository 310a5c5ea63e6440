"""A storage backend of SGLang's HiCache over any store that proves its pages: `SglangPages`.

SGLang loads a backend by name (`--hicache-storage-backend dynamic`), and calls it from its storage
threads with page hashes and the slots of its host pool. What cannot be served is refused when it is
attached, with one sentence.
"""

from __future__ import annotations

import ctypes
import logging
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.parts import PageGet, PagePut
from kvcanon.disk.records import NAME_BYTES
from kvcanon.disk.sglang_facts import SglangObject, sglang_identity
from kvcanon.disk.sglang_weights_watch import watch_weights

if TYPE_CHECKING:
    HiCacheStorage: TypeAlias = object
else:
    HiCacheStorage = import_module("sglang.srt.mem_cache.hicache_storage").HiCacheStorage

_SGLANG_OPTIONS = ("backend_name", "module_path", "class_name", "interface_v1", "allocator")
POOLS = ("MHATokenToKVPoolHost", "AsymmetricMHATokenToKVPoolHost", "MLATokenToKVPoolHost")
"""The host pools that are served: keys and values, or their latents."""
LAYOUTS = ("layer_first", "page_first", "page_first_direct")
_POOL = "kv"
_SAYS_EVERY_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


class PagesBelow(Protocol):
    """What a backend calls of its store, from several threads. Nothing of it raises."""

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is stored."""

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; the bytes of each, or None for a miss."""

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not."""

    def clear(self) -> None:
        """Remove all pages of this model and rank, if the store can."""

    def close(self) -> None:
        """Close it."""


class SglangPages(HiCacheStorage):
    """SGLang's storage interface over a store. No call raises, except those of an attach."""

    called: ClassVar[str]
    """What messages call it."""
    own_options: ClassVar[tuple[str, ...]]
    """What the extra config may have besides SGLang's own."""

    def __init__(self, config: SglangObject, _: Mapping[str, object] | None = None) -> None:
        """Check what the server asks for. Raises: DiskUnusable, if it cannot be served."""
        self.config = config
        self.options: dict[str, Any] = dict(config.extra_config or {})
        self._check_options()
        self.watch = watch_weights()
        self.updates = self.watch.updates
        if self.updates and not self.options.get("weights"):
            raise DiskUnusable(
                "the weights of this server were updated since its start; say which they are, as a "
                'revision, in "weights" of the extra config'
            )
        self.store: PagesBelow | None = None
        self.pool: SglangObject = None
        self.page_bytes = 0
        self.samples: dict[str, list[float]] = {}
        self.said_at = time.monotonic()

    # What a store adds.

    @abstractmethod
    def check_own_options(self) -> None:
        """Refuse options that its store cannot be opened with. Raises: DiskUnusable."""

    @abstractmethod
    def opened(self, identity: DiskIdentity) -> PagesBelow:
        """Open the store for pages of `page_bytes`. Raises: DiskUnusable."""

    @abstractmethod
    def in_words(self) -> str:
        """What the open store has done, for the log."""

    # Attaching.

    def register_mem_pool_host(self, pool: SglangObject) -> None:
        """Open the store for a host pool. Raises: DiskUnusable."""
        self._check_pool(pool)
        self.pool = pool
        self.page_bytes = int(pool.size_per_token) * int(pool.page_size)
        self.store = self.opened(sglang_identity(self.config, pool))

    def register_mem_host_pool_v2(self, host_pool: SglangObject, host_pool_name: object) -> None:
        """Refuse pools besides keys and values. Raises: DiskUnusable."""
        del host_pool
        if str(host_pool_name) != _POOL:
            raise DiskUnusable(
                f"{self.called} serves models with keys and values alone, and this one has a pool "
                f"{host_pool_name}; start it without --hicache-storage-backend, or with another one"
            )

    # What SGLang's storage threads call.

    def batch_exists(self, keys: list[str], extra_info: SglangObject = None) -> int:
        """How many pages are there before the first that is not."""
        del extra_info
        store = self._usable()
        return 0 if store is None else store.leading_run([name_of(key) for key in keys])

    def batch_get_v1(
        self, keys: list[str], host_indices: SglangObject, extra_info: SglangObject = None
    ) -> list[bool]:
        """Read pages into the slots of the host pool."""
        del extra_info
        store = self._usable()
        if store is None:
            return [False] * len(keys)
        begin = time.perf_counter()
        pages = [
            PageGet(name_of(key), parts)
            for key, parts in zip(keys, self._parts(keys, host_indices), strict=True)
        ]
        good = [length == self.page_bytes for length in store.get(pages)]
        self._sample("prefetch", good, time.perf_counter() - begin)
        return good

    def batch_set_v1(
        self, keys: list[str], host_indices: SglangObject, extra_info: SglangObject = None
    ) -> list[bool]:
        """Write pages from the slots of the host pool."""
        store = self._usable()
        if store is None:
            return [False] * len(keys)
        begin = time.perf_counter()
        before = getattr(extra_info, "prefix_keys", None) or []
        names = [name_of(key) for key in keys]
        parents = [name_of(before[-1]) if before else None, *names]
        pages = [
            PagePut(name, parts, parent)
            for name, parent, parts in zip(
                names, parents, self._parts(keys, host_indices), strict=False
            )
        ]
        good = store.put(pages)
        self._sample("backup", good, time.perf_counter() - begin)
        self._say_sometimes()
        return good

    def exists(self, key: str) -> bool:
        """Whether a page is there."""
        return self.batch_exists([key]) == 1

    def clear(self) -> None:
        """Remove all pages of this model and rank."""
        if self.store is not None:
            self.store.clear()

    def close(self) -> None:
        """Close the store."""
        if self.store is not None:
            _LOG.info("%s is closed: %s", self.called, self.in_words())
            self.store.close()
            self.store = None

    def get_stats(self) -> SglangObject:
        """Pages and bandwidths since the last call, for SGLang's metrics."""
        made = import_module("sglang.srt.observability.metrics_collector").StorageMetrics()
        samples, self.samples = self.samples, {}
        for name, values in samples.items():
            getattr(made, name).extend(values)
        return made

    # The page-by-page interface, which `interface_v1` replaces.

    def get(self, *_: object, **__: object) -> None:
        """Not called with `interface_v1`."""

    def batch_get(self, keys: Sequence[str], *_: object, **__: object) -> list[None]:
        """Not called with `interface_v1`."""
        return [None] * len(keys)

    def set(self, *_: object, **__: object) -> bool:
        """Not called with `interface_v1`."""
        return False

    def batch_set(self, *_: object, **__: object) -> bool:
        """Not called with `interface_v1`."""
        return False

    # Inside.

    def _usable(self) -> PagesBelow | None:
        """The store, as long as the weights are those that it was opened for."""
        if self.store is not None and self.watch.updates != self.updates:
            _LOG.error(
                "the weights of this server were updated: %s is closed, and serves "
                'nothing more; attach it again with "weights" in the extra config',
                self.called,
            )
            self.close()
        return self.store

    def _parts(self, keys: list[str], host_indices: SglangObject) -> list[list[memoryview]]:
        """The memory of each page in the host pool."""
        places, sizes = self.pool.get_page_buffer_meta(host_indices)
        each = len(places) // len(keys) if keys else 0
        views = [_memory(place, size) for place, size in zip(places, sizes, strict=True)]
        bounds = pairwise(range(0, len(views) + 1, each)) if each else ()
        return [views[begin:end] for begin, end in bounds]

    def _sample(self, way: str, good: Sequence[bool], seconds: float) -> None:
        """Note a transfer for SGLang's metrics, if it keeps them."""
        if self.config.enable_storage_metrics and seconds:
            pages = sum(good)
            rate = pages * self.page_bytes / 1e9 / seconds
            self.samples.setdefault(f"{way}_pgs", []).append(pages)
            self.samples.setdefault(f"{way}_bandwidth", []).append(rate)

    def _say_sometimes(self) -> None:
        """Write a line to the log once a minute, while pages are written."""
        now = time.monotonic()
        if now - self.said_at >= _SAYS_EVERY_SECONDS:
            self.said_at = now
            _LOG.info("%s: %s", self.called, self.in_words())

    def _check_options(self) -> None:
        """Refuse options that no store here has, or that make no sense. Raises: DiskUnusable."""
        known, called = list(self.own_options), self.called
        unknown = [name for name in self.options if name not in {*known, *_SGLANG_OPTIONS}]
        if unknown:
            raise DiskUnusable(f"no option {unknown[0]!r} of {called}; it has {known}")
        self.check_own_options()
        if not self.options.get("interface_v1"):
            raise DiskUnusable(f'{called} needs "interface_v1": 1 in the extra config')
        if self.config.is_mla_model and self.config.tp_size > 1:
            raise DiskUnusable(
                f"{called} does not serve MLA models on several tensor-parallel ranks, of which "
                "one alone writes; use --enable-dp-attention with as many DP as TP ranks"
            )
        if self.config.should_split_heads:
            raise DiskUnusable(f'{called} does not serve "tp_lcm_size"; leave it out')

    def _check_pool(self, pool: SglangObject) -> None:
        """Refuse host pools whose pages cannot be read where they lie. Raises: DiskUnusable."""
        name = type(pool).__name__
        if name not in POOLS:
            raise DiskUnusable(f"{self.called} does not serve a host pool of the kind {name}")
        if pool.layout not in LAYOUTS:
            raise DiskUnusable(
                f"{self.called} does not serve the host layout {pool.layout}; choose one of "
                f"{', '.join(LAYOUTS)} with --hicache-mem-layout"
            )


def name_of(key: str) -> bytes:
    """The name of a page: the key itself if it is a hash, or else a hash of the key."""
    try:
        name = bytes.fromhex(key)
    except ValueError:
        name = b""
    return name if len(name) == NAME_BYTES else sha256(key.encode()).digest()


def _memory(place: int, size: int) -> memoryview:
    """A piece of the host pool."""
    return memoryview((ctypes.c_char * size).from_address(place)).cast("B")


def is_positive(value: object) -> bool:
    """Whether an option is a number above 0."""
    return isinstance(value, int | float) and value > 0
