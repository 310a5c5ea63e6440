"""The record: what has been confirmed, line by line, kept so that nobody loses it unawares.

What readers get wrong: a claim whose bounds were narrowed is another claim. The record holds the
bounds, and what was confirmed under them counts as lost until it is recorded anew.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path

from attrs import asdict, frozen

from kvcanon.conformance.verify.prove.verdict import Proof, ProofVerdict, Solver

RECORD = Path(__file__).with_name("confirmed.json")


@frozen(order=True)
class Confirmed:
    """A line that a solver has confirmed, and under which bounds."""

    claim: str
    post: str
    solver: Solver
    bounds: tuple[str, ...]


def confirmed(proofs: Iterable[Proof]) -> list[Confirmed]:
    """What was confirmed of some proofs."""
    return [
        Confirmed(proof.claim, proof.post, proof.solver, proof.bounds)
        for proof in proofs
        if proof.verdict is ProofVerdict.CONFIRMED
    ]


def read_record(path: Path = RECORD) -> list[Confirmed]:
    """What was confirmed when it was last recorded."""
    return [
        Confirmed(each["claim"], each["post"], Solver(each["solver"]), tuple(each["bounds"]))
        for each in json.loads(path.read_text("utf-8"))
    ]


def write_record(proofs: Iterable[Proof], path: Path = RECORD) -> None:
    """Record what was confirmed, in the order of the table."""
    text = json.dumps([asdict(each) for each in confirmed(proofs)], indent=1)
    path.write_text(f"{text}\n", "utf-8")


def lost(
    recorded: Iterable[Confirmed], proofs: Iterable[Proof], asked: Collection[str] | None
) -> list[Confirmed]:
    """What is recorded and was not confirmed now: of the claims that were asked, None for all."""
    now = set(confirmed(proofs))
    return [each for each in recorded if (asked is None or each.claim in asked) and each not in now]
