"""The tables from nodes of the tree to the token slots of an engine."""

from __future__ import annotations

import pytest
import torch

from kvcanon.optimized.sglang.slot_table import MOST_SLOTS, SlotTable


def test_what_is_put_is_found_by_node() -> None:
    """A node has the slots that were put there, as 64-bit numbers, and a path has them in order."""
    table = SlotTable(8, 2, "cpu")
    table.put(7, torch.tensor([4, 5, 10, 11]))
    table.put(9, torch.tensor([2, 3]))
    assert table.get(7).tolist() == [4, 5, 10, 11]
    assert table.get(7).dtype is torch.int64
    assert table.of_path([9, 7]).tolist() == [2, 3, 4, 5, 10, 11]
    assert table.of_path([9]).tolist() == [2, 3]
    assert table.of_path([]).tolist() == []
    assert table.lengths() == {7: 4, 9: 2}
    assert table.take(7).tolist() == [4, 5, 10, 11]
    assert 7 not in table
    with pytest.raises(KeyError, match="7"):
        table.get(7)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_is_put_and_found_are_copies(dtype: torch.dtype) -> None:
    """Neither the caller's tensor nor an answer shares memory with the table."""
    table = SlotTable(4, 1, "cpu")
    given = torch.tensor([1, 2], dtype=dtype)
    table.put(5, given)
    given.zero_()
    found = table.get(5)
    found.zero_()
    table.of_path([5]).zero_()
    assert table.get(5).tolist() == [1, 2]


def test_a_cut_divides_the_slots() -> None:
    """The upper part has the first pages, and the lower keeps the rest under its own handle."""
    table = SlotTable(4, 2, "cpu")
    table.put(5, torch.tensor([2, 3, 6, 7, 4, 5]))
    table.cut(8, 5, 1)
    assert table.get(8).tolist() == [2, 3]
    assert table.get(5).tolist() == [6, 7, 4, 5]
    table.cut(9, 6, 1)
    assert 9 not in table


def test_slots_that_need_more_bits_are_refused() -> None:
    """A pool that 31 bits cannot number is refused when the table is made."""
    with pytest.raises(ValueError, match="at most 2147483647"):
        SlotTable(MOST_SLOTS, 2, "cpu")
