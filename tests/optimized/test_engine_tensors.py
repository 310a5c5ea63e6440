"""Pools over tensors that an engine owns: every named layout, bytes and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest
import torch
from attrs import evolve
from torch import Tensor

from cuda_scene import BACKUP, LOAD_BACK, WAYS, Device, slots
from engine_layouts import BUILDERS, Owned, Shape, sglang_mha, sglang_mla, vllm_kv_first
from fake_gpu import InterpretedKernel, build_driver
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.engine_tensors import TENSOR_LAYOUTS, EngineTensors, TensorLayout
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import Completion, Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, WritePolicy

SHAPE = Shape(slots=11, page_size=4)
HOST_SLOTS = 9

DTYPES = (torch.bfloat16, torch.float32, torch.uint8, torch.float8_e4m3fn)

every_layout = pytest.mark.parametrize("name", BUILDERS)


def config_of(shape: Shape, host_slots: int = HOST_SLOTS) -> CacheConfig:
    """A cache with full data only."""
    return CacheConfig(
        page_size=shape.page_size,
        device_slots=Counts(full=shape.slots),
        host_slots=Counts(full=host_slots),
        write_policy=WritePolicy.WRITE_THROUGH,
    )


def bytes_of(owned: Owned) -> list[Tensor]:
    """All bytes that the engine owns."""
    return [each.view(torch.uint8) for each in owned.memory]


def filled(owned: Owned) -> Owned:
    """The same with random bytes everywhere, also between pages."""
    for each in bytes_of(owned):
        each.copy_(torch.randint(0, 256, each.shape, dtype=torch.uint8))
    return owned


def pools_over(owned: Owned, shape: Shape = SHAPE) -> Pools:
    """Pools over the tensors, with random bytes on both media."""
    made = Pools(config_of(shape), tensors={FULL: filled(owned).given})
    slab = made.slab(FULL)
    slab.copy_(torch.randint(0, 256, slab.shape, dtype=torch.uint8))
    return made


@contextmanager
def only_pages_change(owned: Owned, changed: set[int], shape: Shape = SHAPE) -> Iterator[None]:
    """Check that of all that the engine owns nothing but some pages changes."""
    before = [each.clone() for each in bytes_of(owned)]
    yield
    after = [each.clone() for each in bytes_of(owned)]
    blank(owned, changed, shape)
    others = [each.clone() for each in bytes_of(owned)]
    for each, was in zip(bytes_of(owned), before, strict=True):
        each.copy_(was)
    blank(owned, changed, shape)
    assert all(map(torch.equal, bytes_of(owned), others))
    for each, now in zip(bytes_of(owned), after, strict=True):
        each.copy_(now)


def blank(owned: Owned, pages: set[int], shape: Shape) -> None:
    """Overwrite some pages with zeros."""
    for slot in pages:
        for layer in range(shape.layers):
            for piece in owned.page(layer, slot):
                piece.view(torch.uint8).fill_(0)


def test_every_named_layout_is_tested() -> None:
    """There is a builder for each name."""
    assert {name.split(",")[0] for name in BUILDERS} == set(TENSOR_LAYOUTS)


@every_layout
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reads_and_writes_the_pages_of_the_engine(name: str, dtype: torch.dtype) -> None:
    """`read` returns a page where the engine has it, and `write` changes this page only."""
    shape = evolve(SHAPE, dtype=dtype)
    owned = BUILDERS[name](shape)
    pools = pools_over(owned, shape)
    assert pools.layouts[FULL].layers == shape.layers
    for slot in range(shape.slots):
        assert pools.read(FULL, GPU, slot) == owned.page_bytes(shape.layers, slot)
    page = pools.read(FULL, GPU, 3)
    with only_pages_change(owned, {7}, shape):
        pools.write(FULL, 7, page)
        assert owned.page_bytes(shape.layers, 7) == page


@every_layout
def test_copies_move_the_pages_of_the_engine(name: str) -> None:
    """A backup takes pages from the engine's tensors, and a load puts them into other slots."""
    owned = BUILDERS[name](SHAPE)
    pools = pools_over(owned)
    sources, hosts, targets = slots(3, 10, 4, 0), slots(8, 0, 1, 5), slots(2, 1, 9, 7)
    expected = [owned.page_bytes(SHAPE.layers, slot) for slot in sources]
    pools.copy(Move(FULL, sources, hosts), BACKUP)
    assert [pools.slab(FULL)[slot].numpy().tobytes() for slot in hosts] == expected
    with only_pages_change(owned, set(targets.tolist())):
        pools.copy(Move(FULL, hosts, targets), LOAD_BACK)
        assert [owned.page_bytes(SHAPE.layers, slot) for slot in targets] == expected


@every_layout
def test_copies_move_single_layers(name: str) -> None:
    """A copy of some layers leaves the others as they are."""
    owned = BUILDERS[name](SHAPE)
    pools = pools_over(owned)
    before, host = owned.page_bytes(SHAPE.layers, 6), pools.read(FULL, CPU, 2)
    pools.copy(Move(FULL, slots(2), slots(6)), LOAD_BACK, slice(1, 2))
    layer = slice(pools.layouts[FULL].layer_bytes, 2 * pools.layouts[FULL].layer_bytes)
    expected = bytearray(before)
    expected[layer] = host[layer]
    assert owned.page_bytes(SHAPE.layers, 6) == bytes(expected)


