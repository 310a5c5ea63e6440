"""Copy plans: a transfer is cut into layer groups, spans that fit the staging ring, and pieces.

On the device a page is scattered over the planes of a pool; on the host it is contiguous. A
*staging ring* on the device holds pages in the order of the host. A *span* fills a ring slot once:
some pages, and some neighbouring layers of them. Between the ring and the host a span is copied in
*pieces*, as few and as large as the host slots permit.

A load is cut by layers first, because compute waits for its first layers. A backup is cut by pages
first, because nothing waits for it, and whole pages make larger pieces.

`mover.py` makes one call for a span; `kernels/pages.py` launches one kernel for each plane size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from attrs import asdict, frozen

from kvcanon.optimized.layout import PageLayout, layer_groups
from kvcanon.optimized.page_transfer import SlotArray
from kvcanon.spec.errors import BadArgument

Offsets = npt.NDArray[np.int64]

KIB = 1024
MIB = 1024 * KIB

ALIGNED_BYTES = 512
"""Ring slots begin at multiples of this, so that kernels can use their widest accesses."""


@frozen
class Limits:
    """Sizes that control how transfers are cut. The defaults suit a PCIe 5 x16 link.

    Raises:
        BadArgument: a size is below one.
    """

    ring_slots: int = 3
    """Slots of each direction's staging ring: with one, kernel and copy would take turns."""
    ring_slot_bytes: int = 32 * MIB
    """Large enough that a copy takes longer than it takes to enqueue the next one."""
    piece_bytes: int = 256 * KIB
    """Least size of a page's part of a layer group: smaller pieces do not fill the link."""
    least_piece_bytes: int = 256 * KIB
    """Where pieces would be smaller than this on average, a kernel copies them without the ring. In
    one direction it fills the link with pages of any size; in both at once it does not."""
    group_bytes: int = 2 * MIB
    """Least size of a whole layer group: below it, events cost more than an early start gains."""
    rectangle_pages: int = 4
    """Neighbouring pages from which on their parts are copied as one rectangle."""
    batch_pieces: int = 4096
    """Most pieces handed to the driver at once; drivers have crashed on fifty thousand."""

    def __attrs_post_init__(self) -> None:
        for name, size in asdict(self).items():
            if size < 1:
                raise BadArgument(name, f"is {size}; it must be at least 1")


@frozen
class Part:
    """The pages of one component that a transfer moves."""

    layout: PageLayout
    pages: int


@frozen
class Span:
    """Some pages of one part, and some neighbouring layers of them."""

    part: int
    first_page: int
    pages: int
    first_layer: int
    layers: int

    @property
    def pages_slice(self) -> slice:
        """The pages, as an index."""
        return slice(self.first_page, self.first_page + self.pages)

    @property
    def layers_slice(self) -> slice:
        """The layers, as an index."""
        return slice(self.first_layer, self.first_layer + self.layers)


@frozen
class LayerGroup:
    """Layers of one part that arrive together."""

    part: int
    first_layer: int
    end_layer: int
    spans: tuple[Span, ...]


@frozen
class CopyPiece:
    """Bytes that are contiguous on both sides, or a rectangle of them.

    A rectangle has `rows` rows of `row_bytes`, which lie one after the other in the ring and
    `page_bytes` apart on the host.
    """

    host_offset: int
    ring_offset: int
    row_bytes: int
    rows: int


@frozen(eq=False)
class Pieces:
    """The copies between one ring slot and the host."""

    host_offsets: Offsets
    ring_offsets: Offsets
    sizes_bytes: Offsets
    """Linear pieces, one an entry."""
    rectangles: tuple[CopyPiece, ...]


def goes_direct(part: Part, host_slots: SlotArray, direct_bytes: int, limits: Limits) -> bool:
    """Whether a part skips the ring, because the part or its pieces are small.

    Only whole pages make small pieces: parts of pages are never cut below `piece_bytes`.
    """
    size_bytes = part.pages * part.layout.page_bytes
    starts, _ = runs(host_slots)
    return size_bytes <= direct_bytes or size_bytes < len(starts) * limits.least_piece_bytes


