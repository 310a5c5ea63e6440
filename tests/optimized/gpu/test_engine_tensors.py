"""Pools over tensors that an engine owns: every named layout, bytes and refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
import torch
from attrs import define, evolve, field

from fast.caches import hybrid
from gpu.fake import InterpretedKernel
from gpu.layouts import BUILDERS, Owned, Shape, sglang_mha, sglang_mla, vllm_kv_first
from gpu.scene import BACKUP, LOAD_BACK, WAYS, Device, carry_out, slots
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.optimized import OptimizedCache, device_planes
from kvcanon.optimized.copy_plan import Limits
from kvcanon.optimized.engine_tensors import TENSOR_LAYOUTS, EngineTensors, TensorLayout
from kvcanon.optimized.layout import mha_layout
from kvcanon.optimized.page_transfer import Move, page_order
from kvcanon.optimized.pools import Pools
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts

SHAPE = Shape(slots=11, page_size=4)
DTYPES = (torch.bfloat16, torch.float32, torch.uint8, torch.float8_e4m3fn)

every_layout = pytest.mark.parametrize("name", BUILDERS)


def pools_over(owned: Owned, shape: Shape = SHAPE) -> Pools:
    """Pools over the tensors, with random bytes on both media."""
    made = shape.pools(*owned.filled().given)
    made.slab(FULL).random_(0, 256)
    return made


def pages_of(owned: Owned, some: object) -> list[bytes]:
    """The bytes of some pages, as the engine finds them."""
    return [owned.page_bytes(SHAPE.layers, slot) for slot in some]  # type: ignore[attr-defined]


@contextmanager
def only_pages_change(owned: Owned, changed: set[int], shape: Shape = SHAPE) -> Iterator[None]:
    """Check that of all that the engine owns nothing but some pages changes."""
    before = [each.clone() for each in owned.raw]
    yield
    after = [each.clone() for each in owned.raw]
    others = []
    for content in (before, after):
        for each, was in zip(owned.raw, content, strict=True):
            each.copy_(was)
        for slot in changed:
            for layer in range(shape.layers):
                for piece in owned.page(layer, slot):
                    piece.view(torch.uint8).fill_(0)
        others.append([each.clone() for each in owned.raw])
    assert all(map(torch.equal, *others))
    for each, now in zip(owned.raw, after, strict=True):
        each.copy_(now)


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
    """A backup takes the engine's pages; a load puts them, or some layers, elsewhere."""
    owned = BUILDERS[name](SHAPE)
    pools = pools_over(owned)
    sources, hosts, targets = slots(3, 10, 4, 0), slots(8, 0, 1, 5), slots(2, 1, 9, 7)
    expected = pages_of(owned, sources)
    pools.copy(Move(FULL, sources, hosts), BACKUP)
    assert [pools.slab(FULL)[slot].numpy().tobytes() for slot in hosts] == expected
    with only_pages_change(owned, set(targets.tolist())):
        pools.copy(Move(FULL, hosts, targets), LOAD_BACK)
        assert pages_of(owned, targets) == expected
    with only_pages_change(owned, {6}):
        layer = pools.layouts[FULL].layer_bytes
        page, host = owned.page_bytes(SHAPE.layers, 6), pools.read(FULL, CPU, 2)
        pools.copy(Move(FULL, slots(2), slots(6)), LOAD_BACK, slice(1, 2))
        partly = page[:layer] + host[layer : 2 * layer] + page[2 * layer :]
        assert owned.page_bytes(SHAPE.layers, 6) == partly


