"""Move pages between the pieces of a pool and rows that hold whole pages: gather and scatter.

A *piece* is a contiguous part of a page in a plane: all of it, unless the tensor's axes are ordered
otherwise. A *row* holds some neighbouring layers of a page in the host's order. Rows are in a
staging ring on the device, or are the pages of the pinned host slab, which a kernel accesses
directly. Both are given as an address, so that one kernel handles both.

Kernels know no dtype. A piece is moved in 32-bit words, four in one access where its size allows,
and byte by byte only where words do not fit.
"""

from __future__ import annotations

from math import gcd
from typing import Protocol

import torch
import triton
import triton.language as tl
from attrs import frozen

from kvcanon.optimized.device_planes import DevicePlanes
from kvcanon.optimized.layout import PageLayout

ACCESS_BYTES = 16
"""The widest access that a thread can make."""
WORD_BYTES = 4
TILE_BYTES = 16 * 1024
"""Bytes that a program moves at once: four wide accesses for each of its threads."""
WARPS = 8
PROGRAMS = 64
"""Programs of a launch; each loops over tiles. Half of the GPU is left to compute."""
HOST_PROGRAMS = 8
"""Programs of a launch over host memory. They fill a PCIe 5 link; more slow compute down."""


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
    """How a piece of one size is cut for the programs."""

    piece_elements: int
    element_bytes: int
    """4, or 1 where words do not fit."""
    aligned_bytes: int
    """A power of two that divides every address of a piece and of its place in a row."""
    rows: int
    columns: int
    """Pages, and elements of each, in one tile; both are powers of two."""

    def aligned_to(self, address: int) -> Tile:
        """The tile to use with rows at this address, which may be less aligned than the pieces."""
        aligned = gcd(self.aligned_bytes, address)
        if aligned == self.aligned_bytes:
            return self
        return tile_of(self.piece_elements * self.element_bytes, aligned)


@frozen(eq=False)
class PieceTable:
    """The pieces of equal size in a pool, layer by layer."""

    tile: Tile
    pieces: int
    """Of one layer."""
    table: torch.Tensor
    """For each: its address in the first slot, its offset in a page on the host, and the distance
    from slot to slot. int64[layers x pieces, 3] on the device."""


@frozen(eq=False)
class PagedPool:
    """The pool of a component, for the kernels."""

    layout: PageLayout
    pieces: tuple[PieceTable, ...]
    """One for each size that a piece has."""


def paged_pool(planes: DevicePlanes, layout: PageLayout) -> PagedPool:
    """Describe a pool. Effects: uploads the addresses of its pieces."""
    every = [plane for layer in planes for plane in layer]
    sizes = {plane.piece_bytes for plane in every}
    numbers = {
        number
        for plane in every
        for number in (plane.address, plane.slot_bytes, *plane.piece_offsets)
    }
    aligned = gcd(ACCESS_BYTES, *sizes, *numbers)
    return PagedPool(
        layout, tuple(_pieces_of(planes, layout, size, aligned) for size in sorted(sizes))
    )


def tile_of(piece_bytes: int, aligned_bytes: int) -> Tile:
    """Choose how pieces of this size are cut.

    A tile has the largest width that divides the piece, so that no thread is idle, but at least a
    cache line. A narrow tile covers more pages.
    """
    element_bytes = WORD_BYTES if gcd(piece_bytes, aligned_bytes) % WORD_BYTES == 0 else 1
    elements = piece_bytes // element_bytes
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


def _pieces_of(
    planes: DevicePlanes, layout: PageLayout, piece_bytes: int, aligned_bytes: int
) -> PieceTable:
    """Describe the pieces of one size. All layers have as many of them."""
    entries = [
        (
            plane.address + offset,
            layout.offset_bytes(layer, number) + at * piece_bytes,
            plane.slot_bytes,
        )
        for layer, row in enumerate(planes)
        for number, plane in enumerate(row)
        if plane.piece_bytes == piece_bytes
        for at, offset in enumerate(plane.piece_offsets)
    ]
    table = torch.tensor(entries, dtype=torch.int64, device=planes[0][0].memory.device)
    return PieceTable(tile_of(piece_bytes, aligned_bytes), len(entries) // len(planes), table)


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
    for pieces in pool.pieces:
        # Rows may have any address, so the promised alignment must hold for them, too.
        tile = pieces.tile.aligned_to(gcd(rows.address, rows.row_bytes))
        segments = layer_count * pieces.pieces
        tiles = -(-pages // tile.rows) * segments * -(-tile.piece_elements // tile.columns)
        MOVE_PAGES[(max(1, min(programs, tiles)),)](
            pieces.table,
            slots,
            slots if rows.index is None else rows.index,
            rows.address,
            rows.row_bytes,
            layers.start * pieces.pieces,
            segments,
            pages,
            ELEMENTS=tile.piece_elements,
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
    """Move tiles of `ROWS` pages by `COLUMNS` elements of a piece, one after the other.

    A segment is a piece of a layer. Tiles go through a piece first, then through the segments of
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
        base = tl.load(table + 3 * segment)
        offset = tl.load(table + 3 * segment + 1)
        slot_bytes = tl.load(table + 3 * segment + 2)
        page = tile // page_tiles * ROWS + tl.arange(0, ROWS)
        present = page < pages
        # Slots times bytes exceed 2**31 in most real pools.
        slot = tl.load(slots + page, mask=present, other=0).to(tl.int64)
        if ROWS_GIVEN:
            row = tl.load(rows + page, mask=present, other=0).to(tl.int64)
        else:
            row = page.to(tl.int64)
        in_pool = base + slot * slot_bytes
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
