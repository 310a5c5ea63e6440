"""The disk tier as a storage backend of SGLang's HiCache, for a stock server: `DiskStorage`.

SGLang loads it by name (`--hicache-storage-backend dynamic`), and calls it from its storage threads
with page hashes and the slots of its host pool. Pages move between that memory and the disk without
a copy where its alignment allows it. What cannot be served is refused when it is attached, with one
sentence.
"""

from __future__ import annotations

import ctypes
import logging
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.figures import DiskFigures
from kvcanon.disk.opening import segment_bytes_of_pages
from kvcanon.disk.parts import PageGet, PagePut
from kvcanon.disk.records import NAME_BYTES
from kvcanon.disk.sglang_facts import SglangObject, sglang_identity
from kvcanon.disk.sglang_weights_watch import watch_weights
from kvcanon.disk.store import DiskStore

if TYPE_CHECKING:
    HiCacheStorage: TypeAlias = object
else:
    HiCacheStorage = import_module("sglang.srt.mem_cache.hicache_storage").HiCacheStorage

OPTIONS = ("folder", "size_gb", "weights", "threads")
"""What the extra config may have besides SGLang's own."""
_SGLANG_OPTIONS = ("backend_name", "module_path", "class_name", "interface_v1", "allocator")
POOLS = ("MHATokenToKVPoolHost", "AsymmetricMHATokenToKVPoolHost", "MLATokenToKVPoolHost")
"""The host pools that are served: keys and values, or their latents."""
LAYOUTS = ("layer_first", "page_first", "page_first_direct")
_POOL = "kv"
_SAYS_EVERY_SECONDS = 60.0
_LOG = logging.getLogger(__name__)


class DiskStorage(HiCacheStorage):
    """SGLang's storage interface over a `DiskStore`. No call raises, except those of an attach."""

    def __init__(self, config: SglangObject, _: Mapping[str, object] | None = None) -> None:
        """Check what the server asks for. Raises: DiskUnusable, if it cannot be served."""
        self.config = config
        self.options = _checked_options(config)
        self.watch = watch_weights()
        self.updates = self.watch.updates
        if self.updates and not self.options.get("weights"):
            raise DiskUnusable(
                "the weights of this server were updated since its start; say which they are, as a "
                'revision, in "weights" of the extra config'
            )
        self.store: DiskStore | None = None
        self.pool: SglangObject = None
        self.page_bytes = 0
        self.samples: dict[str, list[float]] = {}
        self.said_at = time.monotonic()

    # Attaching.

    def register_mem_pool_host(self, pool: SglangObject) -> None:
        """Open the store for a host pool. Raises: DiskUnusable."""
        _check_pool(pool)
        self.pool = pool
        identity = sglang_identity(self.config, pool)
        self.page_bytes = int(pool.size_per_token) * int(pool.page_size)
        capacity = int(float(self.options["size_gb"]) * 1e9)
        self.store = DiskStore.open(
            Path(str(self.options["folder"])),
            identity,
            capacity,
            threads=int(self.options.get("threads", 4)),
            segment_bytes=segment_bytes_of_pages(capacity, self.page_bytes),
        )
        held = self.store.statistics()
        _LOG.info(
            "kvcanon's disk: %s of %.1f GB, with %d pages of %d bytes, for %s",
            self.store.parts.folder.path,
            capacity / 1e9,
            held.pages,
            self.page_bytes,
            dict(identity.facts),
        )

    def register_mem_host_pool_v2(self, host_pool: SglangObject, host_pool_name: object) -> None:
        """Refuse pools besides keys and values. Raises: DiskUnusable."""
        del host_pool
        if str(host_pool_name) != _POOL:
            raise DiskUnusable(
                f"kvcanon's disk serves models with keys and values alone, and this one has a pool "
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
        self._say_sometimes(store)
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
            _LOG.info("kvcanon's disk is closed: %s", _in_words(self.store.statistics()))
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

    def _usable(self) -> DiskStore | None:
        """The store, as long as the weights are those that it was opened for."""
        if self.store is not None and self.watch.updates != self.updates:
            _LOG.error(
                "the weights of this server were updated: kvcanon's disk is closed, and serves "
                'nothing more; attach it again with "weights" in the extra config'
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

    def _say_sometimes(self, store: DiskStore) -> None:
        """Write a line to the log once a minute, while pages are written."""
        now = time.monotonic()
        if now - self.said_at >= _SAYS_EVERY_SECONDS:
            self.said_at = now
            _LOG.info("kvcanon's disk: %s", _in_words(store.statistics()))


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


def _checked_options(config: SglangObject) -> dict[str, Any]:
    """What the extra config says. Raises: DiskUnusable."""
    extra = dict(config.extra_config or {})
    unknown = [name for name in extra if name not in {*OPTIONS, *_SGLANG_OPTIONS}]
    if unknown:
        raise DiskUnusable(f"no option {unknown[0]!r} of kvcanon's disk; it has {list(OPTIONS)}")
    if not extra.get("folder") or not _is_positive(extra.get("size_gb")):
        raise DiskUnusable(
            'kvcanon\'s disk needs a "folder" and a "size_gb" of more than 0, for each rank, in '
            "--hicache-storage-backend-extra-config"
        )
    if not extra.get("interface_v1"):
        raise DiskUnusable('kvcanon\'s disk needs "interface_v1": 1 in the extra config')
    if config.is_mla_model and config.tp_size > 1:
        raise DiskUnusable(
            "kvcanon's disk does not serve MLA models on several tensor-parallel ranks, of which "
            "one alone writes; use --enable-dp-attention with as many DP as TP ranks"
        )
    if config.should_split_heads:
        raise DiskUnusable('kvcanon\'s disk does not serve "tp_lcm_size"; leave it out')
    return extra


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and value > 0


def _check_pool(pool: SglangObject) -> None:
    """Refuse host pools whose pages cannot be read where they lie. Raises: DiskUnusable."""
    name = type(pool).__name__
    if name not in POOLS:
        raise DiskUnusable(f"kvcanon's disk does not serve a host pool of the kind {name}")
    if pool.layout not in LAYOUTS:
        raise DiskUnusable(
            f"kvcanon's disk does not serve the host layout {pool.layout}; choose one of "
            f"{', '.join(LAYOUTS)} with --hicache-mem-layout"
        )


def _in_words(figures: DiskFigures) -> str:
    return (
        f"{figures.pages} pages in {figures.used_bytes / 1e9:.2f} of "
        f"{figures.capacity_bytes / 1e9:.2f} GB; since the start {figures.written_pages} written, "
        f"{figures.read_pages} read, {figures.missed_pages} missed, {figures.evicted_pages} "
        f"evicted, {figures.damaged_pages} damaged, {figures.refused_pages} refused, "
        f"{figures.failed_calls} failed calls"
    )
