"""All that only a GPU shows, with torch, Triton, NumPy and attrs alone: what `make gpu` runs.

`kvcanon lab bench gpu` does the same in an installed checkout, with tables. This needs no package
that a machine for GPUs lacks, and prints a line a section. It writes one file, of JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kvcanon.lab.bench.gpu.bench import Bench, bench_on_gpu
from kvcanon.lab.bench.gpu.run import run_sections
from kvcanon.optimized.copy_plan import MIB

TRANSFER_BYTES = 1024 * MIB


def main(file: Path) -> int:
    """Run everything, and write it to a file. Returns 0; 1 for wrong bytes, 2 for what failed."""
    try:
        bench = bench_on_gpu(TRANSFER_BYTES)
    except RuntimeError as error:
        print(f"make gpu needs a GPU: {error}", file=sys.stderr)  # noqa: T201
        return 2
    sections = bench.sections()
    outcome = run_sections(sections, _said(list(sections)), file, "make gpu")
    _print(bench)
    for name, why in outcome.errors.items():
        print(f"{name}: {why}", file=sys.stderr)  # noqa: T201
    if outcome.wrong:
        return 1
    return 2 if outcome.errors else 0


def _said(names: list[str]) -> Iterator[str]:
    for at, name in enumerate(names, start=1):
        print(f"{at} of {len(names)}: {name}", flush=True)  # noqa: T201
        yield name


def _print(bench: Bench) -> None:
    print(bench.device)  # noqa: T201
    for sheet in bench.sheets():
        print(f"\n{sheet.caption}")  # noqa: T201
        for row in (sheet.headings, *sheet.rows):
            print("  ".join(row))  # noqa: T201


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
