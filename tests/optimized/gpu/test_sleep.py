"""Sleep and wake: a cache lets go of an engine's tensors and takes them, or others, back."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from attrs import evolve, frozen

from fast.caches import state_of, unchanged
from gpu.layouts import BUILDERS, Owned, Shape, sglang_mha, sglang_mha_fused, vllm_kv_first
from gpu.scene import SMALL, Device
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.cuda_engine import CudaEngine
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import TransferEngine, TransferStatus
from kvcanon.spec.types import FULL, GPU, Counts, WritePolicy

SHAPE = Shape(slots=8, page_size=2)
PROMPT = np.arange(12, dtype=np.uint32)
SHORT = np.arange(100, 104, dtype=np.uint32)
DETACHED = "cache: is detached from its tensors; attach them"


def own_cache(
    policy: WritePolicy = WritePolicy.WRITE_THROUGH,
    host: int = 20,
    engine: TransferEngine | None = None,
) -> PrefixCache:
    """A cache whose pools allocate their tensors."""
    config = SHAPE.config(policy, host)
    return PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))}), engine)


def serve(cache: PrefixCache, prompt: np.ndarray) -> list[bytes]:
    """Insert a prompt with whatever is in its slots; return the bytes of its pages."""
    slots, _, _ = cache.allocate(len(prompt) // SHAPE.page_size)
    cache.insert(prompt, 0, slots)
    assert cache.pools is not None
    return [cache.pools.read(FULL, GPU, slot) for slot in slots.tolist()]


def loaded(cache: PrefixCache, prompt: np.ndarray) -> list[bytes]:
    """Load a prompt from the host; return the bytes of its pages on the device."""
    cache.load_back(prompt)
    cache.flush()
    found = cache.match(prompt)
    assert found.device_pages == found.prefix_pages == len(prompt) // SHAPE.page_size
    assert cache.pools is not None
    return [cache.pools.read(FULL, GPU, slot) for slot in found.full.tolist()]


@frozen
class Served:
    """A cache over an engine's tensors that has the prompt on both media."""

    cache: PrefixCache
    pools: Pools
    owned: Owned
    before: list[bytes]
    """The bytes of the prompt's pages."""


@contextmanager
def served(owned: Owned, device: Device | None = None) -> Iterator[Served]:
    """Serve the prompt, in the tensors that an engine owns."""
    config = SHAPE.config(host_slots=20)
    pools = Pools(config, tensors={FULL: owned.filled().given})
    engine = None if device is None else device.engine(pools, SMALL)
    with PrefixCache(config, pools, engine) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        yield Served(cache, pools, owned, before)
    if engine is not None:
        engine.close()


@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_on_the_host_survives_a_sleep(name: str) -> None:
    """Contents that are lost are evicted, and come back from the host into other tensors."""
    later = BUILDERS[name](SHAPE).filled()
    with served(BUILDERS[name](SHAPE)) as scene:
        cache = scene.cache
        cache.detach(contents_kept=False)
        assert cache.match(PROMPT).device_pages == 0
        assert cache.match(PROMPT).prefix_pages == 6
        cache.attach({FULL: later.given})
        assert loaded(cache, PROMPT) == scene.before
        slots = cache.match(PROMPT).full.tolist()
        assert [later.page_bytes(SHAPE.layers, slot) for slot in slots] == scene.before
        cache.tree.check()


@pytest.mark.parametrize(
    ("policy", "kept"), [(WritePolicy.WRITE_BACK, 6), (WritePolicy.WRITE_THROUGH_SELECTIVE, 0)]
)
def test_data_without_a_copy(policy: WritePolicy, kept: int) -> None:
    """Under write_back it is copied before the tensors go; otherwise it is forgotten."""
    with own_cache(policy) as cache:
        serve(cache, PROMPT)
        cache.detach(contents_kept=False)
        assert cache.match(PROMPT).prefix_pages == kept
        cache.attach()
        assert cache.free_slot_counts() == (8, 0, 0)
        cache.tree.check()


