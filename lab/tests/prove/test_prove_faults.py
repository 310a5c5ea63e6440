"""Mutants of the functions in claims: each claim refutes one."""

from __future__ import annotations

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.prove import proof_run
from kvcanon.lab.prove.claim import ClaimKind, claims, oracle_functions
from kvcanon.lab.prove.mutation import KNOWN, candidates, mutant_of, mutants_of, planted
from kvcanon.lab.prove.proof_run import refute
from kvcanon.spec.oracle.pages import whole_pages

BUDGET_S = 120.0
"""A refutation takes a second; the rest is reserve for a busy machine."""

TRIED_EVERY = 8
"""One claim in eight is tried here; `make prove` tries all."""

OTHERS = [name for name, each in claims().items() if each.kind is not ClaimKind.CONTRACT]
"""The claims that are no contract of a function."""


@pytest.mark.parametrize("name", [*oracle_functions()][::TRIED_EVERY])
def test_each_contract_refutes_a_mutant_of_its_oracle_function(name: str) -> None:
    """A small mistake in the function breaks its contract."""
    found = refute(claims()[name], BUDGET_S)
    assert found.mutant is not None
    assert found.mutant.where.endswith(f".{name}")
    assert found.proof is not None
    assert f"{name}(" in found.proof.found


@pytest.mark.parametrize("name", OTHERS[::TRIED_EVERY])
def test_each_claim_refutes_a_mutant(name: str) -> None:
    """A small mistake in its function breaks every other claim."""
    assert refute(claims()[name], BUDGET_S).mutant is not None


def test_a_mutant_that_does_the_same_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change that changes no answer is refuted by no claim."""
    # Stretches that are alike are compared page by page then.
    same = mutant_of("kvcanon.spec.oracle.prefix.shared_pages", "false:1")
    assert (same.was, same.becomes) == ("if ours == theirs:", "if False:")
    monkeypatch.setattr(proof_run, "candidates", lambda _: [same])
    assert refute(claims()["shared_pages_is_longest_common"], BUDGET_S).mutant is None


def test_a_mutant_that_raises_refutes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception does not count, since it would break every claim."""
    raising = mutant_of("kvcanon.spec.oracle.eviction.refresh", "remove-assignment:1")
    monkeypatch.setattr(proof_run, "candidates", lambda _: [raising])
    assert refute(claims()["refresh_is_one_by_one"], BUDGET_S).mutant is None


def test_a_mutant_is_gone_afterwards() -> None:
    """Outside the context the function is the original again."""
    with planted(mutant_of("kvcanon.spec.oracle.pages.whole_pages", "div-mul:1")):
        assert whole_pages(5, 4) == 20
    assert whole_pages(5, 4) == 1


def test_a_change_that_is_not_there_is_refused() -> None:
    """A known change is refused by name after its function was rewritten."""
    with pytest.raises(UsageError, match="whole_pages has no change 'lt-le:9'"):
        mutant_of("kvcanon.spec.oracle.pages.whole_pages", "lt-le:9")


def test_mutants_differ_in_a_line_of_the_body() -> None:
    """Each mutant has one changed line, and the docstring with the contract is not changed."""
    mutants = list(mutants_of(oracle_functions()["shared_pages"]))
    assert len(mutants) == len({each.change for each in mutants}) > 10
    assert all(each.was != each.becomes for each in mutants)
    assert not any("post:" in each.was for each in mutants)


@pytest.mark.parametrize("name", KNOWN)
def test_known_changes_are_tried_first(name: str) -> None:
    """A change that is recorded for a claim is its first candidate."""
    first = next(candidates(claims()[name]))
    assert (first.where, first.change) == KNOWN[name]
