"""Tables of `kvcanon lab bench cliffs`: the slowest single calls, by the nodes of the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, table, us

Call: TypeAlias = Mapping[str, Any]

LITTLE = {
    ("wide", "insert"): "insert, all nodes children of the root",
    ("wide", "match"): "match of a leaf",
    ("wide", "lock"): "lock of a leaf, a receipt for each node",
    ("wide", "unlock"): "unlock",
    ("wide", "evict"): "`evict(1)`",
    ("touched", "evict"): "`evict(1)` after all leaves were used again",
    ("chains", "evict"): "`evict(1)` in chains of 1,000 nodes",
    ("fragments", "match that cuts"): "match that cuts a prompt of scattered slots",
    ("windows", "evict window"): "eviction of a window slot",
    ("windows", "evict state"): "eviction of a mamba state",
    ("full_host", "evict"): "`evict(1)` under write_back, host full",
    ("duplicates", "evict_host"): "`evict_host(1)`, all duplicates",
    ("windows_write_back", "evict window"): "window slot under write_back, host full",
    ("policies", "evict"): "`evict(1)`, host full, each policy",
    ("locked_host", "insert"): "insert, backups declined",
    ("fetched", "insert_host"): "insert_host",
    ("fetched", "load_back"): "load_back to a full device",
    ("idle_polls", "poll, nothing ended"): "poll, as many copies in flight as nodes",
    ("namespaces", "namespace"): "a namespace for each node",
}
"""Calls that name little: what the table calls each, by scene and operation."""
MUCH = {
    ("wide", "evict many"): "wide: evict",
    ("wide", "reset"): "wide: reset",
    ("full_host", "evict many"): "full_host: evict, write_back, host full",
    ("duplicates", "poll, all done"): "duplicates: poll, all loads done",
    ("failures", "poll, all failed"): "failures: poll, all copies failed",
    ("failures", "poll, some failed"): "failures: poll, one copy in 1,000 failed",
    ("pending", "take_events"): "pending: take_events",
    ("growing", "insert"): "growing: insert page by page",
    ("growing", "take_events"): "growing: take_events of it",
    ("shrinking", "match"): "shrinking: match of all",
    ("second_hit", "insert, second hit"): "second_hit: insert, second hit",
    ("failing_chain", "poll, first failed"): "failing_chain: poll, first failed",
    ("failing_chain", "poll, chain failed"): "failing_chain: poll, all failed",
}
"""Calls that name much."""


def little(files: Sequence[RunFile]) -> Table:
    """Calls that name little."""
    are = "p50 / p99.9 / most, of the calls of one run"
    return _by_nodes(files, "calls that name little", LITTLE, _quantiles, are)


def much(files: Sequence[RunFile]) -> Table:
    """Calls that name much: the longest, in milliseconds, and how much it named."""
    are = "the longest call of one run, for what it names"
    return _by_nodes(files, "calls that name much", MUCH, _longest, are)


def _by_nodes(
    files: Sequence[RunFile],
    head: str,
    labels: Mapping[tuple[str, str], str],
    figure: Callable[[Call], str],
    figures_are: str,
) -> Table:
    found = {
        (each["scene"], each["operation"], size): each
        for file in files
        for size, calls in file["nodes"].items()
        for each in calls
    }
    sizes = sorted({size for _, _, size in found}, key=int)
    rows = []
    for call, label in labels.items():
        measured = [found.get((*call, size)) for size in sizes]
        if any(measured):
            rows.append((label, *(DASH if each is None else figure(each) for each in measured)))
    return table((head, *(f"{int(size):,}" for size in sizes)), rows, figures_are)


def _quantiles(call: Call) -> str:
    return " / ".join(us(call[name], whole_from=10) for name in ("p50_us", "p999_us", "max_us"))


def _longest(call: Call) -> str:
    return f"{call['worst_us'] / 1000:,.1f} for {call['worst_named']:,}"
