"""`kvcanon lab bench tree --plot`: the figure of a contest as SVG, if matplotlib is installed."""

from __future__ import annotations

from importlib.util import find_spec

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.bench.contest import ContestOutcome
from kvcanon.lab.bench.panels import contest_panels


def require_matplotlib() -> None:
    """Check that figures can be drawn. Raises: UsageError."""
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib, which is not installed; install kvcanon[plot]")


def plot(outcome: ContestOutcome, subtitle: str) -> str:
    """Return the figure, as SVG. Raises: UsageError: matplotlib is not installed."""
    require_matplotlib()
    # matplotlib is an extra, so only a run with --plot imports it.
    from kvcanon.lab.bench.figure import draw_figure  # noqa: PLC0415

    return draw_figure("Prefix caches, side by side", subtitle, contest_panels(outcome))