def test_a_small_host_keeps_what_fits() -> None:
    """What has no room on the host is forgotten, and the device is empty all the same."""
    with own_cache(WritePolicy.WRITE_BACK, host=3) as cache:
        serve(cache, PROMPT)
        serve(cache, SHORT)
        cache.detach(contents_kept=False)
        assert cache.stats().pools[FULL, GPU].cached_slots == 0
        assert cache.match(SHORT).prefix_pages == 2
        cache.tree.check()


def test_contents_that_are_kept_stay_in_the_tree() -> None:
    """With the same bytes at another address, every slot is what it was."""
    with served(sglang_mha(SHAPE)) as scene:
        cache, moved = scene.cache, sglang_mha(SHAPE)
        for here, there in zip(moved.memory, scene.owned.memory, strict=True):
            here.copy_(there)
        state = state_of(cache)
        cache.detach(contents_kept=True)
        cache.attach({FULL: moved.given})
        assert state_of(cache) == state
        slots = cache.match(PROMPT).full.tolist()
        assert [scene.pools.read(FULL, GPU, slot) for slot in slots] == scene.before


def test_strides_may_change() -> None:
    """Tensors may come back in one allocation, as long as pages have the same pieces."""
    shape = evolve(SHAPE, wider=1)
    with served(sglang_mha(shape)) as scene:
        scene.cache.detach(contents_kept=False)
        scene.cache.attach({FULL: sglang_mha_fused(shape).given})
        assert loaded(scene.cache, PROMPT) == scene.before


def test_no_reference_to_an_engines_tensors_is_left() -> None:
    """The engine frees its memory by dropping its own references."""
    owned = sglang_mha(SHAPE)
    gone = [weakref.ref(each.untyped_storage()) for each in owned.memory]
    pools = Pools(SHAPE.config(), tensors={FULL: owned.given})
    with PrefixCache(SHAPE.config(), pools) as cache:
        serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        del owned
        gc.collect()
        assert [each() for each in gone] == [None] * len(gone)


def test_no_memory_is_kept_by_pools_that_allocated_it() -> None:
    """Pools with tensors of their own free them, and begin with zeros again."""
    with own_cache() as cache:
        pools = cache.pools
        assert pools is not None
        pools.write(FULL, 3, b"1234")
        gone = weakref.ref(pools.planes(FULL)[0])
        cache.detach(contents_kept=False)
        gc.collect()
        assert gone() is None
        cache.attach()
        assert pools.read(FULL, GPU, 3) == bytes(4)


def test_calls_for_device_slots_are_refused_meanwhile() -> None:
    """The host tier works on; what would give or fill device slots is refused, and says why."""
    with own_cache() as cache:
        pools = cache.pools
        assert pools is not None
        held, _, _ = cache.allocate(2)
        serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        for call in (
            lambda: cache.allocate(1),
            lambda: cache.insert(SHORT, 0, held),
            lambda: cache.evict(1),
            lambda: cache.load_back(PROMPT),
        ):
            with unchanged(cache, BadArgument, DETACHED):
                call()
        for reach in (lambda: pools.read(FULL, GPU, 0), lambda: pools.write(FULL, 0, bytes(4))):
            with pytest.raises(BadArgument, match="pools: are detached from their tensors; attach"):
                reach()
        # A prefetch goes on while the engine sleeps, and a request may give up its slots.
        cache.insert_host(SHORT, 0, HostPayload(full=(b"abcd", b"efgh")))
        cache.unlock(cache.lock(PROMPT))
        assert cache.evict_host(1) != [0, 0, 0]
        cache.free(held[:1])
        cache.attach()
        # A request that held slots over the sleep inserts them later.
        assert cache.free_slot_counts() == (7, 0, 0)
        cache.insert(PROMPT[:2] + 50, 0, held[1:])
        assert cache.match(PROMPT[:2] + 50).full.tolist() == held[1:].tolist()
        assert cache.free_slot_counts() == (7, 0, 0)


