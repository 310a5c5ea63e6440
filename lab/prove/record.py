"""The record of confirmed contract lines, one a line: one not confirmed any more is noticed.

A claim whose bounds were narrowed is another claim. The record holds the bounds, and a line counts
as lost until it is recorded again with the new ones.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from attrs import asdict, frozen

from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver

RECORD = Path(__file__).with_name("confirmed.jsonl")


@frozen(order=True)
class Confirmed:
    """A line that a solver has confirmed, and under which bounds."""

    claim: str
    post: str
    solver: Solver
    bounds: tuple[str, ...]


def confirmed(proofs: Iterable[Proof]) -> list[Confirmed]:
    """The confirmed lines of some proofs."""
    return [
        Confirmed(proof.claim, proof.post, proof.solver, proof.bounds)
        for proof in proofs
        if proof.verdict is ProofVerdict.CONFIRMED
    ]


def read_record(path: Path = RECORD) -> list[Confirmed]:
    """The lines that the last `kvcanon lab prove --record` confirmed."""
    rows = map(json.loads, path.read_text("utf-8").splitlines())
    return [
        Confirmed(each["claim"], each["post"], Solver(each["solver"]), tuple(each["bounds"]))
        for each in rows
    ]


def write_record(proofs: Iterable[Proof], path: Path = RECORD) -> None:
    """Write the confirmed lines to the record, in the order of the table."""
    rows = [json.dumps(asdict(each)) for each in confirmed(proofs)]
    path.write_text("".join(f"{row}\n" for row in rows), "utf-8")


def lost(
    recorded: Iterable[Confirmed], proofs: Iterable[Proof], chosen: Collection[str] | None
) -> list[Confirmed]:
    """Recorded lines that are not confirmed now, of the chosen claims; None chooses all."""
    now = set(confirmed(proofs))
    return [
        each for each in recorded if (chosen is None or each.claim in chosen) and each not in now
    ]
