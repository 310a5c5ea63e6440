"""Gather and scatter move exactly the bytes that indexing would, in accesses of 128 bits.

There is no GPU here. What the kernels compute is interpreted; what they are compiled to, for a
Hopper GPU, is read.
"""

from __future__ import annotations

import re
from math import gcd
from pathlib import Path

import pytest
import torch
import triton
from attrs import frozen
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gpu.fake import InterpretedKernel
from kvcanon.optimized.device_planes import plane_of
from kvcanon.optimized.kernels import pages
from kvcanon.optimized.kernels.pages import (
    PagedPool,
    PageRows,
    gather,
    paged_pool,
    scatter,
    tile_of,
)
from kvcanon.optimized.layout import PageLayout, mha_layout, mla_layout, state_layout

SLOTS = 37

LAYOUTS = {
    "mha, a token a page": mha_layout(2, 1, 2, 8, torch.bfloat16),
    "mha, four tokens a page": mha_layout(3, 4, 2, 8, torch.float16),
    "mla, of no power of two": mla_layout(2, 1, 576, torch.bfloat16),
    "mla in fp8": mla_layout(2, 3, 48, torch.float8_e4m3fn),
    "a state of unequal parts": state_layout(2, [((3, 4), torch.bfloat16), ((5,), torch.float32)]),
    "planes of 8 bytes": PageLayout(2, (8, 24)),
    "odd planes": PageLayout(3, (7, 5)),
    "larger than a tile": PageLayout(1, (2 * pages.TILE_BYTES + 48,)),
    "a byte": PageLayout(1, (1,)),
}


@pytest.fixture(autouse=True)
def _interpreted(kernel: InterpretedKernel) -> None:
    """Every test of this file interprets its kernels."""


def random_bytes(*shape: int) -> torch.Tensor:
    """Bytes of every value, so that as floats some are NaNs and infinities."""
    return torch.randint(0, 256, shape, dtype=torch.uint8)


@frozen(eq=False)
class Drawn:
    """A device pool with random bytes, and some of its slots in random order."""

    layout: PageLayout
    planes: tuple[torch.Tensor, ...]
    slots: torch.Tensor

    @property
    def pool(self) -> PagedPool:
        """The pool as kernels see it."""
        rows = zip(*(plane.unbind(0) for plane in self.planes), strict=True)
        pool = tuple(tuple(plane_of("plane", one) for one in row) for row in rows)
        return paged_pool(pool, self.layout)

    def rows(self, layers: slice = slice(None)) -> torch.Tensor:
        """The result of plain indexing."""
        chosen = [
            plane[layer][self.slots.long()]
            for layer in range(self.layout.layers)[layers]
            for plane in self.planes
        ]
        return torch.cat(chosen, dim=1)

    def gather(self, at: PageRows, layers: slice | None = None, **options: int) -> None:
        """Gather the slots into rows."""
        every = slice(0, self.layout.layers)
        gather(self.pool, self.slots, at, layers or every, **options)


def drawn(layout: PageLayout, count: int) -> Drawn:
    """A pool of this layout, and so many of its slots."""
    planes = tuple(random_bytes(layout.layers, SLOTS, size) for size in layout.plane_bytes)
    return Drawn(layout, planes, torch.randperm(SLOTS)[:count].to(torch.int32))


@pytest.mark.parametrize("count", [0, 1, 11])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_gather_moves_what_indexing_does(layout: PageLayout, count: int) -> None:
    """Rows get each plane of each layer in host order, and nothing around them is written."""
    made = drawn(layout, count)
    memory = torch.full((count + 2, layout.page_bytes), 0xEE, dtype=torch.uint8)
    made.gather(PageRows(memory[1].data_ptr(), layout.page_bytes))
    assert torch.equal(memory[1:-1], made.rows())
    assert (memory[[0, -1]] == 0xEE).all()


@pytest.mark.parametrize("count", [0, 1, 11])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_scatter_is_the_way_back(layout: PageLayout, count: int) -> None:
    """Slots get the bytes of the rows, and other slots do not change."""
    made = drawn(layout, count)
    before = [plane.clone() for plane in made.planes]
    rows = random_bytes(count, layout.page_bytes)
    at = PageRows(rows.data_ptr(), layout.page_bytes)
    scatter(made.pool, made.slots, at, slice(0, layout.layers))
    assert torch.equal(made.rows(), rows)
    others = torch.ones(SLOTS, dtype=torch.bool)
    others[made.slots.long()] = False
    for plane, was in zip(made.planes, before, strict=True):
        assert torch.equal(plane[:, others], was[:, others])


@pytest.mark.parametrize("layers", [slice(0, 1), slice(1, 3), slice(3, 4)])
def test_some_layers_of_pages_found_by_index(layers: slice) -> None:
    """A group of layers goes to its place in pages at any rows, as on the host."""
    layout = PageLayout(4, (32, 48))
    made = drawn(layout, 9)
    slab = torch.full((20, layout.page_bytes), 0xEE, dtype=torch.uint8)
    index = torch.randperm(20)[:9].to(torch.int32)
    made.gather(PageRows(slab.data_ptr(), layout.page_bytes, index), layers)
    expected = torch.full_like(slab, 0xEE)
    inside = slice(layers.start * layout.layer_bytes, layers.stop * layout.layer_bytes)
    expected[index.long(), inside] = made.rows(layers)
    assert torch.equal(slab, expected)


