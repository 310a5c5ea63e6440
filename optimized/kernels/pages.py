"""Move pages between the planes of a pool and rows that hold whole pages: gather and scatter.

A *row* holds some neighbouring layers of a page in the host's order. Rows are in a staging ring on
the device, or are the pages of the pinned host slab, which a kernel accesses directly. Both are
given as an address, so that one kernel handles both.

Kernels know no dtype. A plane is moved in 32-bit words, four in one access where its size allows,
and byte by byte only where words do not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Protocol

import torch
import triton
import triton.language as tl
from attrs import frozen

from kvcanon.optimized.layout import PageLayout

ACCESS_BYTES = 16
"""The widest access that a thread can make."""
WORD_BYTES = 4
TILE_BYTES = 16 * 1024
"""Bytes that a program moves at once: four wide accesses for each of its threads."""
WARPS = 8
PROGRAMS = 64
"""Programs of a launch; each loops over tiles. Half of the GPU is left to compute."""


class Kernel(Protocol):
    """A compiled or interpreted kernel, launched as `kernel[grid](...)`."""

    def __getitem__(self, grid: tuple[int]) -> Launch:
        """The launch on this grid."""


class Launch(Protocol):
    """A kernel on a grid."""

    def __call__(self, *arguments: torch.Tensor | int, **constants: int) -> object:
        """Enqueue it on the current stream."""


@frozen
class Tile:
    """How a plane of one size is cut for the programs."""

    plane_elements: int
    element_bytes: int
    """4, or 1 where words do not fit."""
    aligned_bytes: int
    """A power of two that divides every address of a plane and of its place in a row."""
    rows: int
    columns: int
    """Pages, and elements of each, in one tile; both are powers of two."""

    def aligned_to(self, address: int) -> Tile:
        """The tile to use with rows at this address, which may be less aligned than the planes."""
        aligned = gcd(self.aligned_bytes, address)
        if aligned == self.aligned_bytes:
            return self
        return tile_of(self.plane_elements * self.element_bytes, aligned)


@frozen(eq=False)
class Planes:
    """The planes of equal size in a pool, layer by layer."""

    tile: Tile
    planes: int
    """Of one layer."""
    table: torch.Tensor
    """For each: the address of its first slot, and its offset in a page. int64[layers x planes, 2]
    on the device."""


@frozen(eq=False)
class PagedPool:
    """The pool of a component, for the kernels."""

    layout: PageLayout
    planes: tuple[Planes, ...]
    """One for each size that a plane has."""


def paged_pool(planes: Sequence[torch.Tensor], layout: PageLayout) -> PagedPool:
    """Describe a pool: one uint8 tensor a plane, [layers, slots, plane_bytes], contiguous."""
    addresses = [plane.data_ptr() for plane in planes]
    aligned = gcd(ACCESS_BYTES, *layout.plane_bytes, *addresses)
    return PagedPool(
        layout,
        tuple(
            _planes_of(planes, layout, plane_bytes, aligned)
            for plane_bytes in sorted(set(layout.plane_bytes))
        ),
    )


def tile_of(plane_bytes: int, aligned_bytes: int) -> Tile:
    """Choose how planes of this size are cut.

    A tile is as wide as divides the plane without a remainder, so that no thread is idle, but not
    narrower than a cache line. A narrow tile has more pages.
    """
    element_bytes = WORD_BYTES if gcd(plane_bytes, aligned_bytes) % WORD_BYTES == 0 else 1
    elements = plane_bytes // element_bytes
    most = TILE_BYTES // element_bytes
    whole = elements & -elements
    line = 128 // element_bytes
    columns = whole if whole >= min(line, elements) else triton.next_power_of_2(elements)
    columns = min(columns, most)
    return Tile(elements, element_bytes, aligned_bytes, max(1, most // columns), columns)


@frozen(eq=False)
class PageRows:
    """Rows in memory that kernels reach."""

    address: int
    """Address of layer 0 in row 0, even if the rows do not have that layer."""
    row_bytes: int
    """From one row to the next."""
    index: torch.Tensor | None = None
    """The row of each page, int32 on the pool's device; None where page i is in row i."""


def gather(
    pool: PagedPool,
    slots: torch.Tensor,
    rows: PageRows,
    layers: slice,
    *,
    programs: int = PROGRAMS,
) -> None:
    """Copy some layers of the pages in `slots`, int32 on the pool's device, into rows."""
    _launch(pool, slots, rows, layers, to_rows=True, programs=programs)


def scatter(
    pool: PagedPool,
    slots: torch.Tensor,
    rows: PageRows,
    layers: slice,
    *,
    programs: int = PROGRAMS,
) -> None:
    """Copy some layers of the pages in rows into `slots`: the reverse of `gather`."""
    _launch(pool, slots, rows, layers, to_rows=False, programs=programs)


def warm_up(pool: PagedPool, slots: torch.Tensor, rows: PageRows, *, to_rows: bool) -> None:
    """Compile and load what `gather` or `scatter` launches for such rows. Moves nothing."""
    _launch_pages(pool, slots, rows, slice(0, 1), 0, to_rows=to_rows, programs=1)


