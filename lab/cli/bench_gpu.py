"""`kvcanon lab bench gpu`: checks and times page copies between a GPU and its host.

Gigabytes a second depend on the machine. Compare shares instead: each rate is also given as a share
of what one large copy reached over the same link in the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kvcanon import __version__
from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.terminal import ReportConsole, figures_table, print_title, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.cli.bench_options import JsonFile

if TYPE_CHECKING:
    from kvcanon.lab.bench.gpu.bench import Bench


def bench_gpu(
    *,
    transfer_mib: Annotated[
        int, typer.Option("--transfer-mib", min=1, metavar="N", help="Size of each transfer.")
    ] = 1024,
    json_file: JsonFile = None,
) -> int:
    """Check and time the copies between a GPU and its host; takes about five minutes."""
    try:
        # The extra `optimized` may be missing, and the other commands work without it.
        from kvcanon.lab.bench.gpu.bench import bench_on_gpu  # noqa: PLC0415
        from kvcanon.lab.bench.gpu.run import run_sections  # noqa: PLC0415

        bench = bench_on_gpu(transfer_mib << 20)
    except ImportError as error:
        raise UsageError(f"bench gpu needs the optimized cache: {error}") from error
    except RuntimeError as error:
        raise UsageError(f"bench gpu needs a GPU: {error}") from error
    sections = bench.sections()
    with progress(list(sections), "bench gpu") as shown:
        outcome = run_sections(sections, shown, json_file)
    _print(bench, outcome.errors)
    if outcome.wrong:
        return BROKEN
    if outcome.errors:
        raise UsageError(f"not everything could be measured: {'; '.join(outcome.errors)}")
    return 0


def _print(bench: Bench, errors: Mapping[str, str]) -> None:
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
