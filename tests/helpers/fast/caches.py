"""Helpers for tests of PrefixCache: a cache with delayed copies, and its whole state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.snapshot import take_snapshot
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import Counts, Namespace, WritePolicy

Tokens = npt.NDArray[np.uint32]
Error = TypeVar("Error", bound=BaseException)


def tiered(slots: int = 8, policy: WritePolicy = WritePolicy.WRITE_THROUGH) -> CacheConfig:
    """Full data only, with as many slots on the host as on the device."""
    return CacheConfig(
        device_slots=Counts(full=slots), host_slots=Counts(full=slots), write_policy=policy
    )


def hybrid(
    device: Counts, host: Counts | None = None, *, page_size: int = 1, window_tokens: int = 2
) -> CacheConfig:
    """All components, with as many slots on the host by default."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=window_tokens,
        mamba=True,
        device_slots=device,
        host_slots=host or device,
        write_policy=WritePolicy.WRITE_THROUGH,
    )


EVERYTHING = hybrid(Counts(16, 12, 4), page_size=2, window_tokens=4)


def new_cache(config: CacheConfig, engine: TransferEngine | None = None) -> PrefixCache:
    """A cache with pools of one byte per page, whose copies run when something waits for them."""
    pools = Pools(config, dict.fromkeys(config.components, PageLayout(1, (1,))))
    return PrefixCache(config, pools, engine if engine is not None else ManualEngine())


def insert(
    cache: PrefixCache, tokens: Tokens, *, namespace: int = 0, priority: int = 0
) -> tuple[int, ...]:
    """Insert a prompt as an engine does, from its device prefix on. Returns the backups."""
    config = cache.config
    start = cache.match(tokens, namespace).device_pages
    pages = len(tokens) // (config.page_size * (2 if config.bigram else 1)) - start
    swa = pages if config.window_tokens else 0
    slots = cache.allocate(pages, swa, int(config.mamba and pages > 0))
    done = cache.insert(tokens, start, *slots, namespace=namespace, priority=priority)
    return tuple(done.backups)


def state_of(cache: PrefixCache) -> tuple[object, ...]:
    """The snapshot of a cache, plus the ages and positions that a snapshot leaves out."""
    return take_snapshot(cache), cache.tree.nodes(), cache.tree.counters()["queued_candidates"]


def counted(cache: PrefixCache, name: str) -> int:
    """One of the tree's counters."""
    value = cache.tree.counters()[name]
    assert isinstance(value, int)
    return value


@contextmanager
def unchanged(
    cache: PrefixCache, error: type[Error], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Error]]:
    """Check that the code inside raises this error and changes nothing."""
    before = state_of(cache)
    with pytest.raises(error, match=match) as info:
        yield info
    cache.tree.check()
    assert state_of(cache) == before


def array(*numbers: int, dtype: type[np.integer[Any]] = np.int64) -> npt.NDArray[Any]:
    """Slots or tokens as an array."""
    return np.array(numbers, dtype=dtype)


PROMPT = np.arange(4, dtype=np.uint32)
NO_SLOTS = np.empty(0, np.int32)
CALLS: dict[str, Callable[[PrefixCache], object]] = {
    "match": lambda cache: cache.match(PROMPT),
    "lock": lambda cache: cache.lock(PROMPT),
    "lock_found": lambda cache: cache.lock_found(None),  # type: ignore[arg-type]
    "unlock": lambda cache: cache.unlock(1),
    "unlock_window": lambda cache: cache.unlock_window(1),
    "allocate": lambda cache: cache.allocate(1),
    "free": lambda cache: cache.free(NO_SLOTS),
    "insert": lambda cache: cache.insert(PROMPT, 0, NO_SLOTS),
    "evict": lambda cache: cache.evict(1),
    "evict_host": lambda cache: cache.evict_host(1),
    "load_back": lambda cache: cache.load_back(PROMPT),
    "insert_host": lambda cache: cache.insert_host(PROMPT, 4, HostPayload()),
    "arrived": lambda cache: cache.arrived(),
    "settle": lambda cache: cache.settle([]),
    "poll": lambda cache: cache.poll(),
    "flush": lambda cache: cache.flush(),
    "reset": lambda cache: cache.reset(),
    "take_events": lambda cache: cache.take_events(),
    "take_packed_events": lambda cache: cache.take_packed_events(),
    "take_event_parts": lambda cache: cache.take_event_parts(),
    "reserve_host": lambda cache: cache.reserve_host(1),
    "commit_host": lambda cache: cache.commit_host(PROMPT, 4, NO_SLOTS),
    "abort_host": lambda cache: cache.abort_host(NO_SLOTS),
    "host_slots": lambda cache: cache.host_slots(PROMPT),
    "store": lambda cache: cache.store(PROMPT),
    "prefetch": lambda cache: cache.prefetch(PROMPT),
    "poll_store": lambda cache: cache.poll_store(),
    "end_prefetch": lambda cache: cache.end_prefetch(1),
    "wait": lambda cache: cache.wait(1),
    "wait_layer": lambda cache: cache.wait_layer(1, 0),
    "invalidate": lambda cache: cache.invalidate("new weights"),
    "detach": lambda cache: cache.detach(contents_kept=True),
    "attach": lambda cache: cache.attach(),
}
"""Every call that a cache refuses when it is closed, by name."""
OF_A_STORE = {"store", "prefetch", "poll_store", "end_prefetch"}
"""Those of them that a cache without a store refuses for that."""
IN_THE_TREE: dict[str, Callable[[PrefixCache], object]] = {
    "new namespace": lambda cache: cache.namespace(Namespace(lora="other")),
    "pending events": lambda cache: cache.tree.pending_events(),
    "check": lambda cache: cache.tree.check(),
    "nodes": lambda cache: cache.tree.nodes(),
}
"""Calls that reach what another call changes."""
