"""Sleep and wake: a cache lets go of an engine's tensors and takes them, or others, back."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from attrs import evolve

from array_api import array, state_of, unchanged
from cuda_scene import SMALL, Device
from engine_layouts import BUILDERS, Owned, Shape, sglang_mha, sglang_mha_fused, vllm_kv_first
from fake_gpu import InterpretedKernel, build_driver
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import FULL, GPU, Counts, WritePolicy

SHAPE = Shape(slots=8, page_size=2)
PROMPT = np.arange(12, dtype=np.uint32)
SHORT = np.arange(100, 104, dtype=np.uint32)
POLICIES = (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK)


def config_of(policy: WritePolicy = WritePolicy.WRITE_THROUGH, host: int = 20) -> CacheConfig:
    """A cache with full data only."""
    return CacheConfig(
        page_size=SHAPE.page_size,
        device_slots=Counts(full=SHAPE.slots),
        host_slots=Counts(full=host),
        write_policy=policy,
    )


def filled(owned: Owned) -> Owned:
    """The same with random bytes."""
    for each in owned.memory:
        view = each.view(torch.uint8)
        view.copy_(torch.randint(0, 256, view.shape, dtype=torch.uint8))
    return owned


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


@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_on_the_host_survives_a_sleep(name: str) -> None:
    """Contents that are lost are evicted, and come back from the host into other tensors."""
    owned, later = (filled(BUILDERS[name](SHAPE)) for _ in range(2))
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with PrefixCache(config_of(), pools) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        assert cache.match(PROMPT).device_pages == 0
        assert cache.match(PROMPT).prefix_pages == 6
        cache.attach({FULL: later.given})
        assert loaded(cache, PROMPT) == before
        slots = cache.match(PROMPT).full
        assert [later.page_bytes(SHAPE.layers, slot) for slot in slots.tolist()] == before
        cache.tree.check()


@pytest.mark.parametrize("policy", POLICIES)
def test_data_without_a_copy(policy: WritePolicy) -> None:
    """Under write_back it is copied before the tensors go; otherwise it is forgotten."""
    config = evolve(config_of(policy), load_back_threshold_pages=0)
    if policy is WritePolicy.WRITE_THROUGH:
        config = evolve(config, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    with PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))})) as cache:
        serve(cache, PROMPT)
        cache.detach(contents_kept=False)
        kept = 6 if policy is WritePolicy.WRITE_BACK else 0
        assert cache.match(PROMPT).prefix_pages == kept
        cache.attach()
        assert cache.free_slot_counts() == (8, 0, 0)
        cache.tree.check()


def test_a_small_host_keeps_what_fits() -> None:
    """What has no room on the host is forgotten, and the device is empty all the same."""
    config = config_of(WritePolicy.WRITE_BACK, host=3)
    with PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))})) as cache:
        serve(cache, PROMPT)
        serve(cache, SHORT)
        cache.detach(contents_kept=False)
        assert cache.stats().pools[FULL, GPU].cached_slots == 0
        assert cache.match(SHORT).prefix_pages == 2
        cache.tree.check()


def test_contents_that_are_kept_stay_in_the_tree() -> None:
    """With the same bytes at another address, every slot is what it was."""
    owned = filled(sglang_mha(SHAPE))
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with PrefixCache(config_of(), pools) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        moved = sglang_mha(SHAPE)
        for here, there in zip(moved.memory, owned.memory, strict=True):
            here.copy_(there)
        state = state_of(cache)
        cache.detach(contents_kept=True)
        cache.attach({FULL: moved.given})
        assert state_of(cache) == state
        slots = cache.match(PROMPT).full.tolist()
        assert [pools.read(FULL, GPU, slot) for slot in slots] == before


def test_strides_may_change() -> None:
    """Tensors may come back in one allocation, as long as pages have the same pieces."""
    shape = evolve(SHAPE, wider=1)
    owned, later = filled(sglang_mha(shape)), sglang_mha_fused(shape)
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with PrefixCache(config_of(), pools) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        cache.attach({FULL: later.given})
        assert loaded(cache, PROMPT) == before


def test_no_reference_to_the_tensors_is_left() -> None:
    """The engine frees its memory by dropping its own references."""
    owned = sglang_mha(SHAPE)
    cache = PrefixCache(config_of(), Pools(config_of(), tensors={FULL: owned.given}))
    serve(cache, PROMPT)
    cache.flush()
    gone = [weakref.ref(each.untyped_storage()) for each in owned.memory]
    cache.detach(contents_kept=False)
    del owned
    gc.collect()
    assert [each() for each in gone] == [None] * len(gone)
    cache.close()


def test_no_memory_is_kept_by_pools_that_allocated_it() -> None:
    """Pools with tensors of their own free them, and begin with zeros again."""
    config = config_of()
    pools = Pools(config, {FULL: PageLayout(2, (4,))})
    cache = PrefixCache(config, pools)
    pools.write(FULL, 3, b"12345678")
    gone = weakref.ref(pools.planes(FULL)[0])
    cache.detach(contents_kept=False)
    gc.collect()
    assert gone() is None
    cache.attach()
    assert pools.read(FULL, GPU, 3) == bytes(8)
    cache.close()


def test_calls_for_device_slots_are_refused_meanwhile() -> None:
    """The host tier works on; what would give or fill device slots is refused, and says why."""
    config = config_of()
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))}))
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
        with unchanged(cache, BadArgument, "cache: is detached from its tensors; attach them"):
            call()
    assert cache.pools is not None
    with pytest.raises(BadArgument, match="pools: are detached from their tensors; attach them"):
        cache.pools.read(FULL, GPU, 0)
    with pytest.raises(BadArgument, match="pools: are detached from their tensors; attach them"):
        cache.pools.write(FULL, 0, bytes(4))
    # A prefetch goes on while the engine sleeps, and a request may give up its slots.
    cache.insert_host(SHORT, 0, HostPayload(full=(b"abcd", b"efgh")))
    cache.free(held)
    cache.unlock(cache.lock(PROMPT))
    assert cache.evict_host(1) != [0, 0, 0]
    cache.attach()
    assert cache.free_slot_counts() == (8, 0, 0)
    cache.close()


def test_a_cache_in_use_is_not_detached() -> None:
    """Receipts keep device data, and a copy in flight uses the tensors: both are refused."""
    config = config_of()
    engine = ManualEngine()
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))}), engine)
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
    pools = Pools(config_of(), tensors={FULL: sglang_mha(SHAPE).given})
    cache = PrefixCache(config_of(), pools)
    with pytest.raises(BadArgument, match="pools: are attached; detach them first"):
        cache.attach({FULL: sglang_mha(SHAPE).given})
    cache.detach(contents_kept=False)
    wrong = {
        "have pages of 2 layers": sglang_mha(evolve(SHAPE, layers=2)),
        "have pages of 3 layers x": vllm_kv_first(SHAPE),
        "have 18 on axis 0 of layer 0; 8 slots of 2 tokens take 16": sglang_mha(
            evolve(SHAPE, slots=9)
        ),
    }
    for said, owned in wrong.items():
        with pytest.raises(BadArgument, match=f"tensors.full: {said}"):
            cache.attach({FULL: owned.given})
        assert not pools.attached
    with pytest.raises(BadArgument, match="tensors: are of none; the cache has full"):
        cache.attach({})
    with pytest.raises(BadArgument, match="cache: is detached"):
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


def test_slots_of_requests_stay_theirs() -> None:
    """A request that holds slots over a sleep inserts them later."""
    config = config_of()
    cache = PrefixCache(config, Pools(config, {FULL: PageLayout(1, (4,))}))
    held, _, _ = cache.allocate(2)
    cache.detach(contents_kept=False)
    cache.attach()
    cache.insert(SHORT, 0, held)
    cache.flush()
    assert cache.match(SHORT).full.tolist() == held.tolist()
    assert cache.free_slot_counts() == (6, 0, 0)
    cache.free(array())
    cache.close()


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> CudaDriver:
    """A driver that copies at once."""
    return CudaDriver(str(build_driver(tmp_path_factory.mktemp("driver"))))


@pytest.fixture
def device(driver: CudaDriver, monkeypatch: pytest.MonkeyPatch) -> Device:
    """A GPU whose kernels are interpreted."""
    monkeypatch.setattr(pages, "MOVE_PAGES", InterpretedKernel())
    return Device(driver)


def test_a_gpu_engine_reads_the_new_addresses(device: Device) -> None:
    """After waking, kernels write to the new tensors, and no byte of the old ones."""
    owned, later = filled(vllm_kv_first(SHAPE)), vllm_kv_first(SHAPE)
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with device.engine(pools, SMALL) as engine, PrefixCache(config_of(), pools, engine) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        old = [each.view(torch.uint8).clone() for each in owned.memory]
        cache.attach({FULL: later.given})
        assert loaded(cache, PROMPT) == before
        assert all(map(torch.equal, (each.view(torch.uint8) for each in owned.memory), old))


def test_a_gpu_engine_never_writes_to_addresses_of_before(device: Device) -> None:
    """If somebody detaches the pools themselves, copies fail and move no byte."""
    owned, later = filled(vllm_kv_first(SHAPE)), vllm_kv_first(SHAPE)
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with device.engine(pools, SMALL) as engine, PrefixCache(config_of(), pools, engine) as cache:
        serve(cache, PROMPT)
        cache.flush()
        cache.evict(8)
        old = [each.view(torch.uint8).clone() for each in owned.memory]
        for attached in (False, True):
            if attached:
                pools.attach({FULL: later.given})
            else:
                pools.detach()
            loading = cache.load_back(PROMPT).transfer_id
            assert cache.flush() == [(loading, TransferStatus.FAILED)]
        assert all(map(torch.equal, (each.view(torch.uint8) for each in owned.memory), old))
        assert not any(each.any() for each in later.memory)


def test_an_engine_that_cannot_read_the_addresses_leaves_the_cache_asleep(device: Device) -> None:
    """The next attach may succeed: nothing is half attached."""
    owned = filled(vllm_kv_first(SHAPE))
    pools = Pools(config_of(), tensors={FULL: owned.given})
    with device.engine(pools, SMALL) as engine, PrefixCache(config_of(), pools, engine) as cache:
        before = serve(cache, PROMPT)
        cache.flush()
        cache.detach(contents_kept=False)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(engine, "use_pools", lambda: torch.zeros(-1))
            with pytest.raises(RuntimeError):
                cache.attach({FULL: owned.given})
        assert not pools.attached
        with pytest.raises(BadArgument, match="cache: is detached"):
            cache.allocate(1)
        cache.attach({FULL: owned.given})
        assert loaded(cache, PROMPT) == before
