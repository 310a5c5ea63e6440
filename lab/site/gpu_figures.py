"""Keeps the figures of `make gpu` in lab/bench/measured, of which a table of the docs is made.

`make gpu` runs where there is a GPU and nothing of the lab's environment, and writes one file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.site.measured import FOLDER

TRANSFERS = FOLDER / "gpu_transfers.json"
HEADS = (
    *("model", "page", "KiB a page", "backup, in order", "load, in order", "in any order by"),
    *("backup", "load", "both", "first layer"),
)
_MODEL = "transfer "
_ORDERS = "in order", "any order"


def keep_transfers(found: Path, checkout: Path) -> None:
    """Write what `make gpu` found of transfers. Raises: UsageError: it is not all there."""
    try:
        value = json.loads(found.read_text("utf-8"))
        kept = transfers_of(value["sections"])
    except (OSError, ValueError) as error:
        raise UsageError(f"{found} cannot be read: {error}") from error
    except KeyError as error:
        raise UsageError(f"{found} lacks {error}; run `make gpu` again, to its end") from error
    except (AttributeError, TypeError) as error:
        raise UsageError(f"{found} is no file that `make gpu` writes; name that one") from error
    head = {name: each for name, each in kept.items() if name != "rows"}
    lines = [f" {json.dumps(name)}: {json.dumps(each)}," for name, each in head.items()]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in kept["rows"])
    text = "\n".join(["{", *lines, ' "rows": [', rows, " ]", "}\n"])
    (checkout / TRANSFERS).write_text(text, "utf-8")


def transfers_of(sections: Mapping[str, Any]) -> dict[str, Any]:
    """The table of transfers as it is kept. Raises: KeyError: a section is missing."""
    environment, _ = sections["environment"], sections["link"]
    models = dict.fromkeys(
        name.removeprefix(_MODEL).removesuffix(f", {order}")
        for name in sections
        for order in _ORDERS
        if name.startswith(_MODEL) and name.endswith(f", {order}")
    )
    if not models:
        raise KeyError("any section of transfers")
    ways = [[sections[f"{_MODEL}{model}, {order}"] for order in _ORDERS] for model in models]
    return {
        "question": "How fast are pages moved between a GPU and its host?",
        "command": "make gpu",
        "machine": (
            f"one {environment['device']['name']}, in a machine of {environment['cores']} cores; "
            f"torch {environment['torch']}, Triton {environment['triton']}"
        ),
        "figures_are": f"medians of {environment['repeats']} copies",
        "old": "",
        "heads": list(HEADS),
        "rows": [_row(in_order, in_any) for in_order, in_any in ways],
    }


def _row(in_order: Mapping[str, Any], in_any: Mapping[str, Any]) -> list[str]:
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
