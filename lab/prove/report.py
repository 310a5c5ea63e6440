"""Proofs as text, as JSON and as tables of the docs.

Times are of one core. The bounds are the claim; the time only shows whether they can be widened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from attrs import asdict
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kvcanon.lab.prove.claim import Claim, ClaimKind
from kvcanon.lab.prove.proof_run import ANSWERED, Refutation
from kvcanon.lab.prove.record import Confirmed
from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver

HEADINGS = {
    ClaimKind.CONTRACT: "Contracts of the oracle functions",
    ClaimKind.EQUIVALENCE: "Oracle functions against second definitions",
    ClaimKind.PROPERTY: "Properties of several oracle functions",
    ClaimKind.STEP: "Steps: a law that holds before an allowed operation holds after it",
}

STYLES = {
    ProofVerdict.CONFIRMED: "green",
    ProofVerdict.NOT_CONFIRMED: "yellow",
    ProofVerdict.REFUTED: "bold red",
    ProofVerdict.UNREACHABLE: "bold red",
}
BAD = {ProofVerdict.REFUTED, ProofVerdict.UNREACHABLE}


def text_of(chosen: Sequence[Claim], proofs: Sequence[Proof]) -> Iterator[RenderableType]:
    """The table: function, contract, bound, verdict, solver and time."""
    for kind, of_kind in groupby(chosen, lambda claim: claim.kind):
        names = {claim.name for claim in of_kind}
        yield Text(HEADINGS[kind], "bold cyan")
        yield Padding(_table([proof for proof in proofs if proof.claim in names]), (0, 0, 1, 2))


def _table(proofs: Sequence[Proof]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("function", "contract", "bound"):
        table.add_column(heading, overflow="fold")
    for heading in ("verdict", "by", "time"):
        table.add_column(heading, no_wrap=True)
    said: tuple[object, ...] = ()
    for proof in proofs:
        name, bound = proof.claim, _bound(proof)
        # What stands in the row above is not repeated.
        table.add_row(
            "" if said[:1] == (name,) else Text(name),
            Text(proof.post),
            "" if said == (name, bound) else Text(bound),
            Text(proof.verdict.value.upper(), STYLES[proof.verdict]),
            proof.solver.value,
            f"{proof.seconds:.2f} s",
        )
        said = (name, bound)
    return table


def _bound(proof: Proof) -> str:
    """The bounds of a line; for terms only the size differs from the bounds above."""
    first, *others = proof.bounds or ("none",)
    if proof.solver is Solver.Z3:
        return f"{first}, else as above" if others else first
    return "\n".join([first, *others])


def trouble_of(proofs: Sequence[Proof], lost: Sequence[Confirmed]) -> Iterator[RenderableType]:
    """Refuted, unreachable and lost lines, with the inputs that show it."""
    for proof in proofs:
        if proof.verdict in BAD:
            yield Text(f"{proof.verdict.value.upper()}: {proof.claim}", "bold red")
            yield Padding(Text(f"{proof.post}\n{proof.found}"), (0, 0, 0, 2))
        elif proof.found:
            yield Text(f"{proof.claim}, {proof.verdict}: {proof.found}", "yellow")
    for each in lost:
        words = f"NO LONGER CONFIRMED by {each.solver}: {each.claim}"
        yield Text(words, "bold red")
        yield Padding(Text("\n".join([each.post, *each.bounds])), (0, 0, 0, 2))


def verdict_of(proofs: Sequence[Proof], lost: Sequence[Confirmed], new: int) -> Text:
    """The last line: how many contract lines are confirmed."""
    bad = sum(proof.verdict in BAD for proof in proofs)
    if bad or lost:
        return Text(f"{bad} refuted or unreachable, {len(lost)} no longer confirmed.", "bold red")
    held = sum(proof.verdict is ProofVerdict.CONFIRMED for proof in proofs)
    words = f"{held} of {len(proofs)} contract lines are confirmed, each within its bounds. "
    more = f"{new} of them are not in the record; --record puts them there." if new else ""
    return Text.assemble((words, "bold green" if held == len(proofs) else "bold yellow"), more)


def json_of(proofs: Sequence[Proof], lost: Sequence[Confirmed]) -> Mapping[str, Any]:
    """All proofs, and what is recorded and was not confirmed."""
    return {
        "proofs": [asdict(proof) for proof in proofs],
        "lost": [asdict(each) for each in lost],
    }


# Mutants.


def refutations_text(refutations: Sequence[Refutation]) -> Table:
    """A row for each claim: the mutant that it refutes, and the input."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("claim", "function", "was", "becomes", "refuted by"):
        table.add_column(heading, overflow="fold")
    table.add_column("time", no_wrap=True)
    for each in refutations:
        if each.mutant is None or each.proof is None:
            table.add_row(each.claim, "", "", "", Text("NONE REFUTED", "bold red"))
            continue
        mutant, found = each.mutant, each.proof.found.removeprefix(ANSWERED)
        cells = (each.claim, mutant.where.rpartition(".")[2], mutant.was, mutant.becomes, found)
        table.add_row(*map(Text, (*cells, f"{each.proof.seconds:.2f} s")))
    return table


def refutations_verdict(refutations: Sequence[Refutation]) -> Text:
    """The last line: whether each claim refutes a mutant."""
    idle = sum(each.mutant is None for each in refutations)
    if idle:
        return Text(f"{idle} claims refute no mutant of what they speak of.", "bold red")
    functions = len({each.mutant.where for each in refutations if each.mutant})
    words = f"Each of {len(refutations)} claims refutes a mutant, of {functions} functions in all."
    return Text(words, "bold green")


def refutations_json(refutations: Sequence[Refutation]) -> list[Mapping[str, Any]]:
    """Each claim as a fault with who refutes it, or should."""
    return [
        {
            "seeded": {
                "where": each.mutant.where if each.mutant else "",
                "was": each.mutant.was if each.mutant else "",
                "becomes": each.mutant.becomes if each.mutant else "",
                "refuted_by": [each.claim],
            },
            "refuted": [asdict(each.proof)] if each.proof else [],
            "missed": [] if each.proof else [each.claim],
        }
        for each in refutations
    ]


# As tables of the docs.


def markdown_of(chosen: Sequence[Claim], proofs: Sequence[Proof]) -> str:
    """The tables, a section for each kind of claim."""
    parts: list[str] = []
    for kind, of_kind in groupby(chosen, lambda claim: claim.kind):
        parts += [f"### {HEADINGS[kind]}", ""]
        parts += [
            "| claim | contract | bound | verdict | CPU |",
            "| --- | --- | --- | --- | ---: |",
        ]
        for claim in of_kind:
            parts += _rows(claim, [proof for proof in proofs if proof.claim == claim.name])
        parts.append("")
    return "\n".join(parts)


def _rows(claim: Claim, proofs: Sequence[Proof]) -> Iterator[str]:
    """A row for each solver: all lines of a claim have one bound."""
    for solver in Solver:
        of_solver = [proof for proof in proofs if proof.solver is solver]
        if not of_solver:
            continue
        verdicts = dict.fromkeys(proof.verdict.value for proof in of_solver)
        cells = (
            f"`{claim.name}`: {claim.says}" if solver is Solver.CROSSHAIR else f"`{claim.name}`",
            "<br>".join(f"`{proof.post}`" for proof in of_solver),
            "<br>".join(f"`{line}`" for line in _bound(of_solver[0]).splitlines())
            if claim.pre
            else "none",
            f"{', '.join(verdicts)} by {solver}",
            f"{sum(proof.seconds for proof in of_solver):.1f} s",
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
