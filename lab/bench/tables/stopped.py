"""The table of `python -m kvcanon.lab.servers --stopped`: first tokens over a stopped store."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, name_of, table


def stopped_stores(files: Sequence[RunFile]) -> Table:
    """How long requests wait for their first token, and when the store is used again."""
    rows = []
    for file in files:
        for row in file["rows"]:
            back, found = row["back_seconds"], row["after_found"] + row["before_found"]
            asked = len(row["after"]) + len(row["before"])
            rows.append(
                (
                    f"{row['part']}, {name_of(row['core'])}",
                    _ms(row["unknown"]),
                    _ms(row["before"]),
                    _ms(row["stopped"]),
                    _ms(row["after"]),
                    DASH if back is None else f"{back:.1f} s",
                    f"{found} of {asked}",
                    f"{row['right']} of {row['replies']}",
                )
            )
    heads = (
        *("stopped, core", "not stored", "stored", "while it stands still", "once it is back"),
        *("back after", "from the store while it runs", "replies right"),
    )
    deadline = files[0]["deadline_seconds"]
    return table(
        heads,
        rows,
        f"times to the first token are medians and, in brackets, the most, in ms; the deadline is "
        f"{deadline * 1e3:,.0f} ms",
    )


def _ms(seconds: Sequence[float]) -> str:
    if not seconds:
        return DASH
    return f"{median(seconds) * 1e3:,.0f} ({max(seconds) * 1e3:,.0f})"
