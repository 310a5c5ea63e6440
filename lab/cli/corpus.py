"""`kvcanon lab corpus`: makes the corpus anew, from many drawn cases."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from kvcanon.conformance.check.plan import CORPUS_CASES
from kvcanon.conformance.cli.options import DrawSeed, Jobs
from kvcanon.conformance.cli.terminal import ReportConsole, signs_of_life
from kvcanon.conformance.corpus import FILE
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.mutants.kill_matrix import find_checkout
from kvcanon.lab.reach.corpus import corpus_text, make_corpus

DRAWN = 5_000


def corpus_command(
    *,
    cases: Annotated[int, typer.Option(min=1, metavar="N", help="Cases to draw.")] = DRAWN,
    seed: DrawSeed = 0,
    jobs: Jobs = None,
) -> None:
    """Draw many cases, and keep those that reach what few do; needs the checkout."""
    find_checkout(Path.cwd())
    with signs_of_life() as note:
        kept = make_corpus(cases, seed, CORPUS_CASES, jobs or os.cpu_count() or 1, note)
    if len(kept) < CORPUS_CASES:
        raise UsageError(
            f"of {cases:,} cases only {len(kept)} reach what few do, and the corpus has "
            f"{CORPUS_CASES}; draw more with --cases. It is as it was"
        )
    FILE.write_text(corpus_text(kept), "utf-8")
    ReportConsole().print(f"{len(kept)} cases in {FILE}", markup=False, soft_wrap=True)