# On a GPU


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> CudaDriver:
    """A driver that copies at once."""
    return CudaDriver(str(build_driver(tmp_path_factory.mktemp("driver"))))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> InterpretedKernel:
    """Interpret kernels on the CPU."""
    kernel = InterpretedKernel()
    monkeypatch.setattr(pages, "MOVE_PAGES", kernel)
    return kernel


@every_layout
@pytest.mark.parametrize(
    ("limits", "direct_bytes"),
    [WAYS["through a small ring"], WAYS["without the ring"]],
    ids=["through a small ring", "without the ring"],
)
@pytest.mark.usefixtures("kernel")
def test_kernels_move_what_the_plain_copy_does(
    name: str, limits: Limits, direct_bytes: int, driver: CudaDriver
) -> None:
    """Kernels reach the engine's pages, through the ring and without it, in both directions."""
    owned = BUILDERS[name](SHAPE)
    pools = pools_over(owned)
    device_slots, host_slots = slots(3, 10, 4, 5, 0), slots(8, 0, 1, 2, 5)
    with Device(driver).engine(pools, limits, direct_bytes) as engine:
        expected = [owned.page_bytes(SHAPE.layers, slot) for slot in device_slots]
        order = page_order(1, BACKUP, (Move(FULL, device_slots, host_slots),), pools)
        engine.submit(order)
        engine.wait(1)
        assert [pools.read(FULL, CPU, slot) for slot in host_slots] == expected
        with only_pages_change(owned, {1, 2, 6, 8, 9}):
            targets = slots(2, 1, 9, 8, 6)
            engine.submit(page_order(2, LOAD_BACK, (Move(FULL, host_slots, targets),), pools))
            engine.wait(2)
            assert [owned.page_bytes(SHAPE.layers, slot) for slot in targets] == expected
        assert engine.poll() == (Completion(1, ok=True), Completion(2, ok=True))


def test_contiguous_pages_share_a_launch(kernel: InterpretedKernel, driver: CudaDriver) -> None:
    """All layers, keys and values move in one launch where their pages have one size."""
    pools = pools_over(vllm_kv_first(SHAPE))
    with Device(driver).engine(pools, Limits(), 10**9) as engine:
        before = kernel.launches
        engine.submit(page_order(1, BACKUP, (Move(FULL, slots(3), slots(1)),), pools))
        engine.wait(1)
    assert kernel.launches == before + 1


# Components


def test_components_have_tensors_of_their_own() -> None:
    """Full, window and state data lie in tensors of different layouts."""
    config = CacheConfig(
        page_size=4,
        window_tokens=8,
        mamba=True,
        device_slots=Counts(11, 6, 3),
        host_slots=Counts(9, 5, 4),
        write_policy=WritePolicy.WRITE_THROUGH,
    )
    full, swa = SHAPE, evolve(SHAPE, slots=6, layers=2, heads=1)
    mamba = evolve(SHAPE, slots=3, layers=4)
    shapes: Mapping[Component, Shape] = {FULL: full, SWA: swa, MAMBA: mamba}
    owned = {
        FULL: filled(sglang_mha(full)),
        SWA: filled(vllm_kv_first(swa)),
        MAMBA: filled(BUILDERS["sglang_mamba"](mamba)),
    }
    pools = Pools(config, tensors={name: each.given for name, each in owned.items()})
    moves = ((FULL, 10, 8), (SWA, 5, 4), (MAMBA, 2, 3))
    for component, device_slot, host_slot in moves:
        pools.copy(Move(component, slots(device_slot), slots(host_slot)), Direction.BACKUP)
        expected = owned[component].page_bytes(shapes[component].layers, device_slot)
        assert pools.read(component, CPU, host_slot) == expected


def test_a_layout_may_be_described_by_its_axes() -> None:
    """A layout without a name is given by the axes of slots and layers."""
    whole = torch.randint(0, 256, (2, 5, 4, 11, 3), dtype=torch.uint8)
    axes = TensorLayout(slot_axis=3, layer_axis=1)
    pools = Pools(config_of(SHAPE), tensors={FULL: EngineTensors(axes, whole)})
    assert pools.layouts[FULL].layers == 5
    expected = b"".join(
        whole[half, layer, row, 6].numpy().tobytes()
        for layer in range(5)
        for half in range(2)
        for row in range(4)
    )
    assert pools.read(FULL, GPU, 6) == expected


def test_pools_of_an_engine_have_no_planes_of_their_own() -> None:
    """`planes` and `view` are for tensors that the pools allocated."""
    pools = pools_over(sglang_mla(SHAPE))
    with pytest.raises(BadArgument, match="pools: are over an engine's tensors; read those"):
        pools.planes(FULL)
    with pytest.raises(BadArgument, match="pools: are over an engine's tensors; read those"):
        pools.view(FULL, 0, 0, torch.bfloat16, (4, 16))


def test_tensors_of_inference_mode_and_of_training_are_served() -> None:
    """Copies write to tensors whatever autograd thinks of them."""
    with torch.inference_mode():
        frozen = torch.zeros(44, 1, 8)
    learning = torch.zeros(44, 1, 8, requires_grad=True)
    for tensor in (frozen, learning):
        pools = Pools(config_of(SHAPE), tensors={FULL: EngineTensors("sglang_mla", [tensor])})
        pools.write(FULL, 3, bytes(range(128)))
        pools.copy(Move(FULL, slots(3), slots(0)), BACKUP)
        pools.copy(Move(FULL, slots(0), slots(5)), LOAD_BACK)
        assert tensor.detach()[20:24].view(torch.uint8).flatten().tolist() == list(range(128))