def ring_slot_bytes(limits: Limits, layouts: Sequence[PageLayout]) -> int:
    """Size of a ring slot that fits at least one layer of one page of every component."""
    least = max(limits.ring_slot_bytes, *(layout.layer_bytes for layout in layouts))
    return -(-least // ALIGNED_BYTES) * ALIGNED_BYTES


def backup_spans(parts: Sequence[Part], slot_bytes: int) -> tuple[Span, ...]:
    """Cut a backup into spans of at most `slot_bytes`: whole pages where they fit."""
    return tuple(
        span
        for index, part in enumerate(parts)
        for span in _spans(index, part, slice(0, part.layout.layers), slot_bytes)
    )


def load_groups(
    parts: Sequence[Part], direct: Sequence[bool], slot_bytes: int, limits: Limits
) -> tuple[LayerGroup, ...]:
    """Cut a load into layer groups, in the order in which compute needs them.

    `direct` says for each part whether it skips the ring; then it makes no pieces.
    """
    groups = [
        LayerGroup(index, layers.start, layers.stop, tuple(_spans(index, part, layers, slot_bytes)))
        for index, (part, skips) in enumerate(zip(parts, direct, strict=True))
        if part.pages
        for layers in _layers(part, 1 if skips else limits.piece_bytes, limits.group_bytes)
    ]
    return tuple(sorted(groups, key=lambda group: (group.first_layer, group.part)))


def group_to_await(groups: Sequence[LayerGroup], layer: int) -> int | None:
    """Return the group after which this layer and those below are there, in every part.

    Groups arrive in order, lower layers first, so waiting for the last needed one is enough.
    """
    begun = sum(group.first_layer <= layer for group in groups)
    return begun - 1 if begun else None


def pieces(span: Span, layout: PageLayout, host_slots: SlotArray, limits: Limits) -> Pieces:
    """Return the copies between a ring slot that holds `span`, page by page, and the host.

    `host_slots` are those of the span's pages. Offsets on the host count from the slab's first
    byte, those in the ring from the ring slot's.
    """
    width = span.layers * layout.layer_bytes
    page = layout.page_bytes
    starts, lengths = runs(host_slots)
    slots = host_slots.astype(np.int64)
    if width == page:
        return Pieces(slots[starts] * page, starts * page, lengths * page, ())
    wide = lengths >= limits.rectangle_pages
    inset = span.first_layer * layout.layer_bytes
    rectangles = tuple(
        CopyPiece(int(slots[start]) * page + inset, int(start) * width, width, int(length))
        for start, length in zip(starts[wide], lengths[wide], strict=True)
    )
    single = np.flatnonzero(~np.repeat(wide, lengths))
    return Pieces(
        slots[single] * page + inset,
        single * width,
        np.full(len(single), width, np.int64),
        rectangles,
    )


def runs(slots: SlotArray) -> tuple[Offsets, Offsets]:
    """Return where each run of consecutive slots starts, and how long it is."""
    if not len(slots):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    breaks = np.flatnonzero(np.diff(slots.astype(np.int64)) != 1) + 1
    starts = np.concatenate([np.zeros(1, np.int64), breaks])
    return starts, np.diff(np.append(starts, len(slots)))


def _layers(part: Part, piece_bytes: int, group_bytes: int) -> tuple[slice, ...]:
    """The layer groups of a part: large enough for each page, and large enough in total."""
    a_page = max(piece_bytes, -(-group_bytes // part.pages))
    return layer_groups(part.layout.layers, part.layout.layer_bytes, a_page)


def _spans(index: int, part: Part, layers: slice, slot_bytes: int) -> Iterator[Span]:
    """Cut pages x layers into spans of at most `slot_bytes`, layers only where a page is larger."""
    layer_bytes = part.layout.layer_bytes
    if layer_bytes > slot_bytes:
        raise BadArgument("slot_bytes", f"is {slot_bytes}; one layer of a page has {layer_bytes}")
    count = layers.stop - layers.start
    most = min(count, slot_bytes // layer_bytes)
    at_once = -(-count // -(-count // most))
    pages = max(1, slot_bytes // (at_once * layer_bytes))
    for first_page in range(0, part.pages, pages):
        for first_layer in range(layers.start, layers.stop, at_once):
            yield Span(
                index,
                first_page,
                min(pages, part.pages - first_page),
                first_layer,
                min(at_once, layers.stop - first_layer),
            )