@every_layout
@pytest.mark.parametrize("way", ["through a small ring", "without the ring"])
def test_kernels_move_what_the_plain_copy_does(name: str, way: str, device: Device) -> None:
    """Kernels reach the engine's pages, through the ring and without it, in both directions."""
    owned = BUILDERS[name](SHAPE)
    pools = pools_over(owned)
    device_slots, hosts = slots(3, 10, 4, 5, 0), slots(8, 0, 1, 2, 5)
    expected = pages_of(owned, device_slots)
    with device.engine(pools, *WAYS[way]) as engine:
        carry_out(engine, page_order(1, BACKUP, (Move(FULL, device_slots, hosts),), pools))
        assert [pools.read(FULL, CPU, slot) for slot in hosts] == expected
        targets = slots(2, 1, 9, 8, 6)
        with only_pages_change(owned, set(targets.tolist())):
            carry_out(engine, page_order(2, LOAD_BACK, (Move(FULL, hosts, targets),), pools))
            assert pages_of(owned, targets) == expected


def test_contiguous_pages_share_a_launch(kernel: InterpretedKernel, device: Device) -> None:
    """All layers, keys and values move in one launch where their pages have one size."""
    pools = pools_over(vllm_kv_first(SHAPE))
    with device.engine(pools, Limits(), 10**9) as engine:
        before = kernel.launches
        carry_out(engine, page_order(1, BACKUP, (Move(FULL, slots(3), slots(1)),), pools))
    assert kernel.launches == before + 1


def test_components_have_tensors_of_their_own() -> None:
    """Full, window and state data lie in tensors of different layouts."""
    config = hybrid(Counts(11, 6, 3), Counts(9, 5, 4), page_size=4, window_tokens=8)
    shapes = {
        FULL: SHAPE,
        SWA: evolve(SHAPE, slots=6, layers=2, heads=1),
        MAMBA: evolve(SHAPE, slots=3, layers=4),
    }
    builders = {FULL: sglang_mha, SWA: vllm_kv_first, MAMBA: BUILDERS["sglang_mamba"]}
    owned = {each: builders[each](shape).filled() for each, shape in shapes.items()}
    pools = Pools(config, tensors={name: each.given for name, each in owned.items()})
    for component, device_slot, host_slot in ((FULL, 10, 8), (SWA, 5, 4), (MAMBA, 2, 3)):
        pools.copy(Move(component, slots(device_slot), slots(host_slot)), BACKUP)
        expected = owned[component].page_bytes(shapes[component].layers, device_slot)
        assert pools.read(component, CPU, host_slot) == expected


def test_a_layout_may_be_described_by_its_axes() -> None:
    """A layout without a name is given by the axes of slots and layers."""
    whole = torch.randint(0, 256, (2, 5, 4, 11, 3), dtype=torch.uint8)
    pools = SHAPE.pools(EngineTensors(TensorLayout(slot_axis=3, layer_axis=1), whole))
    assert pools.layouts[FULL].layers == 5
    assert pools.read(FULL, GPU, 6) == whole[:, :, :, 6].transpose(0, 1).numpy().tobytes()


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
        pools = SHAPE.pools(EngineTensors("sglang_mla", [tensor]))
        pools.write(FULL, 3, bytes(range(128)))
        pools.copy(Move(FULL, slots(3), slots(0)), BACKUP)
        pools.copy(Move(FULL, slots(0), slots(5)), LOAD_BACK)
        assert tensor.detach()[20:24].view(torch.uint8).flatten().tolist() == list(range(128))


# Tensors that cannot be addressed by pages are refused when the pools are made, in one line.


def refused(match: str, *given: EngineTensors) -> None:
    """Check that pools over these tensors are refused, in one line."""
    with pytest.raises(BadArgument, match=match) as caught:
        SHAPE.pools(*given)
    assert "\n" not in str(caught.value)


def mha(*shapes: tuple[int, ...]) -> EngineTensors:
    """Tensors by tokens."""
    return EngineTensors("sglang_mha", [torch.zeros(shape).bfloat16() for shape in shapes])


def mla(*tensors: torch.Tensor) -> EngineTensors:
    """Tensors by blocks."""
    return EngineTensors("vllm_mla", list(tensors))


