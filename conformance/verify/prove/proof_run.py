"""Asking: every line of every contract that is to be settled, by several processes at once.

What readers get wrong: the budget is in seconds of the clock, for each line. A claim that is
confirmed uses as much of it as it needs, so that a larger budget makes no sound claim slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.search.campaign import workers
from kvcanon.conformance.verify.prove.claim import Claim, ClaimKind, claims, names_in
from kvcanon.conformance.verify.prove.seeding import Seeded, planted
from kvcanon.conformance.verify.prove.verdict import Proof, ProofVerdict, Solver

BUDGET_S = 120.0
"""What the slowest claim needs several times over, even where others use the machine."""


@frozen
class ContractLine:
    """One `post:` line of a claim, and who is asked."""

    claim: Claim
    solver: Solver
    at: int
    """Which of the claim's lines it is."""


@frozen
class Survey:
    """What became of a planted fault: the proof by which each claim that is to refute it does."""

    seeded: Seeded
    refuted: tuple[Proof, ...]
    missed: tuple[str, ...]
    """The claims that should have refuted it, and did not."""


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """The claims or oracle functions of these names; all if none are given. Raises: UsageError."""
    every = claims()
    if not names:
        return list(every.values())
    found: dict[str, Claim] = {}
    for name in names:
        about = [claim for claim in every.values() if speaks_of(claim, name)]
        if not about:
            kernels = [each.name for each in every.values() if each.kind is ClaimKind.CONTRACT]
            raise UsageError(
                f"nothing is claimed of {name!r}; the functions are {', '.join(kernels)}"
            )
        found |= {claim.name: claim for claim in about}
    return [claim for claim in every.values() if claim.name in found]


def speaks_of(claim: Claim, name: str) -> bool:
    """Whether a claim has a name, or its text names what has it."""
    return name == claim.name or name in names_in(claim.function())


def lines_of(chosen: Sequence[Claim]) -> list[ContractLine]:
    """What is to be asked of some claims."""
    return [
        ContractLine(claim, solver, at)
        for claim in chosen
        for solver in Solver
        if solver is Solver.CROSSHAIR or claim.terms is not None
        for at in range(len(claim.post))
    ]


def settle(line: ContractLine, budget_s: float) -> Proof:
    """Ask one line, in any process."""
    # The solvers are an extra, and slow to import: whoever only reads claims needs neither.
    if line.solver is Solver.CROSSHAIR:
        from kvcanon.conformance.verify.prove import crosshair_check  # noqa: PLC0415

        return crosshair_check.prove(line.claim, line.at, budget_s)
    from kvcanon.conformance.verify.prove import z3_check  # noqa: PLC0415

    return z3_check.prove(line.claim, line.at, budget_s)


def survey(seeded: Seeded, budget_s: float) -> Survey:
    """Plant a fault and ask the claims that are to refute it, in any process."""
    every = claims()
    proofs = {name: refutation(seeded, every[name], budget_s) for name in seeded.refuted_by}
    return Survey(
        seeded,
        tuple([proof for proof in proofs.values() if proof is not None]),
        tuple([name for name, proof in proofs.items() if proof is None]),
    )


def refutation(seeded: Seeded, claim: Claim, budget_s: float) -> Proof | None:
    """The first proof that a claim does not hold where a fault is planted."""
    with planted(seeded):
        proofs = (settle(line, budget_s) for line in lines_of([claim]))
        return next((proof for proof in proofs if proof.verdict is ProofVerdict.REFUTED), None)


def settle_all(lines: Sequence[ContractLine], budget_s: float, jobs: int) -> Iterator[Proof]:
    """Ask many lines, by so many processes; the answers come in the order of the lines."""
    need_solvers()
    with workers(jobs) as by:
        futures = [by.executor.submit(settle, line, budget_s) for line in lines]
        yield from (future.result() for future in futures)


def survey_all(seeded: Sequence[Seeded], budget_s: float, jobs: int) -> Iterator[Survey]:
    """Plant many faults, each by itself, by so many processes; the answers come in their order."""
    need_solvers()
    with workers(jobs) as by:
        futures = [by.executor.submit(survey, each, budget_s) for each in seeded]
        yield from (future.result() for future in futures)


def need_solvers() -> None:
    """Raises: UsageError, where a solver is not installed."""
    missing = [name for name in ("crosshair", "z3") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} cannot be imported; install kvcanon[formal]")
