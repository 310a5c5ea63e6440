"""vLLM's adapter, on a fake vLLM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from fakes import vllm as fake_vllm
from kvcanon.conformance.cases.client import NAMESPACES
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.engines.vllm import prompts
from kvcanon.conformance.engines.vllm.events import BlockCounter, VLLMEventTranslator
from kvcanon.conformance.engines.vllm.factory import NAMES
from kvcanon.conformance.engines.vllm.request_cache import CountedCache, ManagedCache
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import (
    GPU,
    Counts,
    EvictionPolicy,
    Key,
    Namespace,
    Slots,
    WritePolicy,
    make_key,
)

PLAIN = CacheConfig(page_size=2, device_slots=Counts(full=6))
WINDOW = CacheConfig(page_size=2, window_tokens=2, device_slots=Counts(full=4, swa=4))
KEY = make_key([1, 2, 3, 4, 5, 6], 2)
TENANT = Namespace(cache_salt="a", lora="b")


def forget() -> None:
    """Forget what was looked up in a vLLM."""
    NAMES._found.clear()
    for cached in (prompts._any_sampling, prompts._adapter, prompts._hasher):
        cached.cache_clear()


@pytest.fixture(autouse=True)
def miniature(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a fake vLLM with the release's version."""
    forget()
    fake_vllm.install(monkeypatch)
    yield
    forget()


def names_of(key: Key) -> tuple[bytes, ...]:
    """Return the hashes of the pages of a key."""
    return page_hashes(namespace_seed(key.namespace), key.pages)


def test_pool_is_as_large_as_all_pools_and_the_null_block() -> None:
    """The pool has a block for every slot of the case, and the null block."""
    manager = cast("fake_vllm.KVCacheManager", ManagedCache(WINDOW).manager)
    assert manager.config.num_blocks == 4 + 4 + 1
    full, window = [group.kv_cache_spec for group in manager.config.kv_cache_groups]
    assert (full.block_size, window.block_size, window.sliding_window) == (2, 2, 3)
    assert not hasattr(full, "sliding_window")
    plain = cast("fake_vllm.KVCacheManager", ManagedCache(PLAIN).manager)
    assert (plain.config.num_blocks, len(plain.config.kv_cache_groups)) == (7, 1)


def test_longest_prompt_fills_the_pool() -> None:
    """A prompt as long as the pool is no longer than the manager's longest prompt."""
    large = CacheConfig(page_size=2, device_slots=Counts(full=50_000))
    manager = cast("fake_vllm.KVCacheManager", ManagedCache(large).manager)
    assert manager.options["max_model_len"] == 100_000


def test_blocks_become_slots_and_found_ones_are_reused() -> None:
    """Block n is slot n - 1, and a prefix hit reuses its blocks."""
    cache = ManagedCache(PLAIN)
    first = cache.admit(1, KEY)
    assert (first.reused_pages, first.slots) == (0, Slots((0, 1, 2)))
    second = cache.admit(2, KEY)
    assert (second.reused_pages, second.slots) == (2, Slots((0, 1, 3)))
    assert cache.admit(3, Key(())).slots == Slots()
    assert cache.extend(3, KEY.prefix(1)) == Slots((4,))
    with pytest.raises(BadArgument):
        cache.admit(3, KEY)


def test_window_begins_where_blocks_are_null_no_more() -> None:
    """Null blocks before the window have no slot."""
    cache = ManagedCache(WINDOW)
    assert cache.admit(1, KEY.prefix(2)).slots == Slots((0, 1), (2, 3))
    table = cache.extend(1, KEY)
    assert len(table.full) == 3
    assert len(table.swa) == 1


def test_refused_growth_leaves_a_request_as_it_was() -> None:
    """A request that gets no blocks keeps those that it has."""
    cache = ManagedCache(PLAIN)
    cache.admit(1, KEY)
    with pytest.raises(OutOfSlots):
        cache.extend(1, make_key(range(1, 17), 2))
    assert cache.extend(1, make_key(range(1, 9), 2)) == Slots((0, 1, 2, 3))
    with pytest.raises(OutOfSlots):
        cache.admit(2, make_key(range(50, 60), 2))
    for call in (cache.finish, cache.abort):
        with pytest.raises(BadArgument):
            call(2)


