"""`kvcanon lab reach`: what the cases of a check visit in the plain cache, by stage.

With `--native` it counts lines of the fast cache's core. With `--write` it writes the tables of
docs/limits.md anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from kvcanon import __version__
from kvcanon.conformance.check.plan import effort_named
from kvcanon.conformance.cli.options import MOST_SEED, AsJson, Jobs, Markdown
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, print_title, signs_of_life
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.kill_matrix import find_checkout
from kvcanon.lab.reach.branches import find_branches
from kvcanon.lab.reach.features import FeatureKind
from kvcanon.lab.reach.measure import LEAST, Measured, measure
from kvcanon.lab.reach.native import measure_native
from kvcanon.lab.reach.native_tables import NativeReach, native_tables
from kvcanon.lab.reach.tables import reach_tables
from kvcanon.lab.site.tables import with_tables

PAGE, MARK = "docs/limits.md", "<!-- made by kvcanon lab reach --write -->"
NATIVE_MARK = "<!-- made by kvcanon lab reach --native --write -->"
SEEDS = (0, 1, 2)
EFFORTS = ("quick", "standard")


def reach_command(
    *,
    seed: Annotated[
        list[int] | None,
        typer.Option(min=0, max=MOST_SEED, metavar="N", help="A seed; repeatable. Usual: 0, 1, 2."),
    ] = None,
    effort: Annotated[
        str, typer.Option(metavar="|".join(EFFORTS), help="How many cases to play.")
    ] = "quick",
    jobs: Jobs = None,
    as_json: AsJson = False,
    as_markdown: Markdown = False,
    write: Annotated[
        bool, typer.Option("--write", help=f"Write the tables of {PAGE}: quick, the usual seeds.")
    ] = False,
    native: Annotated[
        bool,
        typer.Option("--native", help="Count lines of the native core instead. Usual seed: 0."),
    ] = False,
) -> None:
    """Count what the cases of a check visit in the plain cache; needs the checkout."""
    checkout = find_checkout(Path.cwd())
    if effort not in EFFORTS:
        raise UsageError(f"no effort {effort!r} for reach; choose one of {', '.join(EFFORTS)}")
    if write and (seed or effort != "quick"):
        raise UsageError("--write is for quick effort and the usual seeds; leave the others out")
    if native:
        _native(checkout, seed or SEEDS[:1], effort, jobs or os.cpu_count() or 1, write=write)
        return
    with signs_of_life() as note:
        found = measure(seed or SEEDS, effort_named(effort), jobs or os.cpu_count() or 1, note)
    if write:
        text = with_tables(checkout, PAGE, MARK, [reach_tables(found)])
        (checkout / PAGE).write_text(text, "utf-8")
    elif as_json:
        print_json(_to_json(found))
    elif as_markdown:
        typer.echo("\n".join(reach_tables(found)))
    else:
        _print(found)


def _native(checkout: Path, seeds: Sequence[int], effort: str, jobs: int, *, write: bool) -> None:
    """Count lines of the native core. Exits with 1 if too many are not visited."""
    with signs_of_life() as note:
        lines = measure_native(checkout, seeds, effort_named(effort), jobs, note)
    found = NativeReach(lines)
    if write:
        text = with_tables(checkout, PAGE, NATIVE_MARK, [native_tables(found)])
        (checkout / PAGE).write_text(text, "utf-8")
    else:
        typer.echo("\n".join(native_tables(found)))
    if not found.reached:
        raise typer.Exit(1)


def _to_json(found: Measured) -> dict[str, Any]:
    seeds = {
        str(seed): {
            stage: {
                "cases": reach.cases,
                "pairs": len(reach.pairs),
                **{
                    kind: {
                        each.name: count
                        for each, count in sorted(reach.counts.items())
                        if each.kind is kind
                    }
                    for kind in FeatureKind
                },
            }
            for stage, reach in stages.items()
        }
        for seed, stages in found.by_seed.items()
    }
    branches = list(map(str, find_branches()))
    return {"kvcanon": __version__, "effort": found.effort, "branches": branches, "seeds": seeds}


def _print(found: Measured) -> None:
    out = ReportConsole()
    seeds = ", ".join(map(str, found.by_seed))
    print_title(out, "reach reference", f"{found.effort} effort, seeds {seeds}")
    for line in _lines(found):
        out.print(line, markup=False, soft_wrap=True)


def _lines(found: Measured) -> Iterator[str]:
    for seed, stages in found.by_seed.items():
        cases = ", ".join(f"{reach.cases:,} of {stage}" for stage, reach in stages.items())
        yield f"seed {seed}: {cases}; {len(found.pairs(seed)):,} pairs"
    seldom = found.seldom()
    of = len(find_branches())
    yield f"{of - len(seldom)} of {of} branches are visited in {LEAST} cases or more; the others:"
    yield from (f"{count:5}  {branch}" for branch, count in seldom)
    for kind in (
        FeatureKind.REFUSAL,
        FeatureKind.REASON,
        FeatureKind.SETTING,
        FeatureKind.SERVED,
        FeatureKind.LAW,
    ):
        yield f"{kind}:"
        yield from (f"{found.fewest(each):5}  {each.name}" for each in found.features(kind))
