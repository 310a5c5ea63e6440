"""A run of proofs: the solvers settle every chosen contract line, in several processes at once.

The budget is in seconds of the clock, for each line. A line that is confirmed uses only what it
needs, so that a larger budget makes no sound claim slower.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.workers.workers import workers
from kvcanon.lab.prove.claim import Claim, ClaimKind, claims, names_in
from kvcanon.lab.prove.mutation import FunctionMutant, candidates, mutant_of, planted
from kvcanon.lab.prove.verdict import Proof, ProofVerdict, Solver

BUDGET_S = 120.0
"""What the slowest claim needs several times over, even where others use the machine."""
ANSWERED = "false when calling "
"""How CrossHair begins where a function has answered, and its contract is false of the answer."""
REFUTATION_S = 10.0
"""For one mutant; most that are refuted at all take less than a second."""


@frozen
class ContractLine:
    """One `post:` line of a claim, and the solver that settles it."""

    claim: Claim
    solver: Solver
    at: int
    """Which of the claim's lines it is."""


@frozen
class Refutation:
    """The first mutant that a claim refutes, if there is one, and the proof with the input."""

    claim: str
    mutant: FunctionMutant | None
    proof: Proof | None


def chosen_claims(names: Sequence[str]) -> list[Claim]:
    """The claims or oracle functions of these names; all if none are given. Raises: UsageError."""
    every = claims()
    if not names:
        return list(every.values())
    found: dict[str, Claim] = {}
    for name in names:
        about = [claim for claim in every.values() if speaks_of(claim, name)]
        if not about:
            functions = [each.name for each in every.values() if each.kind is ClaimKind.CONTRACT]
            raise UsageError(f"nothing is claimed of {name!r}; choose of {', '.join(functions)}")
        found |= {claim.name: claim for claim in about}
    return [claim for claim in every.values() if claim.name in found]


def speaks_of(claim: Claim, name: str) -> bool:
    """Whether a claim has this name, or its code or contract holds the name."""
    return name == claim.name or name in names_in(claim.function())


def lines_of(chosen: Sequence[Claim]) -> list[ContractLine]:
    """Every contract line of some claims, once for each solver that can settle it."""
    return [
        ContractLine(claim, solver, at)
        for claim in chosen
        for solver in Solver
        if solver is Solver.CROSSHAIR or claim.terms is not None
        for at in range(len(claim.post))
    ]


def settle(line: ContractLine, budget_s: float) -> Proof:
    """Settle one line, in any process."""
    # The solvers are an extra, and slow to import; reading claims needs neither.
    if line.solver is Solver.CROSSHAIR:
        from kvcanon.lab.prove import crosshair_check  # noqa: PLC0415

        return crosshair_check.prove(line.claim, line.at, budget_s)
    from kvcanon.lab.prove import z3_check  # noqa: PLC0415

    return z3_check.prove(line.claim, line.at, budget_s)


def refute(claim: Claim, budget_s: float) -> Refutation:
    """Plant mutants until the claim refutes one by an answer, in any process.

    A mutant that raises shows little: any claim refutes it. For each mutant there are `budget_s`
    seconds, and not more than `REFUTATION_S`.
    """
    budget_s = min(budget_s, REFUTATION_S)
    lines = [line for line in lines_of([claim]) if line.solver is Solver.CROSSHAIR]
    for mutant in candidates(claim):
        with planted(mutant):
            for line in lines:
                proof = settle(line, budget_s)
                if proof.verdict is ProofVerdict.REFUTED and proof.found.startswith(ANSWERED):
                    return Refutation(claim.name, mutant, proof)
    return Refutation(claim.name, None, None)


def settle_all(lines: Sequence[ContractLine], budget_s: float, jobs: int) -> Iterator[Proof]:
    """Settle many lines in so many processes; proofs come in the order of the lines."""
    require_solvers()
    with workers(jobs) as by:
        futures = [by.executor.submit(settle, line, budget_s) for line in lines]
        yield from (future.result() for future in futures)


def refute_all(chosen: Sequence[Claim], budget_s: float, jobs: int) -> Iterator[Refutation]:
    """Have each claim refute a mutant, in so many processes; answers come in order of claims."""
    require_solvers()
    with workers(jobs) as by:
        futures = [by.executor.submit(_refute_by_name, each.name, budget_s) for each in chosen]
        for each, future in zip(chosen, futures, strict=True):
            change, proof = future.result()
            yield Refutation(each.name, mutant_of(*change) if change else None, proof)


def _refute_by_name(name: str, budget_s: float) -> tuple[tuple[str, str] | None, Proof | None]:
    """The mutant's function and change, as code objects do not pass between processes."""
    found = refute(claims()[name], budget_s)
    change = (found.mutant.where, found.mutant.change) if found.mutant else None
    return change, found.proof


def require_solvers() -> None:
    """Check that both solvers are installed. Raises: UsageError."""
    missing = [name for name in ("crosshair", "z3") if find_spec(name) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} cannot be imported; install kvcanon[formal]")