def test_rows_of_one_group_of_layers() -> None:
    """Rows with only some layers are addressed as if they had the lower layers, too."""
    layout = PageLayout(4, (32, 48))
    made, width = drawn(layout, 5), 2 * layout.layer_bytes
    rows = torch.empty((5, width), dtype=torch.uint8)
    made.gather(PageRows(rows.data_ptr() - 2 * layout.layer_bytes, width), slice(2, 4))
    assert torch.equal(rows, made.rows(slice(2, 4)))


@pytest.mark.parametrize(
    ("programs", "shift"), [(1, 0), (3, 0), (1000, 0), (3, 1), (3, 2), (3, 4), (3, 8)]
)
def test_any_number_of_programs_and_any_alignment(programs: int, shift: int) -> None:
    """Every tile is moved; rows at an odd address are moved in narrower accesses."""
    layout = PageLayout(3, (pages.TILE_BYTES + 16, 32))
    made = drawn(layout, 2)
    memory = torch.empty(len(made.slots) * layout.page_bytes + shift, dtype=torch.uint8)
    rows = memory[shift:].view(-1, layout.page_bytes)
    made.gather(PageRows(rows.data_ptr(), layout.page_bytes), programs=programs)
    assert torch.equal(rows, made.rows())


def test_launches(kernel: InterpretedKernel) -> None:
    """No page and no layer launch nothing; planes of one size in all layers share one launch."""
    layout = PageLayout(2, (16,))
    drawn(layout, 0).gather(PageRows(0, 32))
    drawn(layout, 3).gather(PageRows(0, 32), slice(1, 1))
    assert kernel.launches == 0
    layout = PageLayout(3, (32, 16, 32))
    rows = torch.empty((4, layout.page_bytes), dtype=torch.uint8)
    drawn(layout, 4).gather(PageRows(rows.data_ptr(), layout.page_bytes))
    assert kernel.launches == 2


@frozen
class Compiled:
    """A compiled kernel."""

    loads: tuple[str, ...]
    stores: tuple[str, ...]


def compiled(plane_bytes: int, aligned_bytes: int, *, to_rows: bool) -> Compiled:
    """Compile the kernel for a Hopper GPU, as it would be launched for such planes."""
    tile = tile_of(plane_bytes, aligned_bytes)
    constants = {
        "ELEMENTS": tile.piece_elements,
        "ELEMENT_BYTES": tile.element_bytes,
        "ALIGNED_BYTES": tile.aligned_bytes,
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "ROWS_GIVEN": True,
        "TO_ROWS": to_rows,
    }
    signature = {
        "table": "*i64",
        "slots": "*i32",
        "rows": "*i32",
        "row_address": "i64",
        "row_bytes": "i32",
        "first_segment": "i32",
        "segments": "i32",
        "pages": "i32",
        **dict.fromkeys(constants, "constexpr"),
    }
    kernel = triton.JITFunction(pages.move_pages)
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    options = {"num_warps": pages.WARPS}
    ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options).asm["ptx"]
    assert ".local" not in ptx, "registers were spilled"
    return Compiled(
        tuple(re.findall(r"\bld\.global[\w.:]*", ptx)),
        tuple(re.findall(r"\bst\.global[\w.:]*", ptx)),
    )


@pytest.mark.parametrize("to_rows", [True, False], ids=["gather", "scatter"])
@pytest.mark.parametrize(
    ("plane_bytes", "access"),
    [
        (32 * 1024, "v4.b32"),  # 16 tokens of 8 heads, in bf16
        (2048, "v4.b32"),  # one of them
        (1152, "v4.b32"),  # a token of MLA
        (64 * 1152, "v4.b32"),
        (48, "v4.b32"),
        (24, "v2.b32"),
        (20, "b32"),
        (10, "b16"),
        (7, "b8"),
    ],
)
def test_accesses_are_as_wide_as_planes_allow(
    plane_bytes: int, access: str, to_rows: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data moves 128 bits at a time wherever 16 divides a plane, on both sides."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 wants it said.
    code = compiled(plane_bytes, gcd(16, plane_bytes), to_rows=to_rows)
    assert set(code.stores) == {f"st.global.{access}"}
    # The slots of a tile, and the table's addresses, are read too; those are no data.
    assert code.loads.count(f"ld.global.{access}") >= len(code.stores)
    others = {name for name in code.loads if name != f"ld.global.{access}"}
    assert others <= {"ld.global.b32", "ld.global.b64", "ld.global.v2.b64"}


@pytest.mark.parametrize("plane_bytes", [1, 7, 16, 48, 1152, 2048, 18432, 73728, 131072])
def test_tiles_waste_few_threads(plane_bytes: int) -> None:
    """A tile has the size that a program moves at once, and at least half of it is data."""
    tile = tile_of(plane_bytes, gcd(16, plane_bytes))
    assert tile.rows * tile.columns * tile.element_bytes == pages.TILE_BYTES
    tiles = -(-tile.piece_elements // tile.columns)
    assert 2 * tile.piece_elements >= tiles * tile.columns
