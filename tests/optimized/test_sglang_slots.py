"""The tables from rows of the tree to the token slots of an engine."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fast.nodes import FULL, made, prompt
from kvcanon.optimized._core import Rows, RowTable
from kvcanon.optimized.sglang.slot_table import (
    MOST_SLOTS,
    DeviceSlots,
    HostSlots,
    SlotTable,
    slot_table,
)
from kvcanon.spec.errors import BadArgument

SIZE = 16
"""Pages of each pool."""


def rows_of(*lengths: int, gone: int = 0) -> list[Rows]:
    """The rows of nodes of so many pages; node `gone`, if any, leaves before the last comes."""
    _, nodes = made(slots=SIZE)
    found: list[tuple[int, Rows]] = []
    for at, length in enumerate(lengths):
        if gone and at == len(lengths) - 1:
            nodes.evict_node(found[gone - 1][0], FULL)
        end = nodes.insert(prompt(*range(100 * at, 100 * at + length))).end
        found.append((end, nodes.slots(end)))
    return [rows for _, rows in found]


def tables(page_size: int, *, consecutive: bool = True) -> list[SlotTable]:
    """A table in the memory of the host, and one made of tensors."""
    return [
        HostSlots(SIZE, page_size),
        DeviceSlots(SIZE, page_size, "cpu", consecutive=consecutive),
    ]


@pytest.mark.parametrize(("page_size", "consecutive"), [(1, True), (4, True), (4, False)])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_what_is_put_is_found_by_row(
    page_size: int, dtype: torch.dtype, *, consecutive: bool
) -> None:
    """Rows have the slots that were put there, as 64-bit numbers of their own, page by page."""
    first, second, third = rows_of(3, 5, 4)
    # The last node's rows are in two places.
    *_, divided = rows_of(3, 5, 6, 5, gone=1)
    assert [len(rows.runs()) for rows in (first, second, third, divided)] == [1, 1, 1, 2]
    for table in tables(page_size, consecutive=consecutive):
        pages = torch.randperm(100)[:, None] * page_size + torch.arange(page_size)
        if not consecutive:
            pages = torch.randperm(400).reshape(pages.shape)
        slots = pages.reshape(-1).to(dtype)
        table.put(first, slots, 0)
        table.put(second, slots, 20)
        table.put(third, slots[: 34 * page_size], 30)
        expected = slots.clone()
        slots.zero_()
        for rows, at in ((first, 0), (second, 20), (third, 30)):
            found = table.get(rows)
            wanted = expected[at * page_size : (at + len(rows)) * page_size].tolist()
            assert (found.dtype, found.tolist()) == (torch.int64, wanted)
            found.zero_()
            assert table.get(rows).tolist() == wanted
        _, nodes = made()
        nothing = table.get(nodes.slots(nodes.root(), nodes.root()))
        assert (nothing.dtype, nothing.tolist()) == (torch.int64, [])
        table.put(divided, expected, 50)
        assert table.get(divided).tolist() == expected[50 * page_size : 55 * page_size].tolist()


def put(table: RowTable, rows: Rows, slots: NDArray[np.int64], first_page: int = 0) -> None:
    """Set the slots of rows."""
    table.put_parts([(first_page, rows)], torch.from_numpy(slots))


def read(table: RowTable, rows: Rows) -> list[int]:
    """The slots of rows."""
    numbers: list[int] = table.get(rows).tolist()
    return numbers


@pytest.mark.parametrize("page_size", [1, 2, 3, 16, 24])
@given(
    steps=st.lists(
        st.tuples(st.integers(1, 40), st.booleans(), st.integers(0, 2**31 - 2000)), max_size=30
    )
)
def test_each_row_has_what_was_put_there_last(
    page_size: int, steps: list[tuple[int, bool, int]]
) -> None:
    """Nodes come and go, with consecutive slots or not; each keeps its own."""
    _, nodes = made(slots=100)
    table = RowTable(100, page_size)
    kept: list[tuple[int, Rows, list[int]]] = []
    for at, (pages, consecutive, first) in enumerate(steps):
        while sum(len(rows) for _, rows, _ in kept) + pages > 100:
            nodes.evict_node(kept.pop(at % len(kept))[0], FULL)
        end = nodes.insert(prompt(*range(1000 * at, 1000 * at + pages))).end
        slots = np.arange(first, first + pages * page_size)
        if not consecutive:
            # The pages before that follow each other.
            slots[slots.size // 2 :] += 7
        rows = nodes.slots(end)
        put(table, rows, slots)
        kept.append((end, rows, slots.tolist()))
        assert [read(table, rows) for _, rows, _ in kept] == [wanted for *_, wanted in kept]


def test_a_page_is_scattered_alone_and_until_its_slots_are_consecutive() -> None:
    """A page that is no run costs the memory of its slots, and no longer than it is there."""
    (all_rows,) = rows_of(SIZE)
    for page_size in (1, 2, 8, 16, 32):
        table = RowTable(SIZE, page_size)
        wanted = np.arange(5, 5 + SIZE * page_size)
        # A page of one token is always a run.
        scattered = 0 if page_size == 1 else 1
        for _ in range(40):
            put(table, all_rows, wanted)
            assert table.scattered_pages == 0
            put(table, all_rows, wanted[::-1].copy())
            assert read(table, all_rows) == wanted[::-1].tolist()
            assert table.scattered_pages == SIZE * scattered
            one_off = wanted.copy()
            one_off[0] -= 1
            put(table, all_rows, one_off)
            assert read(table, all_rows) == one_off.tolist()
            assert table.scattered_pages == scattered


def test_the_largest_slot_is_kept() -> None:
    """Slots have 31 bits, also where a page begins or ends with the last one."""
    one, many = rows_of(1, SIZE - 1)
    most = 2**31 - 1
    for page_size in (1, 2):
        table, pages = RowTable(SIZE, page_size), (SIZE - 1) * page_size
        put(table, one, np.arange(most, most - page_size, -1))
        put(table, many, np.arange(most - pages + 1, most + 1))
        assert read(table, one) == list(range(most, most - page_size, -1))
        assert read(table, many) == list(range(most - pages + 1, most + 1))


def test_what_does_not_fit_is_refused() -> None:
    """Nothing is read or written beyond the table or the array, and nothing changes."""
    few, many = rows_of(2, 8)
    table = RowTable(4, 2)
    assert read(table, few) == [0, 0, 0, 0]
    put(table, few, np.array([4, 5, 10, 11]))
    for rows, slots, first_page, wrong in (
        (many, np.arange(16), 0, "rows: end at 10; the table has 4 rows"),
        (few, np.arange(3), 0, "slots: have 1 pages; the rows need 2 from page 0 on"),
        (few, np.arange(8), 3, "slots: have 4 pages; the rows need 2 from page 3 on"),
        (few, np.arange(8), -1, "from page -1 on"),
        (few, np.array([0, 1, 2, -1]), 0, "slots: must be integers in 0 .. 2147483647"),
        (few, np.array([0, 1, -1, 0]), 0, "slots: must be integers in 0 .. 2147483647"),
        (few, np.array([0, 1, 2, 2**31]), 0, "slots: must be integers in 0 .. 2147483647"),
        (few, np.array([2**31 - 3, 2**31 - 2, 2**31 - 1, 2**31]), 0, "slots: must be integers"),
    ):
        with pytest.raises(BadArgument, match=re.escape(wrong)):
            put(table, rows, slots, first_page)
    for tensor in (
        torch.arange(8)[::2],
        torch.arange(4, dtype=torch.int32),
        torch.arange(4.0),
        torch.arange(4).reshape(2, 2),
        torch.empty(4, dtype=torch.int64, device="meta"),
        np.arange(4),
    ):
        with pytest.raises(BadArgument, match="contiguous tensor of int64 on the CPU"):
            table.put_parts([(0, few)], tensor)  # type: ignore[arg-type] # One is no tensor.
    with pytest.raises(BadArgument, match="the table has 4 rows"):
        table.get(many)
    assert read(table, few) == [4, 5, 10, 11]
    for count, page_size in ((-1, 1), (1, 0), (1 << 30, 2)):
        with pytest.raises(BadArgument):
            RowTable(count, page_size)
    # So is a pool that 31 bits cannot number.
    with pytest.raises(ValueError, match="at most 2147483647"):
        slot_table(MOST_SLOTS, 2, "cpu")


def test_rows_of_several_nodes_are_set_at_once() -> None:
    """Each node has the slots of its own pages, which are copied, and none beyond the tensor."""
    first, second = rows_of(2, 3)
    table, slots = RowTable(SIZE, 2), torch.arange(100, 110)
    table.put_parts([(0, first), (2, second)], slots)
    slots.zero_()
    assert (read(table, first), read(table, second)) == ([100, 101, 102, 103], [*range(104, 110)])
    with pytest.raises(BadArgument, match="have 4 pages; the rows need 3 from page 2 on"):
        table.put_parts([(0, first), (2, second)], slots[:9])
    # A part of a larger tensor begins where it begins.
    table.put_parts([(1, second)], torch.arange(200, 220)[4:14])
    assert read(table, second) == [*range(206, 212)]


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_one_slot_out_of_order_is_found_wherever_it_is(page_size: int) -> None:
    """Slots that follow each other are looked at a stretch at a time, and none is skipped."""
    pages = 40 * 64 // page_size
    _, nodes = made(slots=pages)
    ((_, rows),) = nodes.insert(prompt(*range(pages))).full
    consecutive = np.arange(7, 7 + pages * page_size)
    table = RowTable(pages, page_size)
    # Also the last of a stretch alone.
    for at in (*range(0, len(consecutive) - 1, 37), *range(255, len(consecutive) - 1, 256)):
        slots = consecutive.copy()
        slots[[at, at + 1]] = slots[[at + 1, at]]
        put(table, rows, slots)
        assert read(table, rows) == slots.tolist()
        slots[at] = 2**31
        with pytest.raises(BadArgument, match="must be integers"):
            put(table, rows, slots)
    put(table, rows, consecutive)
    assert (table.scattered_pages, read(table, rows)) == (0, consecutive.tolist())


@pytest.mark.parametrize("change", ["del torch.Tensor.__dlpack_c_exchange_api__", "no_torch()"])
def test_a_torch_that_lends_no_tensors_is_named(change: str) -> None:
    """One that is too old, or none, is said when a table is made, not when a prompt is served."""
    code = f"""
