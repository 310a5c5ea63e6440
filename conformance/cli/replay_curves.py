"""The report of a replay with several sizes and policies: a table, and the hit rate by size."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.comparison import ComparedRun, by_series
from kvcanon.conformance.replay.workload import Workload

BAR = 24
"""Letters of a bar for a hit rate of 1."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
"""Colours that colour-blind readers can tell apart (Okabe and Ito)."""
MARKS = "os^Dvx"


def print_comparison(
    cache: str, workload: Workload, runs: Sequence[ComparedRun], notes: Sequence[str]
) -> None:
    """Print a row for each run."""
    out = ReportConsole()
    print_title(out, f"replay {cache}", f"{workload}, seed {workload.seed}")
    for series, here in by_series(runs).items():
        out.print(Padding(Text(series, "bold"), (0, 0, 0, 2)))
        table = figures_table("pool, tokens", "hit rate", "on device", "load-back", "rejected")
        table.add_column(justify="left")
        for run in here:
            result = run.result
            prompts = max(1, result.prompt_tokens)
            table.add_row(
                str(run.sizes.pool),
                f"{result.hit_rate:.4f}",
                f"{result.device_hit_tokens / prompts:.4f}",
                f"{result.host_hit_tokens / prompts:.4f}",
                f"{result.rejected:,}",
                Text("#" * round(BAR * result.hit_rate), "cyan"),
            )
        out.print(Padding(table, (0, 0, 1, 2)))
    for note in notes:
        out.print(f"{note}.")
    out.print("Not judged. Requests are served one after the other: real engines overlap them.")


def require_matplotlib() -> None:
    """Check that curves can be drawn. Raises: UsageError."""
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed; install kvcanon[plot]")


def draw_curves(path: Path, title: str, runs: Sequence[ComparedRun]) -> None:
    """Draw the hit rate by the size of the device pool, a line for each policy and host tier.

    Raises: UsageError, OSError.
    """
    # matplotlib is an extra, so only a run with --plot imports it.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(9, 5.2), layout="constrained")
    axes = figure.subplots()
    for number, (series, here) in enumerate(by_series(runs).items()):
        sizes = [run.config.device_slots.full * run.config.page_size for run in here]
        axes.plot(
            sizes,
            [run.result.hit_rate for run in here],
            color=COLOURS[number % len(COLOURS)],
            marker=MARKS[number % len(MARKS)],
            label=series,
        )
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel("device pool, tokens")
    axes.set_ylabel("share of prompt tokens that hit")
    axes.set_title(title, loc="left")
    axes.grid(visible=True, color="#888888", alpha=0.25)
    axes.legend(frameon=False)
    try:
        figure.savefig(path)
    except ValueError as error:
        raise UsageError(f"--plot {path}: {error}") from None
