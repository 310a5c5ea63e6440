"""`kvcanon bench gpu`: how fast pages move between a GPU and its host, and whether they arrive.

What readers get wrong: gigabytes a second say more about the machine than about the cache. What is
to be compared is the share of what the same link gave to one large copy in the same run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer
from rich.table import Table
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.cli.terminal import ReportConsole, progress
from kvcanon.conformance.errors import UsageError, describe_exception

# The judge reaches the fast cache by name, as it would reach a stranger's.
BENCH = "kvcanon.optimized.measuring.bench"

BROKEN = 1


class GpuSheet(Protocol):
    """A table to print, with a line that says what is in it."""

    @property
    def caption(self) -> str:
        """That line."""

    @property
    def headings(self) -> tuple[str, ...]:
        """One for each column."""

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells."""


class GpuBench(Protocol):
    """What can be measured."""

    device: str

    def sections(self) -> Mapping[str, Callable[[], object]]:
        """By name; each gives a value that JSON has."""

    def sheets(self) -> Iterable[GpuSheet]:
        """What was measured so far."""


class BenchModule(Protocol):
    """The module that measures."""

    def bench_on_gpu(self, transfer_bytes: int) -> GpuBench:
        """A bench, where there is a GPU."""

    def is_wrong(self, error: Exception) -> bool:
        """Whether a copy was wrong."""


def bench_gpu(
    *,
    transfer_mib: Annotated[
        int, typer.Option("--transfer-mib", min=1, metavar="N", help="Size of each transfer.")
    ] = 1024,
    json_file: Annotated[
        Path | None,
        typer.Option(
            "--json", dir_okay=False, writable=True, metavar="FILE", help="Write JSON there too."
        ),
    ] = None,
) -> int:
    """Check and time the copies between a GPU and its host; takes about three minutes."""
    module, bench = _bench(transfer_mib << 20)
    found: dict[str, object] = {}
    errors: dict[str, str] = {}
    wrong = False
    sections = bench.sections()
    with progress(list(sections), "bench gpu") as shown:
        for name in shown:
            try:
                found[name] = sections[name]()
            except Exception as error:  # noqa: BLE001 (what else there is to measure is measured)
                errors[name] = describe_exception(error)
                wrong = wrong or module.is_wrong(error)
            if json_file is not None:
                # After each section: a run that is cut short keeps what it had.
                value = {"kvcanon": __version__, "errors": errors, "sections": found}
                json_file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    _print(bench, errors)
    if wrong:
        return BROKEN
    if errors:
        raise UsageError(f"not everything could be measured: {'; '.join(errors)}")
    return 0


def _bench(transfer_bytes: int) -> tuple[BenchModule, GpuBench]:
    """The bench of the fast cache. Raises: UsageError, in words that say what is missing."""
    try:
        module = cast("BenchModule", import_module(BENCH))
    except ImportError as error:
        raise UsageError(f"bench gpu needs the fast cache: {error}") from error
    try:
        return module, module.bench_on_gpu(transfer_bytes)
    except RuntimeError as error:
        raise UsageError(f"bench gpu needs a GPU: {error}") from error


def _print(bench: GpuBench, errors: Mapping[str, str]) -> None:
    out = ReportConsole()
    out.print(Text.assemble(("bench gpu", "bold cyan"), f"  {bench.device}, kvcanon {__version__}"))
    for sheet in bench.sheets():
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for at, heading in enumerate(sheet.headings):
            table.add_column(heading, justify="right" if at else "left", no_wrap=True)
        for row in sheet.rows:
            table.add_row(*row)
        out.print()
        out.print(sheet.caption, style="dim")
        out.print(table)
    for name, error in errors.items():
        out.print(Text.assemble((f"{name}: ", "bold red"), error))
