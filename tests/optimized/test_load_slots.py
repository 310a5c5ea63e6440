"""What a load-back answers: where a layer can be read while the others still come."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt
import pytest
from attrs import evolve

from array_api import tiered
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import FULL, Counts, WritePolicy

Tokens = npt.NDArray[np.int32]


def make_cache(*, mamba: bool) -> PrefixCache:
    """A window of three pages and a host tier; copies run only when something waits for them."""
    config = CacheConfig(
        page_size=2,
        window_tokens=6,
        mamba=mamba,
        device_slots=Counts(full=64, swa=48, mamba=16),
        host_slots=Counts(full=64, swa=64, mamba=32),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    pools = Pools(config, dict.fromkeys(config.components, PageLayout(1, (1,))))
    return PrefixCache(config, pools, ManualEngine())


def prompt(*stretches: int) -> Tokens:
    """Four pages for each number."""
    return np.concatenate([np.arange(8, dtype=np.int32) + 100 * number for number in stretches])


def insert(cache: PrefixCache, tokens: Tokens) -> None:
    """Insert all of a prompt, its state included, and back it up."""
    pages = len(tokens) // 2
    window_pages = pages if cache.config.window_tokens else 0
    slots = cache.allocate(pages, window_pages, int(cache.config.mamba))
    cache.insert(tokens, 0, *slots)
    cache.flush()


def slots_of(answer: object) -> list[list[int]]:
    """The three lists of slots of a match or a load-back."""
    return [getattr(answer, name).tolist() for name in ("full", "swa", "mamba")]


def test_slots_are_those_of_the_match_that_follows() -> None:
    """The slots of a load-back are those that a match returns after it has settled."""
    loads, gaps, states = 0, 0, 0
    for seed in range(200):
        drawn = random.Random(seed)
        cache = make_cache(mamba=seed % 2 == 0)
        for stretches in ((1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)):
            insert(cache, prompt(*stretches))
        cache.evict(drawn.choice((0, 0, 4, 8)), drawn.randrange(16), seed % 4)

        tokens = prompt(1, 2, 3, 4)[: 2 * drawn.randrange(17)]
        usable = cache.match(tokens).prefix_pages
        loaded = cache.load_back(tokens[: 2 * usable])
        before = slots_of(loaded)
        if loaded.transfer_id is None:
            assert before == [[], [], []]
            continue
        cache.flush()
        found = cache.match(tokens)
        assert found.device_pages == usable
        assert slots_of(found) == before
        loads += 1
        gaps += 0 < loaded.loading[1] < 3  # Of the window of three pages some were there.
        states += loaded.loading[2]
    assert min(loads, gaps, states) >= 10


def test_slots_of_an_earlier_load_are_returned_too() -> None:
    """A load-back also returns the slots of an earlier load on the path."""
    cache = make_cache(mamba=True)
    insert(cache, prompt(1))
    insert(cache, prompt(1, 2))
    cache.evict(8)
    tokens = prompt(1, 2)
    first = cache.load_back(tokens[:8])
    second = cache.load_back(tokens)
    assert cache.match(tokens).pending == (first.transfer_id, second.transfer_id)
    assert first.loading[0] == second.loading[0] == 4
    before = slots_of(second)
    assert before[0][:4] == first.full.tolist()
    cache.flush()
    assert slots_of(cache.match(tokens)) == before


@pytest.mark.parametrize("kind", ["open", "closed", "without layers"])
def test_layer_can_be_waited_for(kind: str) -> None:
    """Waiting for a layer says whether it comes, and settles nothing; not all engines can."""
    engine = ManualEngine() if kind == "without layers" else ThreadedEngine()
    config = evolve(tiered(16), page_size=2)
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(2, (1,))}), engine)
    insert(cache, prompt(1))
    cache.evict(4)
    if kind == "closed" and isinstance(engine, ThreadedEngine):
        engine.close()  # Then it takes no order.
    transfer_id = cache.load_back(prompt(1)).transfer_id
    assert transfer_id is not None
    if kind == "without layers":
        with pytest.raises(BadArgument, match="engine: has no wait_layer; poll until"):
            cache.wait_layer(transfer_id, 0)
        with pytest.raises(BadArgument, match="engine: is needed to load anything"):
            PrefixCache(CacheConfig()).wait_layer(transfer_id, 0)
        return
    comes = kind == "open"
    assert [cache.wait_layer(transfer_id, layer) for layer in (0, 1)] == [comes] * 2
    status = TransferStatus.DONE if comes else TransferStatus.FAILED
    assert cache.flush() == [(transfer_id, status)]
    assert cache.wait_layer(transfer_id, 1) is comes
    if isinstance(engine, ThreadedEngine):
        engine.close()
