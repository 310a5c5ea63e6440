"""The table of `make gpu` and `kvcanon lab bench gpu`: transfers between a GPU and its host.

`make gpu` runs where there is a GPU and nothing of the lab's environment, and writes one file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from attrs import evolve

from kvcanon.lab.bench.tables.table import RunFile, Table, table

HEADS = (
    *("model", "page", "KiB a page", "backup, in order", "load, in order", "in any order by"),
    *("backup", "load", "both", "first layer"),
)
_MODEL = "transfer "
_ORDERS = "in order", "any order"

Section: TypeAlias = Mapping[str, Any]


def gpu_transfers(files: Sequence[RunFile]) -> Table:
    """Speeds of transfers, as shares of that of the link."""
    sections = files[0]["sections"]
    environment, _ = sections["environment"], sections["link"]
    models = dict.fromkeys(
        name.removeprefix(_MODEL).removesuffix(f", {order}")
        for name in sections
        for order in _ORDERS
        if name.startswith(_MODEL) and name.endswith(f", {order}")
    )
    ways = [[sections[f"{_MODEL}{model}, {order}"] for order in _ORDERS] for model in models]
    rows = [_row(in_order, in_any) for in_order, in_any in ways]
    machine = (
        f"one {environment['device']['name']}, in a machine of {environment['cores']} cores; "
        f"torch {environment['torch']}, Triton {environment['triton']}"
    )
    return evolve(
        table(HEADS, rows, f"medians of {environment['repeats']} copies"), machine=machine
    )


def _row(in_order: Section, in_any: Section) -> list[str]:
    model = in_any["model"]
    return [
        f"{model['kind']}, {model['layers']} layers",
        str(model["page_size"]),
        f"{in_any['page_bytes'] / 1024:,.0f}",
        *(f"{in_order['shares'][name]:.2f}" for name in ("backup", "load")),
        in_any["way"],
        *(f"{in_any['shares'][name]:.2f}" for name in ("backup", "load", "both")),
        f"{_milliseconds(in_any['first_layer'])} of {_milliseconds(in_any['load_timing'])}",
    ]


def _milliseconds(timing: Mapping[str, float]) -> str:
    return f"{timing['median_seconds'] * 1e3:.1f}"
