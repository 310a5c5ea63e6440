"""`kvcanon prove`: what solvers say of the functions that laws, reference and judge rest on.

What readers get wrong: "confirmed" is said of all inputs within the bounds that the table names.
Beyond them nothing is said, and "not confirmed" says nothing at all.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from kvcanon.conformance.cli.check import BROKEN
from kvcanon.conformance.cli.options import AsJson, Jobs, Markdown
from kvcanon.conformance.cli.terminal import ReportConsole, print_json, progress
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.verify.prove.proof_run import (
    BUDGET_S,
    chosen_claims,
    lines_of,
    refute_all,
    settle_all,
)
from kvcanon.conformance.verify.prove.record import confirmed, lost, read_record, write_record
from kvcanon.conformance.verify.prove.report import (
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
"""Of the table in a pipe; a line of a contract is long."""


def prove_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FUNCTION]...", help="These functions, and what is claimed of them."
        ),
    ] = None,
    *,
    budget: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="Seconds for each line of a contract.")
    ] = BUDGET_S,
    jobs: Jobs = None,
    faults: Annotated[
        bool,
        typer.Option("--faults", help="Plant faults, and have them refuted by what is claimed."),
    ] = False,
    record: Annotated[
        bool, typer.Option("--record", help="Record what is confirmed; needs the checkout.")
    ] = False,
    markdown: Markdown = False,
    json: AsJson = False,
) -> None:
    """Prove the contracts of small functions, or refute them by an input."""
    if faults:
        _refute(names or [], budget, jobs or os.cpu_count() or 1, as_json=json)
        return
    if record and names:
        raise UsageError("--record records everything; name no function with it")
    chosen = chosen_claims(names or [])
    lines = lines_of(chosen)
    with progress(lines, "contracts") as shown:
        answers = settle_all(lines, budget, jobs or os.cpu_count() or 1)
        proofs = [proof for proof, _ in zip(answers, shown, strict=True)]
    if record:
        write_record(proofs)
    recorded = read_record()
    asked = {claim.name for claim in chosen} if names else None
    gone = lost(recorded, proofs, asked)
    if markdown:
        typer.echo(markdown_of(chosen, proofs))
    elif json:
        print_json(json_of(proofs, gone))
    else:
        out = _wide()
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
        out = _wide()
        out.print(refutations_text(refutations))
        out.print(refutations_verdict(refutations))
    if any(each.mutant is None for each in refutations):
        raise typer.Exit(BROKEN)


def _wide() -> ReportConsole:
    out = ReportConsole()
    if not out.is_terminal:
        out.width = WIDTH
    return out