def test_pressure_takes_the_next_victims_and_no_more() -> None:
    """An eviction takes exactly as many victims, in the order of the free queue."""
    cache = ManagedCache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    cache.take_events()
    assert cache.evict(Counts(full=2)).freed == Counts(full=2)
    assert cache.take_events() == tuple(BlockRemoved(name, GPU) for name in names_of(KEY)[:0:-1])
    assert cache.evict(Counts(full=2)).freed == Counts(full=1)
    assert cache.evict(Counts(full=2)).freed == Counts()
    for wrong in (Counts(full=-1), Counts(swa=1)):
        with pytest.raises(BadArgument):
            cache.evict(wrong)


def test_reset_is_refused_while_a_request_runs() -> None:
    """A reset that vLLM declines is refused."""
    cache = ManagedCache(PLAIN)
    cache.admit(1, KEY)
    with pytest.raises(CacheBusy):
        cache.reset()
    cache.finish(1)
    cache.reset()
    assert cache.take_events()[-1] == AllBlocksCleared()


def test_events_have_the_names_of_pages_and_their_namespace() -> None:
    """An event has the page hash and the namespace of its prompt."""
    cache = ManagedCache(WINDOW)
    key = Key(KEY.pages, TENANT)
    cache.admit(1, key.prefix(2))
    cache.extend(1, key)
    names = names_of(key)
    assert cache.take_events() == tuple(
        BlockStored(name, parent, page, GPU, TENANT)
        for name, parent, page in zip(names, (None, *names), key.pages, strict=False)
    )


def test_unknown_events_are_not_passed_over() -> None:
    """An unknown hash is passed on as it is, and an unknown kind raises."""
    removed = fake_vllm.BlockRemoved([5], 0)
    assert list(VLLMEventTranslator().translate([removed])) == [
        BlockRemoved((5).to_bytes(8, "big"), GPU)
    ]
    with pytest.raises(TypeError):
        list(VLLMEventTranslator().translate([object()]))


def test_counting_listener_hears_the_first_store_and_the_last_remove() -> None:
    """Of several blocks of a page only the first store and the last remove are passed on."""
    store, remove = BlockStored(b"a", None, (1,), GPU), BlockRemoved(b"a", GPU)
    distinct = BlockCounter().distinct
    assert list(distinct([store, store, remove, remove])) == [store, remove]
    assert list(BlockCounter().distinct([store, AllBlocksCleared(), store])) == [
        store,
        AllBlocksCleared(),
        store,
    ]
    cache = CountedCache(PLAIN)
    cache.admit(1, KEY)
    cache.admit(2, KEY)
    assert len(cache.take_events()) == len(KEY)


@pytest.mark.parametrize("namespace", [*NAMESPACES, Namespace(cache_salt="\0"), TENANT])
def test_namespaces_come_back(namespace: Namespace) -> None:
    """Each namespace is encoded on its own and decoded to itself."""
    salt = prompts.salt_of(namespace)
    assert salt != ""
    assert prompts.namespace_of(salt, namespace.lora) == namespace


def test_miniature_is_judged() -> None:
    """The fake passes every law through the adapter, and laws are exercised."""
    offer = Offer(
        mamba=(False,),
        bigram=(False,),
        write_policies=(WritePolicy.NONE,),
        eviction_policies=(EvictionPolicy.LRU,),
        windows_tokens=(None,),
        events=(True,),
        one_pool=True,
    )
    adapter = Adapter("mini", ManagedCache, offer, kind=CacheKind.REQUEST)
    judged, found = 0, set[str]()
    for seed in range(60):
        findings, tallies = play(draw_case(seed, offer), [adapter], JudgeConfig(black_box=True))
        found.update(finding.name for finding in findings)
        judged += tallies["mini"].laws["MATCH-3"]
    # It emits events for every block, as vLLM does.
    assert found <= {"EVENT-2"}
    assert judged > 23


def test_without_vllm_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without vLLM one line says how to install it."""
    monkeypatch.undo()
    with pytest.raises(UsageError, match="kvcanon lab peers make vllm"):
        load_adapter("vllm")
