"""Tables from rows to SGLang's token slots.

The tree numbers its pages by rows of its own. A table has the token slot of each row's page, on the
device of the slots, so that no call reads a device tensor: adopting scatters into the table, and a
match, a lock or an eviction gathers from it.

A page is usually a run of consecutive token slots, of which the table has the first. Where SGLang's
allocator gives out single tokens (`consecutive` is false) it has all slots of the page.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

Rows = NDArray[np.int32]


class RowTable:
    """The token slots of one component's pages on one medium.

    Args:
        rows: How many rows there are.
        page_size: Tokens a page; 1 for states.
        device: Where SGLang has its slots.
        consecutive: Whether each page is a run of token slots.
    """

    def __init__(
        self, rows: int, page_size: int, device: torch.device | str, *, consecutive: bool
    ) -> None:
        self.page_size = page_size
        self.width = 1 if consecutive else page_size
        shape = (rows,) if self.width == 1 else (rows, page_size)
        self.table = torch.zeros(shape, dtype=torch.int64, device=device)
        self._numbers: Rows = np.arange(rows, dtype=np.int32)
        self._offsets = torch.arange(page_size, dtype=torch.int64, device=device)

    def empty(self) -> torch.Tensor:
        """Token slots of no page."""
        return self.table.new_empty((0,))

    def put(self, rows: Rows, tokens: torch.Tensor) -> None:
        """Set the token slots of rows, in their order; `tokens` are whole pages of them."""
        if not rows.size:
            return
        if self.width == 1:
            firsts = tokens[:: self.page_size] if self.page_size > 1 else tokens
        else:
            firsts = tokens.reshape(-1, self.page_size)
        span = self._span(rows)
        if span is None:
            self.table[self._index(rows)] = firsts.to(self.table.device, torch.int64)
        else:
            self.table[span] = firsts

    def get(self, rows: Rows) -> torch.Tensor:
        """The token slots of rows, in their order: a new int64 tensor."""
        if not rows.size:
            return self.empty()
        span = self._span(rows)
        found = self.table[self._index(rows)] if span is None else self.table[span].clone()
        if self.page_size == 1:
            return found
        if self.width == 1:
            found = found[:, None] + self._offsets
        return found.reshape(-1)

    def _span(self, rows: Rows) -> slice | None:
        """Consecutive rows as a slice; None where they are not."""
        first, count = int(rows[0]), rows.size
        if rows.tobytes() != self._numbers[first : first + count].tobytes():
            return None
        return slice(first, first + count)

    def _index(self, rows: Rows) -> torch.Tensor:
        return torch.from_numpy(rows).to(self.table.device, torch.int64, non_blocking=True)
