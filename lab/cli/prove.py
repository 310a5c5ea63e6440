"""`kvcanon lab prove`: lets solvers prove the oracle functions that laws, reference and judge use.

"confirmed" holds for all inputs within the bounds in the table, and only for these. "not confirmed"
is neither a proof nor a counterexample.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kvcanon.conformance.cli.command_line import BROKEN
from kvcanon.conformance.cli.options import AsJson, Jobs, Markdown
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.prove.proof_run import BUDGET_S, chosen_claims, lines_of, refute_all, settle_all
from kvcanon.lab.prove.record import confirmed, lost, read_record, write_record
from kvcanon.lab.prove.report import (
    BAD,
    json_of,
    markdown_of,
    refutations_json,
    refutations_text,
    refutations_verdict,
    text_of,
    trouble_of,
    verdict_of,
)

WIDTH = 170
"""Columns of the table in a pipe; lines of contracts are long."""


def prove_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FUNCTION]...", help="Prove the claims about these functions only."
        ),
    ] = None,
    *,
    budget: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Most seconds for each line of a contract.")
    ] = BUDGET_S,
    jobs: Jobs = None,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Plant faults, and show that a claim refutes each."),
    ] = False,
    record: Annotated[
        bool,
        typer.Option("--record", help="Record what is confirmed; needs a checkout of kvcanon."),
    ] = False,
    markdown: Markdown = False,
    json: AsJson = False,
) -> None:
    """Prove the contracts of small functions, or find an input that refutes them."""
    if faults:
        _refute(names or [], budget, jobs or os.cpu_count() or 1, as_json=json)
        return
    if record and names:
        raise UsageError("--record records everything; leave the names of functions out")
    chosen = chosen_claims(names or [])
    lines = lines_of(chosen)
    with progress(lines, "contracts") as shown:
        answers = settle_all(lines, budget, jobs or os.cpu_count() or 1)
        proofs = [proof for proof, _ in zip(answers, shown, strict=True)]
    if record:
        write_record(proofs)
    recorded = read_record()
    named = {claim.name for claim in chosen} if names else None
    gone = lost(recorded, proofs, named)
    if markdown:
        typer.echo(markdown_of(chosen, proofs))
    elif json:
        print_json(json_of(proofs, gone))
    else:
        out = ReportConsole(WIDTH)
        for part in (*text_of(chosen, proofs), *trouble_of(proofs, gone)):
            out.print(part)
        out.print(verdict_of(proofs, gone, len(set(confirmed(proofs)) - set(recorded))))
    if gone or any(proof.verdict in BAD for proof in proofs):
        raise typer.Exit(BROKEN)


def _refute(names: list[str], budget: float, jobs: int, *, as_json: bool) -> None:
    chosen = chosen_claims(names)
    with progress(chosen, "faults") as shown:
        answers = refute_all(chosen, budget, jobs)
        refutations = [refutation for refutation, _ in zip(answers, shown, strict=True)]
    if as_json:
        print_json(refutations_json(refutations))
    else:
        out = ReportConsole(WIDTH)
        out.print(refutations_text(refutations))
        out.print(refutations_verdict(refutations))
    if any(each.mutant is None for each in refutations):
        raise typer.Exit(BROKEN)
