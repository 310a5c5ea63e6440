"""A table of figures, and how figures are written in one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from attrs import frozen

RunFile: TypeAlias = Mapping[str, Any]
"""What a bench wrote with `--json`."""
DASH = "-"
"""A figure that was not measured."""
NAMES = {
    "sglang-rust": "SGLang 0.5.23, Rust core",
    "sglang-python": "SGLang 0.5.23, Python core",
    "vllm": "vLLM 0.33.0",
    "rust": "SGLang 0.5.23, Rust core",
    "python": "SGLang 0.5.23, Python core",
}
"""What the docs call a cache or a core, where that is not its name on the command line."""


@frozen
class Table:
    """A table, and of what its figures are the median, the least or the most."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    figures_are: str
    machine: str = ""
    """Where they are of more than the machine that ran the command, as of a GPU."""


MakeTable: TypeAlias = Callable[[Sequence[RunFile]], Table]
"""Makes a table of its files. Raises: KeyError, IndexError: a file lacks what the table shows."""


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], figures_are: str) -> Table:
    """A table. Raises: KeyError: nothing of it was measured."""
    if not rows:
        raise KeyError("any of its rows")
    return Table(tuple(heads), tuple(map(tuple, rows)), figures_are)


def name_of(cache: str) -> str:
    """What the docs call a cache or a core."""
    return NAMES.get(cache, cache)


def us(value: float, *, whole_from: float = 100) -> str:
    """A time with one digit after the point, and with none if it is long."""
    return f"{value:,.0f}" if value >= whole_from else f"{value:,.1f}"


def ratio(value: float) -> str:
    """A ratio in three digits, or more if it is large."""
    return f"{value:.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def share(value: float, digits: int = 4) -> str:
    """A share below 1, without the 0 before its point."""
    return f"{value:.{digits}f}".removeprefix("0")


def rounds_of(count: int) -> str:
    """Of what figures are the medians."""
    return "one round" if count == 1 else f"medians of {count} rounds"
