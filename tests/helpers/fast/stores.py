"""Helpers for tests of the fast cache over a store: prompts with bytes of their own, and waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from attrs import define

from fast.copies import PATIENCE_S
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.page_orders import PageQueue
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import HostInserted
from kvcanon.spec.transfer import Agree
from kvcanon.spec.types import CPU, FULL, GPU, Counts, WritePolicy

PAGE_SIZE, PAGE_BYTES = 4, 4096
Tokens = np.ndarray[tuple[int], np.dtype[np.uint32]]


def config_of(device: int = 8, host: int = 16) -> CacheConfig:
    """Full data with a host tier, in pages of 4 tokens."""
    return CacheConfig(
        page_size=PAGE_SIZE,
        device_slots=Counts(full=device),
        host_slots=Counts(full=host),
        write_policy=WritePolicy.WRITE_THROUGH,
        slot_bytes=PAGE_BYTES,
    )


def prompt_of(number: int, pages: int) -> Tokens:
    """A prompt that shares nothing with those of other numbers."""
    first = 1000 * number
    return np.arange(first, first + pages * PAGE_SIZE, dtype=np.uint32)


def bytes_of(tokens: Tokens, page: int) -> bytes:
    """The right bytes of a page of a prompt."""
    return int(tokens[page * PAGE_SIZE]).to_bytes(4, "little") * (PAGE_BYTES // 4)


@define
class Server:
    """A cache with the engine that uses it."""

    cache: PrefixCache
    pools: Pools

    def compute(self, tokens: Tokens) -> None:
        """Compute a prompt, and wait for its copy on the host."""
        start = self.cache.match(tokens).device_pages
        count = len(tokens) // PAGE_SIZE - start
        slots = self.cache.allocate(count)
        for page, slot in enumerate(slots[0], start):
            self.pools.write(FULL, int(slot), bytes_of(tokens, page))
        self.cache.insert(tokens, start, *slots)
        self.cache.flush()

    def empty(self) -> None:
        """Evict all that no lock holds, from the device and from the host."""
        self.cache.evict(self.cache.config.device_slots.full)
        self.cache.evict_host(self.cache.config.host_slots.full)

    def wait_for_store(self, order_id: int) -> int:
        """Poll until an order has ended; returns its pages."""
        pages = 0

        def has_ended() -> bool:
            nonlocal pages
            for each in self.cache.poll_store():
                if each.order_id == order_id:
                    pages = each.pages
                    if each.ended:
                        return True
            return False

        wait_until(has_ended)
        return pages

    def write(self, tokens: Tokens) -> int:
        """Write a prompt to the store; returns the pages that were written."""
        ordered = self.cache.store(tokens)
        return 0 if ordered.order_id is None else self.wait_for_store(ordered.order_id)

    def fetch(self, tokens: Tokens) -> HostInserted:
        """Fetch all that the store has of a prompt."""
        ordered = self.cache.prefetch(tokens)
        assert ordered.order_id is not None
        self.wait_for_store(ordered.order_id)
        return self.cache.end_prefetch(ordered.order_id)

    def require_bytes(self, tokens: Tokens, pages: int) -> None:
        """Check that so many pages are a hit, with their right bytes on the host and the device."""
        found = self.cache.match(tokens)
        assert found.prefix_pages == pages
        here = tokens[: pages * PAGE_SIZE]
        on_host = self.cache.host_slots(here).full
        assert len(on_host) == pages
        for page, slot in enumerate(on_host):
            assert self.pools.read(FULL, CPU, int(slot)) == bytes_of(tokens, page)
        self.cache.load_back(here)
        self.cache.flush()
        on_device = self.cache.match(here).full
        assert len(on_device) == pages
        for page, slot in enumerate(on_device):
            assert self.pools.read(FULL, GPU, int(slot)) == bytes_of(tokens, page)


@contextmanager
def server_over(queue: PageQueue, agree: Agree | None = None) -> Iterator[Server]:
    """A new cache over a store, which is closed at the end; with `agree` it is one of several."""
    config = config_of()
    pools = Pools(config, {FULL: PageLayout(1, (PAGE_BYTES,))}, torch.device("cpu"))
    with PrefixCache(config, pools, agree=agree, store=queue) as cache:
        yield Server(cache, pools)


def wait_until(happens: Callable[[], bool]) -> None:
    """Return once something has happened. Raises: AssertionError after a long time."""
    end = time.monotonic() + PATIENCE_S
    while not happens():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.001)
