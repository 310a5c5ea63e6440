"""Feeds the events of a cache to NVIDIA Dynamo's indexer, and compares what both say is cached."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

import numpy as np
import numpy.typing as npt
from attrs import frozen

from dynamo_indexer import DynamoIndexer, TierOverlap, dynamo_indexer
from fast.caches import insert, new_cache
from kvcanon.lab.releases.environment import Peer
from kvcanon.live import Publisher
from kvcanon.optimized import PrefixCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DEFAULT_NAMESPACE, Namespace

Tokens = npt.NDArray[np.uint32]
Tell = Callable[[str], object]
"""What is done with a line on the way."""
TOLD_EVERY = 1000


@frozen
class Prompted:
    """A prompt of a namespace."""

    tokens: Tokens
    namespace: Namespace = DEFAULT_NAMESPACE


@frozen
class Differs:
    """A request for which the indexer and the cache say otherwise."""

    request: int
    tokens: int
    cache: TierOverlap
    indexer: TierOverlap


@frozen
class OverlapRun:
    """What came of a run."""

    requests: int
    pages: int
    """Pages that were stored or removed."""
    device_tokens: int
    """Tokens of all prompts that were cached on the device."""
    host_tokens: int
    """Tokens of all prompts that were cached behind those, on the host."""
    differs: tuple[Differs, ...]


def of_cache(cache: PrefixCache, prompted: Prompted) -> TierOverlap:
    """The overlap that the cache reports for a prompt."""
    found = cache.match(prompted.tokens, cache.namespace(prompted.namespace))
    size = cache.config.page_size
    return TierOverlap(found.device_pages * size, found.prefix_pages * size)


def serve(cache: PrefixCache, prompted: Prompted) -> None:
    """Load what the host has, make room, insert, and let all copies end."""
    number = cache.namespace(prompted.namespace)
    pages = len(prompted.tokens) // cache.config.page_size
    found = cache.match(prompted.tokens, number)
    short = pages - found.device_pages - cache.free_slot_counts()[0]
    if short > 0:
        cache.evict(short)
    if found.prefix_pages > found.device_pages:
        cache.load_back(
            prompted.tokens[: found.prefix_pages * cache.config.page_size], None, number
        )
        cache.flush()
    insert(cache, prompted.tokens, namespace=number)
    cache.flush()


def compare(
    cache: PrefixCache,
    sender: Publisher,
    indexer: DynamoIndexer,
    prompts: Iterable[Prompted],
    tell: Tell = bool,
) -> OverlapRun:
    """Before each prompt is served, ask both for its overlap."""
    pages = device = host = 0
    differs: list[Differs] = []
    asked, began = 0, monotonic()
    for number, prompted in enumerate(prompts):
        packed = cache.take_packed_events()
        pages += packed.pages
        sender.publish(packed)
        indexer.catch_up()
        ours = of_cache(cache, prompted)
        theirs = indexer.overlap(prompted.tokens, prompted.namespace)
        if ours != theirs:
            differs.append(Differs(number, len(prompted.tokens), ours, theirs))
        device += ours.device
        host += ours.anywhere - ours.device
        serve(cache, prompted)
        asked = number + 1
        if asked % TOLD_EVERY == 0:
            tell(
                f"{asked} requests, {pages:,} page events, {len(differs)} differ, "
                f"{monotonic() - began:.0f} s"
            )
    return OverlapRun(asked, pages, device, host, tuple(differs))


def compared(
    peer: Peer,
    config: CacheConfig,
    dialect: str,
    prompts: Iterable[Prompted],
    *,
    rank: int = 0,
    tell: Tell = bool,
) -> OverlapRun:
    """Compare a cache of this configuration with an indexer of its own."""
    with tempfile.TemporaryDirectory(prefix="kvcanon-dynamo-") as folder:
        anywhere = "tcp://127.0.0.1:*"
        with (
            Publisher(
                anywhere,
                replay_endpoint=anywhere,
                binds_endpoint=True,
                dialect=dialect,
                rank=rank,
                topic="kv",
            ) as sender,
            dynamo_indexer(
                peer, sender, config.page_size, Path(folder) / "indexer.log", rank
            ) as indexer,
        ):
            return compare(new_cache(config), sender, indexer, prompts, tell)
