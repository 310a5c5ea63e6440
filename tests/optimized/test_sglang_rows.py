"""The tables from rows of the tree to the token slots of an engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvcanon.optimized.sglang.rows import RowTable

Rows = np.ndarray[tuple[int], np.dtype[np.int32]]


def rows_of(*rows: int) -> Rows:
    """Rows as the native core gives them."""
    return np.array(rows, dtype=np.int32)


@pytest.mark.parametrize("rows", [(3,), (3, 4, 5), (5, 4, 3), (0, 2, 1, 3), (7, 1, 4)])
@pytest.mark.parametrize(("page_size", "consecutive"), [(1, True), (4, True), (4, False)])
def test_what_is_put_is_found_in_its_order(
    rows: tuple[int, ...], page_size: int, *, consecutive: bool
) -> None:
    """Rows in any order have the token slots that were put there, page by page."""
    table = RowTable(8, page_size, "cpu", consecutive=consecutive)
    pages = torch.randperm(100)[: len(rows), None] * page_size + torch.arange(page_size)
    if not consecutive:
        pages = torch.randperm(400)[: pages.numel()].reshape(pages.shape)
    table.put(rows_of(*rows), pages.reshape(-1))
    assert table.get(rows_of(*rows)).tolist() == pages.reshape(-1).tolist()
    for row, page in zip(rows, pages, strict=True):
        assert table.get(rows_of(row)).tolist() == page.tolist()


def test_what_is_found_does_not_change_with_the_table() -> None:
    """The answer is a copy: a later insert may give the same rows other slots."""
    table = RowTable(4, 1, "cpu", consecutive=True)
    table.put(rows_of(1, 2), torch.tensor([10, 20]))
    found = table.get(rows_of(1, 2))
    table.put(rows_of(1, 2), torch.tensor([30, 40]))
    assert found.tolist() == [10, 20]


def test_no_rows_are_no_slots() -> None:
    """Nothing is put and found for no rows."""
    table = RowTable(4, 2, "cpu", consecutive=True)
    table.put(rows_of(), torch.empty(0, dtype=torch.int64))
    assert table.get(rows_of()).tolist() == table.empty().tolist() == []
