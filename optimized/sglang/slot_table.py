"""Tables from rows of the tree to SGLang's token slots.

The native tree numbers its pages by rows, and knows which rows a node has. A table has the slots of
each row's page, on the device of the slots, so that no call reads a device tensor. No Python object
belongs to a node: a tree of 100,000 prompts gives the garbage collector nothing to visit.

Slots have 32 bits there and 64 bits in SGLang. A pool has fewer than 2**31 slots.
"""

from __future__ import annotations

from typing import TypeAlias

import torch

from kvcanon.optimized._core import Rows, RowTable

MOST_SLOTS = (1 << 31) - 1
INT64 = torch.int64


class HostSlots:
    """The token slots of one component, by row, where SGLang has them in the memory of the host.

    Args:
        pages: How many pages the pool has.
        page_size: Tokens a page; 1 for states.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        self.rows, self.page_size = pages, page_size
        self.nothing = torch.empty((0,), dtype=torch.int64)
        """Token slots of no row; shared, and never written."""
        self.table: RowTable | None = RowTable(pages, page_size)
        self._put, self.get = self.table.put_parts, self.table.get

    def put(self, rows: Rows, tokens: torch.Tensor, first_page: int = 0) -> None:
        """Set the token slots of rows, from the whole pages of `tokens` as of `first_page`."""
        self.put_parts([(first_page, rows)], tokens)

    def put_parts(self, parts: list[tuple[int, Rows]], tokens: torch.Tensor) -> None:
        """Set the token slots of several rows, each with the first of its pages in `tokens`."""
        # Asked first: to convert what has the type takes longer than all the rest.
        if tokens.dtype is not INT64:
            tokens = tokens.to(INT64)
        self._put(parts, tokens.contiguous())


class DeviceSlots:
    """As `HostSlots`, where SGLang has them on a device.

    Of each page a tensor has the first slot, or all where they are not consecutive.

    Args:
        pages: How many pages the pool has.
        page_size: Tokens a page; 1 for states.
        device: Where SGLang has its slots.
        consecutive: Whether each page is a run of consecutive slots.
    """

    def __init__(
        self, pages: int, page_size: int, device: torch.device | str, *, consecutive: bool
    ) -> None:
        self.table: RowTable | None = None
        # With rows to spare nodes find consecutive ones, which are read as one slice.
        self.rows, self.page_size = pages + pages // 2, page_size
        self.nothing = torch.empty((0,), dtype=torch.int64, device=device)
        self._width = 1 if consecutive else page_size
        self._slots = torch.zeros((self.rows, self._width), dtype=torch.int32, device=device)
        self._offsets = torch.arange(page_size, device=device)

    def put(self, rows: Rows, tokens: torch.Tensor, first_page: int = 0) -> None:
        """Set the token slots of rows, from the whole pages of `tokens` as of `first_page`."""
        size, at = self.page_size, first_page
        for row, count in rows.runs():
            pages = tokens[at * size : (at + count) * size].reshape(count, size)
            self._slots[row : row + count] = pages[:, : self._width]
            at += count

    def put_parts(self, parts: list[tuple[int, Rows]], tokens: torch.Tensor) -> None:
        """Set the token slots of several rows, each with the first of its pages in `tokens`."""
        for first_page, rows in parts:
            self.put(rows, tokens, first_page)

    def get(self, rows: Rows) -> torch.Tensor:
        """The token slots of rows, in their order: a new tensor."""
        parts = [self._slots[row : row + count] for row, count in rows.runs()]
        if not parts:
            return self.nothing
        slots = parts[0] if len(parts) == 1 else torch.cat(parts)
        if self._width == self.page_size:
            return slots.reshape(-1).long()
        return (slots + self._offsets).view(-1)


SlotTable: TypeAlias = HostSlots | DeviceSlots


def slot_table(
    pages: int, page_size: int, device: torch.device | str, *, consecutive: bool = True
) -> SlotTable:
    """Make a table for a pool. Raises: ValueError, where 31 bits cannot number its slots."""
    if pages * page_size > MOST_SLOTS:
        raise ValueError(f"a pool of {pages * page_size} slots; at most {MOST_SLOTS}")
    if torch.device(device).type == "cpu":
        return HostSlots(pages, page_size)
    return DeviceSlots(pages, page_size, device, consecutive=consecutive)
