"""What came of proofs, as text, as JSON and as tables of the docs.

What readers get wrong: the time is that of one core of the machine that asked. The bounds are the
claim; the time only says how much room there is to widen them.
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

from kvcanon.conformance.verify.prove.claim import Claim, ClaimKind
from kvcanon.conformance.verify.prove.proof_run import Survey
from kvcanon.conformance.verify.prove.record import Confirmed
from kvcanon.conformance.verify.prove.verdict import Proof, ProofVerdict, Solver

HEADINGS = {
    ClaimKind.CONTRACT: "Contracts of the kernels",
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
    """The table: function, contract, bound, who says what, and the time."""
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
        # What stands above is not said again.
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
    """Within which a line was asked; of terms only the size differs from what stands above."""
    first, *others = proof.bounds or ("none",)
    if proof.solver is Solver.Z3:
        return f"{first}, else as above" if others else first
    return "\n".join([first, *others])


def trouble_of(proofs: Sequence[Proof], lost: Sequence[Confirmed]) -> Iterator[RenderableType]:
    """What is wrong, each with the input that shows it."""
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
    """The last line: what is true of all of them."""
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


# Seeded faults.


def faults_text_of(surveys: Sequence[Survey]) -> Table:
    """Each fault, and the inputs by which claims refute it."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("function", "was", "becomes", "claim", "refuted by"):
        table.add_column(heading, overflow="fold")
    table.add_column("time", no_wrap=True)
    for each in surveys:
        seeded = each.seeded
        head = (seeded.function, seeded.was, seeded.becomes or "nothing")
        for proof in each.refuted:
            found = proof.found.removeprefix("false when calling ")
            cells = (*head, proof.claim, found, f"{proof.seconds:.2f} s")
            table.add_row(*map(Text, cells))
            head = ("", "", "")
        for name in each.missed:
            table.add_row(*map(Text, (*head, name)), Text("SURVIVED", "bold red"))
            head = ("", "", "")
    return table


def faults_verdict_of(surveys: Sequence[Survey]) -> Text:
    """The last line: whether each fault was refuted by every claim that is to refute it."""
    missed = sum(len(each.missed) for each in surveys)
    refuted = sum(len(each.refuted) for each in surveys)
    if missed:
        return Text(f"{missed} claims did not refute a fault that they are to refute.", "bold red")
    functions = len({each.seeded.where for each in surveys})
    words = f"{len(surveys)} faults in {functions} functions are refuted, {refuted} times in all."
    return Text(words, "bold green")


def faults_json_of(surveys: Sequence[Survey]) -> list[Mapping[str, Any]]:
    """All faults, with what refuted each."""
    return [asdict(each) for each in surveys]


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
        asked = [proof for proof in proofs if proof.solver is solver]
        if not asked:
            continue
        verdicts = dict.fromkeys(proof.verdict.value for proof in asked)
        cells = (
            f"`{claim.name}`: {claim.says}" if solver is Solver.CROSSHAIR else f"`{claim.name}`",
            "<br>".join(f"`{proof.post}`" for proof in asked),
            "<br>".join(f"`{line}`" for line in _bound(asked[0]).splitlines())
            if claim.pre
            else "none",
            f"{', '.join(verdicts)} by {solver}",
            f"{sum(proof.seconds for proof in asked):.1f} s",
        )
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
