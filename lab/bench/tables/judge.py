"""Tables of `kvcanon lab bench judge`: steps a second, where time goes, and larger trees."""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.lab.bench.tables.table import DASH, RunFile, Table, table

AT_LEAST = {"inside": "300", "outside": "5,000"}
"""Steps a second that each way of judging must reach."""
PARTS = ("laws", "snapshot", "cache", "rest")


def judge_steps(files: Sequence[RunFile]) -> Table:
    """Steps a second, and the shares of their parts."""
    rows = []
    for name, level in files[0]["levels"].items():
        shares = (level["shares"][part] for part in PARTS)
        texts = (f"{each:.0%}".replace("%", " %") if each else DASH for each in shares)
        rows.append(
            (name, f"{level['steps_per_second']:,.0f}", AT_LEAST.get(name, DASH), *texts),
        )
    return table(("judged from", "steps/s", "at least", *PARTS), rows, "one run")


def judge_growth(files: Sequence[RunFile]) -> Table:
    """Microseconds a step, by the nodes of the tree."""
    levels = files[0]["levels"]
    sizes = [f"{cost['nodes']:,.0f} nodes" for cost in next(iter(levels.values()))["costs"]]
    rows = [
        (
            name,
            *(f"{cost['us_per_step']:,.0f}" for cost in level["costs"]),
            f"nodes^{level['growth']:.2f}",
        )
        for name, level in levels.items()
    ]
    return table(("us a step", *sizes, "grows with"), rows, "one run")
