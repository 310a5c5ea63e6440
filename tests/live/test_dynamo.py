"""NVIDIA Dynamo's indexer, fed by the publisher, believes what the cache reports, tier by tier."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from dynamo_indexer import RELEASE, SALT_TAG
from dynamo_overlaps import OverlapRun, Prompted, compared
from in_peer import peer
from kvcanon.live import Publisher
from kvcanon.live.decode import decode_batch
from kvcanon.live.publisher import Events
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Namespace

pytestmark = pytest.mark.nightly

PROMPTS = 150


def prompts(page_size: int, seed: int, namespaces: tuple[Namespace, ...]) -> Iterator[Prompted]:
    """Prompts that share beginnings, return, and do not end at pages."""
    drawn = np.random.default_rng(seed)
    before: list[np.ndarray[tuple[int, ...], np.dtype[np.uint32]]] = []
    for _ in range(PROMPTS):
        own = drawn.integers(0, 1000, int(drawn.integers(1, 12 * page_size)), dtype=np.uint32)
        if before and drawn.random() < 0.7:
            earlier = before[int(drawn.integers(len(before)))]
            own = np.r_[earlier[: int(drawn.integers(1, len(earlier) + 1))], own]
        tokens = own[: 20 * page_size]
        before.append(tokens)
        yield Prompted(tokens, namespaces[int(drawn.integers(len(namespaces)))])


def ran(
    dialect: str, page_size: int, policy: str, *namespaces: Namespace, rank: int = 0
) -> OverlapRun:
    """Compare on a small cache, most of whose prompts leave the device, and some the host."""
    config = CacheConfig(
        page_size=page_size,
        device_slots=Counts(60),
        host_slots=Counts(160),
        write_policy=policy,
    )
    return compared(peer(RELEASE), config, dialect, prompts(page_size, 7, namespaces), rank=rank)


@pytest.mark.parametrize(
    ("dialect", "page_size", "policy", "rank"),
    [
        ("sglang", 64, "write_back", 0),
        ("vllm", 16, "write_through_selective", 2),
        ("legacy", 4, "write_through", 0),
    ],
)
def test_the_indexer_believes_what_the_cache_reports(
    dialect: str, page_size: int, policy: str, rank: int
) -> None:
    """Before each request both say the same overlap, on the device and with the host."""
    done = ran(dialect, page_size, policy, Namespace(), rank=rank)
    assert done.differs == ()
    assert done.requests == PROMPTS
    assert done.device_tokens > 100 * page_size
    assert done.host_tokens > 90 * page_size


@pytest.mark.parametrize(("dialect", "salt"), [("sglang", "tenant"), ("vllm", SALT_TAG + "tenant")])
def test_namespaces_are_kept_apart(dialect: str, salt: str) -> None:
    """The indexer knows adapters and salts as the cache does; salts of vLLM must be tagged."""
    namespaces = (
        Namespace(),
        Namespace(cache_salt=salt),
        Namespace(lora="tuned"),
        Namespace(cache_salt=salt, lora="tuned"),
    )
    done = ran(dialect, 16, "write_through", *namespaces)
    assert done.differs == ()
    assert done.device_tokens > 100


def test_a_remove_that_is_lost_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is not blind: without one batch of removes the indexer believes too much."""
    publish = Publisher.publish
    lost: list[Events] = []

    def losing(self: Publisher, events: Events, timestamp: float | None = None) -> bool:
        sent = decode_batch(events.encode(0, 0.0, 0)).events if hasattr(events, "encode") else ()
        if not lost and any(each.kind == "BlockRemoved" for each in sent):
            lost.append(events)
            return True
        return publish(self, events, timestamp)

    monkeypatch.setattr(Publisher, "publish", losing)
    assert ran("sglang", 16, "write_through", Namespace()).differs
