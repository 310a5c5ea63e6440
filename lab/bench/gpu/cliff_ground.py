"""The ground of a scene of `bench cliffs`: a cache, an engine that copies nothing, and prompts.

Every call of the cache goes through the stopwatch, also those that only prepare.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from attrs import define, field

from kvcanon.lab.bench.gpu.instant_engine import InstantEngine
from kvcanon.lab.bench.gpu.stopwatch import Stopwatch
from kvcanon.optimized import _core
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.prefix_cache import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import HostPayload

Prompt = npt.NDArray[np.uint32]


@define
class CliffGround:
    """A cache, and its operations on prompts; `watch` times each."""

    config: CacheConfig
    watch: Stopwatch
    engine: InstantEngine = field(factory=InstantEngine)
    cache: PrefixCache = field(init=False)

    def __attrs_post_init__(self) -> None:
        pools = None
        if self.config.host_tier:
            pools = Pools(self.config, dict.fromkeys(self.config.components, PageLayout(1, (1,))))
        self.cache = PrefixCache(self.config, pools, self.engine)

    def pages(self, prompt: Prompt) -> int:
        """How many pages a prompt has."""
        return len(prompt) // self.config.page_size

    def insert(
        self, prompt: Prompt, present: int = 0, *, named: str = "insert", namespace: int = 0
    ) -> None:
        """Insert a prompt of which `present` pages are cached, with all components."""
        pages = self.pages(prompt) - present
        swa = pages if self.config.window_tokens is not None else 0
        slots = self.watch.time(
            "allocate",
            lambda: self.cache.allocate(pages, swa, int(self.config.mamba)),
            pages + swa,
        )
        self.watch.time(
            named,
            lambda: self.cache.insert(prompt, present, *slots, namespace=namespace),
            lambda inserted: self.pages(prompt) + len(inserted.backups),
        )

    def match(self, prompt: Prompt, named: str = "match") -> _core.Matched:
        """Match a prompt, and read its slots."""

        def read() -> _core.Matched:
            found = self.cache.match(prompt)
            _ = found.full
            return found

        return self.watch.time(named, read, self.pages(prompt))

    def lock(self, prompt: Prompt, named: str = "lock") -> int:
        """Lock a prompt."""
        return self.watch.time(named, lambda: self.cache.lock(prompt), self.pages(prompt))

    def unlock(self, receipt: int, pages: int, named: str = "unlock") -> None:
        """Unlock a receipt of a prompt with so many pages."""
        self.watch.time(named, lambda: self.cache.unlock(receipt), pages)

    def evict(self, full: int, swa: int = 0, mamba: int = 0, named: str = "evict") -> int:
        """Evict, and return how many slots came free.

        Under write_back it names the slots that come free on both media, and its copies.
        """
        before, copies = self._freed_on_host(), self.engine.taken
        freed = self.watch.time(
            named,
            lambda: self.cache.evict(full, swa, mamba),
            lambda freed: sum(freed) + self._freed_on_host() - before + self.engine.taken - copies,
        )
        return sum(freed)

    def evict_host(self, full: int, swa: int = 0, named: str = "evict_host") -> None:
        """Evict from the host."""
        self.watch.time(named, lambda: self.cache.evict_host(full, swa), _in_all)

    def load_back(self, prompt: Prompt, named: str = "load_back") -> None:
        """Load a prompt back; it names its pages, and those that it evicts."""
        self.watch.time(
            named,
            lambda: self.cache.load_back(prompt),
            lambda loaded: self.pages(prompt) + sum(loaded.evicted),
        )

    def insert_host(self, prompt: Prompt, present: int = 0) -> None:
        """Insert fetched pages."""
        payload = HostPayload(full=(b"p",) * (self.pages(prompt) - present))
        self.watch.time(
            "insert_host",
            lambda: self.cache.insert_host(prompt, present, payload),
            self.pages(prompt),
        )

    def poll(self, named: str = "poll", pages: int = 1) -> None:
        """Settle; each transfer names the pages of its prompt. The engine's work is not timed."""
        self.engine.complete()
        self.watch.time(named, self.cache.poll, lambda settled: len(settled) * pages)

    def take_events(self, named: str = "take_events") -> None:
        """Take events; each names its pages."""
        self.watch.time(
            named, self.cache.take_events, lambda taken: sum(event.pages for event in taken)
        )

    def reset(self, named: str = "reset") -> None:
        """Reset; it names all nodes and all namespaces."""
        stats = self.cache.stats()
        self.watch.time(named, self.cache.reset, stats.nodes + stats.namespaces)

    def _freed_on_host(self) -> int:
        freed = self.cache.stats().evicted_host
        return freed.full + freed.swa + freed.mamba


def _in_all(freed: Sequence[int]) -> int:
    return sum(freed)


def leaf(number: int) -> Prompt:
    """A prompt of one page of one token."""
    return np.array([number], dtype=np.uint32)


def branch(number: int, pages: int) -> Prompt:
    """A prompt that shares no page with those of other numbers."""
    tokens = np.arange(pages, dtype=np.uint32)
    tokens[0] = number + (1 << 24)
    return tokens
