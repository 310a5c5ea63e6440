"""`kvcanon lab bench gpu`: checks and times page copies between a GPU and its host.

Gigabytes a second depend on the machine. Compare shares instead: each rate is also given as a share
of what one large copy reached over the same link in the same run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.errors import UsageError, describe_exception

# The judge loads the optimized cache by name, as it loads any cache.
BENCH = "kvcanon.lab.bench.gpu.bench"


class GpuSheet(Protocol):
    """A table to print, with a caption."""

    @property
    def caption(self) -> str:
        """What the table shows."""

    @property
    def headings(self) -> tuple[str, ...]:
        """One heading for each column."""

    @property
    def rows(self) -> tuple[tuple[str, ...], ...]:
        """The cells, row by row."""


class GpuBench(Protocol):
    """The measurements on one GPU."""

    device: str

    def sections(self) -> Mapping[str, Callable[[], object]]:
        """The measurements by name; each returns a value for JSON."""

    def sheets(self) -> Iterable[GpuSheet]:
        """Tables of everything measured so far."""


class BenchModule(Protocol):
    """The module with the measurements."""

    def bench_on_gpu(self, transfer_bytes: int) -> GpuBench:
        """Make the bench. Raises: RuntimeError: there is no GPU."""

    def is_wrong(self, error: Exception) -> bool:
        """Whether the error is a wrong copy."""


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
            except Exception as error:  # noqa: BLE001  # The other sections still run.
                errors[name] = describe_exception(error)
                wrong = wrong or module.is_wrong(error)
            if json_file is not None:
                # Written after each section, so that a run that is cut short keeps its results.
                value = {"kvcanon": __version__, "errors": errors, "sections": found}
                json_file.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    _print(bench, errors)
    if wrong:
        return BROKEN
    if errors:
        raise UsageError(f"not everything could be measured: {'; '.join(errors)}")
    return 0


def _bench(transfer_bytes: int) -> tuple[BenchModule, GpuBench]:
    """Load the bench of the optimized cache. Raises: UsageError, which says what is missing."""
    try:
        module = cast("BenchModule", import_module(BENCH))
    except ImportError as error:
        raise UsageError(f"bench gpu needs the optimized cache: {error}") from error
    try:
        return module, module.bench_on_gpu(transfer_bytes)
    except RuntimeError as error:
        raise UsageError(f"bench gpu needs a GPU: {error}") from error


def _print(bench: GpuBench, errors: Mapping[str, str]) -> None:
    out = ReportConsole()
    print_title(out, "bench gpu", f"{bench.device}, kvcanon {__version__}")
    for sheet in bench.sheets():
        table = figures_table(*sheet.headings)
        for row in sheet.rows:
            table.add_row(*row)
        out.print()
        out.print(sheet.caption, style="dim")
        out.print(table)
    for name, error in errors.items():
        out.print(Text.assemble((f"{name}: ", "bold red"), error))
