"""Fills an index with many records at once, so that a million pages are a matter of seconds."""

from __future__ import annotations

from array import array

import numpy as np

from kvcanon.disk.index import NONE, PageIndex
from kvcanon.disk.records import NO_NAME, Records


def filled_index(records: Records, pools: int) -> PageIndex:
    """The index of pages in the order of their use. None of them is proved."""
    names: list[bytes] = records["name"].tolist()
    parents: list[bytes] = records["parent"].tolist()
    entries = {name: number for number, name in enumerate(dict.fromkeys(names))}
    for name in dict.fromkeys(parents):
        if name != NO_NAME:
            entries.setdefault(name, len(entries))
    own = np.array([entries[name] for name in names], np.int64)
    above = np.array([entries.get(name, NONE) for name in parents], np.int64)
    above[above == own] = NONE
    parent_of = np.full(len(entries), NONE, np.int64)
    parent_of[own] = above
    children = np.bincount(parent_of[parent_of != NONE], minlength=len(entries))
    columns = np.zeros((len(entries), pools), records.dtype)
    columns[own, records["pool"]] = records
    held = np.bincount(own, minlength=len(entries))
    used = np.zeros(len(entries), np.int64)
    used[own] = np.arange(1, len(records) + 1)
    is_leaf = (held > 0) & (children == 0)
    numbers = np.flatnonzero(is_leaf)
    numbers = numbers[np.argsort(used[numbers])]
    return PageIndex(
        pools=pools,
        entries=entries,
        names=list(entries),
        records=bytearray(columns.tobytes()),
        proved=bytearray(len(entries) * pools),
        held=bytearray(held.astype(np.uint8).tobytes()),
        parents=array("q", parent_of.tolist()),
        children=array("q", children.tolist()),
        used=array("q", used.tolist()),
        clock=len(records),
        # Times that only grow are a heap.
        leaves=list(zip(used[numbers].tolist(), numbers.tolist(), strict=True)),
        queued=bytearray(is_leaf.astype(np.uint8).tobytes()),
        count=len(records),
    )