def _planes_of(
    planes: Sequence[torch.Tensor], layout: PageLayout, plane_bytes: int, aligned_bytes: int
) -> Planes:
    """Describe the planes of one size."""
    chosen = [index for index, size in enumerate(layout.plane_bytes) if size == plane_bytes]
    entries = [
        (
            planes[index].data_ptr() + layer * planes[index].stride(0),
            layout.offset_bytes(layer, index),
        )
        for layer in range(layout.layers)
        for index in chosen
    ]
    table = torch.tensor(entries, dtype=torch.int64, device=planes[0].device)
    return Planes(tile_of(plane_bytes, aligned_bytes), len(chosen), table)


def _launch(
    pool: PagedPool,
    slots: torch.Tensor,
    rows: PageRows,
    layers: slice,
    *,
    to_rows: bool,
    programs: int,
) -> None:
    if len(slots) and layers.stop > layers.start:
        _launch_pages(pool, slots, rows, layers, len(slots), to_rows=to_rows, programs=programs)


def _launch_pages(
    pool: PagedPool,
    slots: torch.Tensor,
    rows: PageRows,
    layers: slice,
    pages: int,
    *,
    to_rows: bool,
    programs: int,
) -> None:
    layer_count = layers.stop - layers.start
    for planes in pool.planes:
        # Rows may have any address, so the promised alignment must hold for them, too.
        tile = planes.tile.aligned_to(gcd(rows.address, rows.row_bytes))
        segments = layer_count * planes.planes
        tiles = -(-pages // tile.rows) * segments * -(-tile.plane_elements // tile.columns)
        MOVE_PAGES[(max(1, min(programs, tiles)),)](
            planes.table,
            slots,
            slots if rows.index is None else rows.index,
            rows.address,
            rows.row_bytes,
            layers.start * planes.planes,
            segments,
            pages,
            ELEMENTS=tile.plane_elements,
            ELEMENT_BYTES=tile.element_bytes,
            ALIGNED_BYTES=tile.aligned_bytes,
            ROWS=tile.rows,
            COLUMNS=tile.columns,
            ROWS_GIVEN=rows.index is not None,
            TO_ROWS=to_rows,
            num_warps=WARPS,
        )


def move_pages(  # noqa: PLR0917
    table: tl.tensor,
    slots: tl.tensor,
    rows: tl.tensor,
    row_address: tl.tensor,
    row_bytes: tl.tensor,
    first_segment: tl.tensor,
    segments: tl.tensor,
    pages: tl.tensor,
    ELEMENTS: tl.constexpr,
    ELEMENT_BYTES: tl.constexpr,
    ALIGNED_BYTES: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS_GIVEN: tl.constexpr,
    TO_ROWS: tl.constexpr,
) -> None:
    """Move tiles of `ROWS` pages by `COLUMNS` elements of a plane, one after the other.

    A segment is a plane of a layer. Tiles go through a plane first, then through the segments of
    the same pages, so that programs that run together write next to each other.
    """
    if ELEMENT_BYTES == 4:  # noqa: SIM108 - the compiler takes no conditional expression of types.
        pointer = tl.pointer_type(tl.int32)
    else:
        pointer = tl.pointer_type(tl.uint8)
    column_tiles = (ELEMENTS + COLUMNS - 1) // COLUMNS
    page_tiles = column_tiles * segments
    tiles = (pages + ROWS - 1) // ROWS * page_tiles
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        segment = first_segment + tile // column_tiles % segments
        base = tl.load(table + 2 * segment)
        offset = tl.load(table + 2 * segment + 1)
        page = tile // page_tiles * ROWS + tl.arange(0, ROWS)
        present = page < pages
        # Slots times bytes exceed 2**31 in most real pools.
        slot = tl.load(slots + page, mask=present, other=0).to(tl.int64)
        if ROWS_GIVEN:
            row = tl.load(rows + page, mask=present, other=0).to(tl.int64)
        else:
            row = page.to(tl.int64)
        in_pool = base + slot * (ELEMENTS * ELEMENT_BYTES)
        in_rows = row_address + offset + row * row_bytes
        # Without this promise the compiler assumes that an address made from a number is odd, and
        # every access would be as narrow as an element.
        in_pool = tl.multiple_of(in_pool.to(pointer), ALIGNED_BYTES)
        in_rows = tl.multiple_of(in_rows.to(pointer), ALIGNED_BYTES)
        column = tile % column_tiles * COLUMNS + tl.arange(0, COLUMNS)
        pool_cells = in_pool[:, None] + column[None, :]
        row_cells = in_rows[:, None] + column[None, :]
        if ELEMENTS % COLUMNS == 0:
            mask = present[:, None]
        else:
            mask = present[:, None] & (column < ELEMENTS)[None, :]
        if TO_ROWS:
            tl.store(row_cells, tl.load(pool_cells, mask=mask), mask=mask)
        else:
            tl.store(pool_cells, tl.load(row_cells, mask=mask), mask=mask)


# Arguments that change with each launch must not compile new kernels. The constants decide how wide
# accesses are.
MOVE_PAGES: Kernel = triton.jit(
    do_not_specialize=(
        "table",
        "slots",
        "rows",
        "row_address",
        "row_bytes",
        "first_segment",
        "segments",
        "pages",
    )
)(move_pages)
