"""The fast cache while a second thread reads its statistics, as an exporter of metrics does.

`make native-tsan` judges it on a core that ThreadSanitizer watches: any thread may call `stats` and
show a cache, also in the middle of a call.
"""

from __future__ import annotations

import os
from threading import Lock, Thread
from time import sleep
from weakref import ReferenceType, ref

from kvcanon.optimized.cache import OptimizedCache
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.transfer import Agree, TransferEngine

LATEST = 8
"""How many caches are watched: those of the case that is played now."""
PAUSE_S = 0.0002


class Watch:
    """Reads the statistics of the latest caches, in a thread that ends when they are gone."""

    def __init__(self) -> None:
        self._caches: list[ReferenceType[PrefixCache]] = []
        self.reads = 0
        self._reading = False
        self._lock = Lock()
        os.register_at_fork(after_in_child=self._begin_anew)

    def add(self, cache: PrefixCache) -> None:
        """Watch this cache, too, from now on."""
        with self._lock:
            # A new list, so that the reader never sees one that changes.
            self._caches = [*self._caches[1 - LATEST :], ref(cache)]
            if not self._reading:
                self._reading = True
                Thread(target=self._read_all, name="statistics", daemon=True).start()

    def _begin_anew(self) -> None:
        """Forget the thread, which a forked process does not have."""
        self._lock = Lock()
        self._reading = False

    def _read_all(self) -> None:
        while self._read_each():
            sleep(PAUSE_S)

    def _read_each(self) -> bool:
        """Read all caches that are there; returns whether there may be more to read."""
        seen = self._caches
        caches = [cache for each in seen if (cache := each()) is not None]
        for cache in caches:
            stats = cache.stats()
            assert stats.receipts >= stats.transfers_in_flight >= 0
            assert repr(cache).startswith("<PrefixCache: ")
            self.reads += 1
        with self._lock:
            self._reading = bool(caches) or self._caches is not seen
            return self._reading


WATCH = Watch()


class WatchedCache(OptimizedCache):
    """The fast cache; a thread reads its statistics as long as it lives."""

    def __init__(
        self,
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        pools: Pools | None = None,
    ) -> None:
        super().__init__(config, engine, agree, pools)
        WATCH.add(self._cache)