ONE, WIDE = torch.zeros(44, 2, 8), torch.zeros(11, 12)
REFUSED = {
    # The axis of slots must have as many as the configuration says.
    r"tensors.full: have 45 on axis 0 of layer 1; 11 slots of 4 tokens take 44 "
    r"\(device_slots counts a padding slot, too\)": [mha((44, 2, 8), (45, 2, 8))],
    "tensors.full: have 12 on axis 0 of layer 0; 11 slots take 11": [mla(torch.zeros(12, 4, 8))],
    r"tensors.full: have no axis 1 in layer 0: the shape is \(11,\)": [
        EngineTensors("vllm_kv_first", [torch.zeros(11)])
    ],
    r"tensors: of slots_layers have no axis 1: the shape is \(11,\)": [
        EngineTensors("slots_layers", torch.zeros(11))
    ],
    # All layers have the same planes, in the same pieces.
    "tensors.full: differ: layer 1 has pages of 192 bytes, layer 0 of 128 bytes": [
        mha((44, 2, 8), (44, 3, 8))
    ],
    "tensors.full: differ: layer 1 has pages of 2 x 128 bytes, layer 0 of 256 bytes": [
        mla(torch.zeros(11, 2, 4, 8), torch.zeros(2, 11, 4, 8).transpose(0, 1))
    ],
    r"tensors.full: are of \[1, 2\] layers": [mha((44, 2, 8)), mha((44, 2, 8), (44, 2, 8))],
    # No byte belongs to two slots, two layers or two planes.
    r"tensors.full, layer 0: has places that share memory \(shape \(11, 4, 2, 8\)": [
        EngineTensors("sglang_mha", [torch.zeros(1, 2, 8).expand(44, 2, 8)])
    ],
    "tensors.full, layer 0: has places that share memory": [
        mla(torch.zeros(200).as_strided((11, 12), (8, 1)))
    ],
    "tensors.full: share memory: layer 1, plane 0 lies over tensors.full, layer 0, plane 0": [
        EngineTensors("sglang_mha", [ONE, ONE])
    ],
    "tensors.full: share memory: layer 0, plane 1 lies over tensors.full, layer 0, plane 0": [
        mla(WIDE[:, :8]),
        mla(WIDE[:, 4:]),
    ],
    # Sparse tensors, tensors without data and empty pages.
    "tensors.full, layer 0: has no memory with strides": [mla(torch.zeros(11, 8, device="meta"))],
    "layer 0: has no memory with strides": [mla(torch.zeros(11, 8).to_sparse())],
    r"tensors.full, layer 0: is of shape \(11, 0\); its pages have no bytes": [
        mla(torch.zeros(11, 0))
    ],
    "tensors.full: are no EngineTensors": [],
    "tensors.full: have no layers": [EngineTensors("layers_slots", torch.zeros(0, 11, 4))],
}


@pytest.mark.parametrize(("words", "given"), REFUSED.items(), ids=range(len(REFUSED)))
def test_tensors_without_pages_of_one_kind_are_refused(
    words: str, given: list[EngineTensors]
) -> None:
    """The line says which tensors, and what is wrong with them."""
    refused(words, *given)


def test_layers_that_share_memory_are_found_beside_others_that_do_not() -> None:
    """Tensors that lie apart from all others hide nothing, wherever they lie."""
    for apart in (0, 2):
        memory = torch.zeros(3, 11, 12)
        shared = memory[2 - apart]
        layers = [memory[apart][:, :8], shared[:, :8], shared[:, 4:]]
        words = "tensors.full: share memory: layer 2, plane 0 lies over tensors.full, layer 1"
        refused(words, mla(*layers))
        SHAPE.pools(mla(*layers[:2]))


def test_components_that_share_memory_are_refused() -> None:
    """The slots of a component are its own: a block that two components share would be two."""
    config = CacheConfig(page_size=4, window_tokens=8, device_slots=Counts(11, 11))
    given = EngineTensors("sglang_mla", [torch.zeros(44, 1, 8)])
    with pytest.raises(BadArgument, match=r"tensors.swa: share memory: layer 0, plane 0"):
        Pools(config, tensors={FULL: given, SWA: given})