def test_a_cache_in_use_is_not_detached() -> None:
    """Receipts keep device data, and a copy in flight uses the tensors: both are refused."""
    cache = own_cache(engine=ManualEngine())
    serve(cache, PROMPT)
    for kept in (False, True):
        with unchanged(cache, CacheBusy, "1 receipts are open; unlock and flush"):
            cache.detach(contents_kept=kept)
    cache.flush()
    receipt = cache.lock(PROMPT)
    with unchanged(cache, CacheBusy):
        cache.detach(contents_kept=True)
    cache.unlock(receipt)
    cache.detach(contents_kept=True)
    with pytest.raises(BadArgument, match="pools: are detached; attach them first"):
        cache.detach(contents_kept=True)


def test_tensors_of_another_geometry_are_refused() -> None:
    """Host pages keep their layout, so that other tensors cannot take them; the cache sleeps on."""
    pools = SHAPE.pools(*sglang_mha(SHAPE).given)
    cache = PrefixCache(SHAPE.config(), pools)
    with pytest.raises(BadArgument, match="pools: are attached; detach them first"):
        cache.attach({FULL: sglang_mha(SHAPE).given})
    cache.detach(contents_kept=False)
    longer = sglang_mha(evolve(SHAPE, slots=9))
    for said, owned in (
        ("have pages of 2 layers", sglang_mha(evolve(SHAPE, layers=2))),
        ("have pages of 3 layers x", vllm_kv_first(SHAPE)),
        ("have 18 on axis 0 of layer 0; 8 slots of 2 tokens take 16", longer),
    ):
        with pytest.raises(BadArgument, match=f"tensors.full: {said}"):
            cache.attach({FULL: owned.given})
        assert not pools.attached
    with pytest.raises(BadArgument, match="tensors: are of none; the cache has full"):
        cache.attach({})
    with pytest.raises(BadArgument, match=DETACHED):
        cache.allocate(1)
    cache.attach({FULL: sglang_mha(SHAPE).given})
    assert len(cache.allocate(8)[0]) == 8


def test_a_cache_without_pools_has_nothing_to_detach() -> None:
    """The engine keeps the bytes itself then."""
    cache = PrefixCache(CacheConfig(device_slots=Counts(full=4)))
    with pytest.raises(BadArgument, match="pools: are needed to detach; this cache has none"):
        cache.detach(contents_kept=True)
    with pytest.raises(BadArgument, match="pools: are needed to attach; this cache has none"):
        cache.attach()


# On a GPU


def test_a_gpu_engine_reads_the_new_addresses(device: Device) -> None:
    """After waking, kernels write to the new tensors, and no byte of the old ones."""
    with served(vllm_kv_first(SHAPE), device) as scene:
        scene.cache.detach(contents_kept=False)
        old = [each.clone() for each in scene.owned.raw]
        scene.cache.attach({FULL: vllm_kv_first(SHAPE).given})
        assert loaded(scene.cache, PROMPT) == scene.before
        assert all(map(torch.equal, scene.owned.raw, old))


def test_a_gpu_engine_never_writes_to_addresses_of_before(device: Device) -> None:
    """If somebody detaches the pools themselves, copies fail and move no byte."""
    later = vllm_kv_first(SHAPE)
    with served(vllm_kv_first(SHAPE), device) as scene:
        scene.cache.evict(8)
        old = [each.clone() for each in scene.owned.raw]
        for step in (scene.pools.detach, lambda: scene.pools.attach({FULL: later.given})):
            step()
            loading = scene.cache.load_back(PROMPT).transfer_id
            assert scene.cache.flush() == [(loading, TransferStatus.FAILED)]
        assert all(map(torch.equal, scene.owned.raw, old))
        assert not any(each.any() for each in later.memory)


def test_an_engine_that_cannot_read_the_addresses_leaves_the_cache_asleep(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next attach may succeed: nothing is half attached."""
    with served(vllm_kv_first(SHAPE), device) as scene:
        scene.cache.detach(contents_kept=False)
        with monkeypatch.context() as patch:
            patch.setattr(CudaEngine, "use_pools", lambda _: torch.zeros(-1))
            with pytest.raises(RuntimeError):
                scene.cache.attach({FULL: scene.owned.given})
        assert not scene.pools.attached
        with pytest.raises(BadArgument, match=DETACHED):
            scene.cache.allocate(1)
        scene.cache.attach({FULL: scene.owned.given})
        assert loaded(scene.cache, PROMPT) == scene.before