import sys
import torch
from kvcanon.optimized._core import RowTable
def no_torch():
    sys.modules["torch"] = None
{change}
try:
    RowTable(4, 1)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch" in done.stdout
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="a sanitizer keeps what was freed")
def test_slots_are_freed_with_their_tensor() -> None:
    """The memory of slots goes with the tensor that has it."""
    (rows,) = rows_of(SIZE)
    table = RowTable(SIZE, 1 << 16)
    put(table, rows, np.arange(SIZE << 16))
    before = 0
    for turn in range(60):
        assert table.get(rows)[-1] == (SIZE << 16) - 1
        if turn == 10:
            before = resident_bytes()
    # Without that they would have taken 8 MiB each turn.
    assert resident_bytes() - before < 64 << 20


def resident_bytes() -> int:
    """The memory of this process."""
    return int(Path("/proc/self/statm").read_text("utf-8").split()[1]) * 4096


def test_a_node_is_no_object_of_python() -> None:
    """However many nodes a table has slots of, the garbage collector visits no more objects."""
    _, nodes = made(slots=1000)
    table = slot_table(1000, 1, "cpu")
    gc.collect()
    before = len(gc.get_objects())
    for at in range(300):
        ((_, rows),) = nodes.insert(prompt(at, at + 1)).full
        table.put(rows, torch.tensor([at, at + 1]))
    gc.collect()
    assert len(gc.get_objects()) - before < 20