def test_limits_of_the_search_for_overlap_and_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes that cross are found in few slots; a page that is scattered by bytes is refused."""
    monkeypatch.setattr(device_planes, "MOST_INTERVALS", 1)
    refused("tensors.full: share memory", mla(WIDE[:, :8]), mla(WIDE[:, 4:]))
    SHAPE.pools(mla(WIDE[:, :6]), mla(WIDE[:, 6:]))
    scattered = torch.zeros(4, 8, 11, dtype=torch.uint8)
    given = EngineTensors(TensorLayout(slot_axis=2), [scattered])
    assert SHAPE.pools(given).layouts[FULL].page_bytes == 32
    monkeypatch.setattr(device_planes, "MOST_PIECES", 31)
    refused(
        "tensors.full, layer 0: has pages in 32 pieces of 1 bytes; give tensors whose pages lie "
        "in at most 31 pieces",
        given,
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
    config, given = SHAPE.config(), sglang_mla(SHAPE).given
    layouts = {FULL: mha_layout(1, 4, 1, 8, torch.uint8)}
    for arguments in ({}, {"layouts": layouts, "tensors": {FULL: given}}):
        with pytest.raises(BadArgument, match="layouts: or tensors are needed, and not both"):
            Pools(config, **arguments)  # type: ignore[arg-type]
    with pytest.raises(BadArgument, match="tensors: are of full, swa; the cache has full"):
        Pools(config, tensors={FULL: given, SWA: given})
    with pytest.raises(BadArgument, match="device: is cuda; the tensors are on cpu"):
        Pools(config, None, "cuda", tensors={FULL: given})


# The judge on caches over an engine's tensors

CASES = 6


@cache
def shape_of(name: str, page_size: int, page_bytes: int) -> Shape | None:
    """A shape whose pages have so many bytes, with more than one layer and head if possible."""
    for layers in (3, 2, 1):
        for heads in (2, 1):
            for dim in range(1, page_bytes // layers + 1):
                shape = Shape(1, page_size, layers, heads, dim, wider=1, dtype=torch.uint8)
                size = len(BUILDERS[name](shape).page_bytes(layers, 0))
                if size == page_bytes:
                    return shape
                if size > page_bytes:
                    break
    return None


@define(eq=False)
class EngineOwned:
    """Makes caches over tensors of one layout; of own pools where no shape has the page's bytes."""

    name: str
    made: Counter[bool] = field(factory=Counter[bool])
    """How many caches were made: over tensors of the layout (True), and over own pools."""

    def __call__(self, config: CacheConfig, engine: TransferEngine | None = None) -> OptimizedCache:
        """An empty cache."""
        shape = shape_of(self.name, config.page_size, config.slot_bytes)
        self.made[shape is not None] += 1
        if shape is None:
            return OptimizedCache(config, engine)
        owned = {
            component: BUILDERS[self.name](evolve(shape, slots=config.capacity(component, GPU)))
            for component in config.components
        }
        pools = Pools(config, tensors={name: each.given for name, each in owned.items()})
        return OptimizedCache(config, engine, pools=pools)


@pytest.mark.parametrize(
    "name",
    [
        name if at % 5 == 0 else pytest.param(name, marks=pytest.mark.nightly)
        for at, name in enumerate(BUILDERS)
    ],
)
def test_the_judge_finds_no_difference_from_the_reference(name: str) -> None:
    """Random cases give the same answers, states and bytes as the reference."""
    factory = EngineOwned(name)
    for seed in range(CASES):
        found, _ = play(
            draw_case(seed, Offer()),
            [Adapter(name, factory)],
            against=Adapter("reference", ReferenceCache),
        )
        assert not found, f"seed {seed}: {found[0].words}"
    assert factory.made[True] > CASES / 3, "too few pages of this layout were played"
