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
from kvcanon.optimized import device_planes
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.cuda_driver import CudaDriver
from kvcanon.optimized.engine_tensors import TENSOR_LAYOUTS, EngineTensors, TensorLayout
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.layout import mha_layout
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


# Refusals


def refused(match: str, *given: EngineTensors, shape: Shape = SHAPE) -> None:
    """Check that pools over these tensors are refused, in one line."""
    with pytest.raises(BadArgument, match=match) as caught:
        Pools(config_of(shape), tensors={FULL: given})
    assert "\n" not in str(caught.value)


def mha(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> EngineTensors:
    """Tensors by tokens."""
    return EngineTensors("sglang_mha", [torch.zeros(shape, dtype=dtype) for shape in shapes])


def test_tensors_of_another_size_are_refused() -> None:
    """The axis of slots must have as many as the configuration says."""
    refused(
        r"tensors.full: have 45 on axis 0 of layer 1; 11 slots of 4 tokens take 44 "
        r"\(device_slots counts a padding slot, too\)",
        mha((44, 2, 8), (45, 2, 8)),
    )
    refused(
        r"tensors.full: have 12 on axis 0 of layer 0; 11 slots take 11",
        EngineTensors("vllm_mla", [torch.zeros(12, 4, 8)]),
    )
    refused(
        r"tensors.full: have no axis 1 in layer 0: the shape is \(11,\)",
        EngineTensors("vllm_kv_first", [torch.zeros(11)]),
    )
    refused(
        r"tensors: of slots_layers have no axis 1: the shape is \(11,\)",
        EngineTensors("slots_layers", torch.zeros(11)),
    )


def test_layers_that_differ_are_refused() -> None:
    """All layers have the same planes, in the same pieces."""
    refused(
        r"tensors.full: differ: layer 1 has pages of 192 bytes, layer 0 of 128 bytes",
        mha((44, 2, 8), (44, 3, 8)),
    )
    apart = torch.zeros(2, 11, 4, 8)
    refused(
        r"tensors.full: differ: layer 1 has pages of 2 x 128 bytes, layer 0 of 256 bytes",
        EngineTensors("vllm_mla", [torch.zeros(11, 2, 4, 8), apart.transpose(0, 1)]),
    )
    refused(r"tensors.full: are of \[1, 2\] layers", mha((44, 2, 8)), mha((44, 2, 8), (44, 2, 8)))


def test_memory_that_is_shared_is_refused() -> None:
    """No byte belongs to two slots, two layers or two planes."""
    one, wide = torch.zeros(44, 2, 8), torch.zeros(11, 12)
    refused(
        r"tensors.full, layer 0: has places that share memory \(shape \(11, 4, 2, 8\)",
        EngineTensors("sglang_mha", [torch.zeros(1, 2, 8).expand(44, 2, 8)]),
    )
    refused(
        "tensors.full, layer 0: has places that share memory",
        EngineTensors("vllm_mla", [torch.zeros(200).as_strided((11, 12), (8, 1))]),
    )
    refused(
        "tensors.full: share memory: layer 1, plane 0 lies over tensors.full, layer 0, plane 0",
        EngineTensors("sglang_mha", [one, one]),
    )
    refused(
        "tensors.full: share memory: layer 0, plane 1 lies over tensors.full, layer 0, plane 0",
        EngineTensors("vllm_mla", [wide[:, :8]]),
        EngineTensors("vllm_mla", [wide[:, 4:]]),
    )


def test_layers_that_share_memory_are_found_beside_others_that_do_not() -> None:
    """Tensors that lie apart from all others hide nothing, wherever they lie."""
    for apart in (0, 2):
        memory = torch.zeros(3, 11, 12)
        shared = memory[2 - apart]
        layers = [memory[apart][:, :8], shared[:, :8], shared[:, 4:]]
        refused(
            "tensors.full: share memory: layer 2, plane 0 lies over tensors.full, layer 1",
            EngineTensors("vllm_mla", layers),
        )
        Pools(config_of(SHAPE), tensors={FULL: EngineTensors("vllm_mla", layers[:2])})


def test_components_that_share_memory_are_refused() -> None:
    """The slots of a component are its own: a block that two components share would be two."""
    config = CacheConfig(page_size=4, window_tokens=8, device_slots=Counts(11, 11))
    given = EngineTensors("sglang_mla", [torch.zeros(44, 1, 8)])
    with pytest.raises(BadArgument, match=r"tensors.swa: share memory: layer 0, plane 0"):
        Pools(config, tensors={FULL: given, SWA: given})


def test_overlap_of_large_pools_is_looked_for_in_their_first_slots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However few slots are compared, planes that cross in each slot are found."""
    monkeypatch.setattr(device_planes, "MOST_INTERVALS", 1)
    wide = torch.zeros(11, 12)
    first, second = (EngineTensors("vllm_mla", [wide[:, at : at + 8]]) for at in (0, 4))
    refused("tensors.full: share memory", first, second)
    first, second = (EngineTensors("vllm_mla", [wide[:, at : at + 6]]) for at in (0, 6))
    Pools(config_of(SHAPE), tensors={FULL: [first, second]})


def test_pages_in_too_many_pieces_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is scattered byte by byte is refused."""
    scattered = torch.zeros(4, 8, 11, dtype=torch.uint8)
    given = EngineTensors(TensorLayout(slot_axis=2), [scattered])
    assert Pools(config_of(SHAPE), tensors={FULL: given}).layouts[FULL].page_bytes == 32
    monkeypatch.setattr(device_planes, "MOST_PIECES", 31)
    refused(
        "tensors.full, layer 0: has pages in 32 pieces of 1 bytes; give tensors whose pages lie "
        "in at most 31 pieces",
        given,
    )


def test_tensors_without_memory_are_refused() -> None:
    """Sparse tensors, tensors without data and empty pages are refused."""
    refused(
        "tensors.full, layer 0: has no memory with strides",
        EngineTensors("vllm_mla", [torch.zeros(11, 8, device="meta")]),
    )
    refused(
        "tensors.full, layer 0: has no memory with strides",
        EngineTensors("vllm_mla", [torch.zeros(11, 8).to_sparse()]),
    )
    refused(
        r"tensors.full, layer 0: is of shape \(11, 0\); its pages have no bytes",
        EngineTensors("vllm_mla", [torch.zeros(11, 0)]),
    )


def test_wrong_descriptions_are_refused() -> None:
    """Names, axes and lists that make no sense are refused at once."""
    with pytest.raises(BadArgument, match="layout: is 'sglang'; give a TensorLayout, or one of sg"):
        EngineTensors("sglang", [])
    with pytest.raises(BadArgument, match="tensors: are not as sglang_mha says; give a list"):
        EngineTensors("sglang_mha", torch.zeros(3))
    with pytest.raises(BadArgument, match="tensors: are not as layers_slots says; give one tensor"):
        EngineTensors("layers_slots", [torch.zeros(3)])
    with pytest.raises(BadArgument, match="tensors: are an empty list"):
        EngineTensors("sglang_mha", [])
    with pytest.raises(BadArgument, match="layout: has a negative axis"):
        TensorLayout(slot_axis=-1)
    with pytest.raises(BadArgument, match="layout: has slots and layers on the same axis, 1"):
        TensorLayout(slot_axis=1, layer_axis=1)
    refused("tensors.full: are no EngineTensors")
    refused("tensors.full: have no layers", EngineTensors("layers_slots", torch.zeros(0, 11, 4)))


def test_pools_want_layouts_or_tensors() -> None:
    """Pools allocate by layouts, or use tensors; not both, and not neither."""
    config, given = config_of(SHAPE), sglang_mla(SHAPE).given
    layouts = {FULL: mha_layout(1, 4, 1, 8, torch.uint8)}
    for arguments in ({}, {"layouts": layouts, "tensors": {FULL: given}}):
        with pytest.raises(BadArgument, match="layouts: or tensors are needed, and not both"):
            Pools(config, **arguments)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="tensors: are of full, swa; the cache has full"):
        Pools(config, tensors={FULL: given, SWA: given})
    with pytest.raises(BadArgument, match="device: is cuda; the tensors are on cpu"):
        Pools(config, None, "cuda", tensors={FULL: given})
