"""Seeded faults: of each kernel the first is refuted; `kvcanon prove --faults` has them all."""

from __future__ import annotations

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.verify.prove.claim import claims, kernels
from kvcanon.conformance.verify.prove.proof_run import Survey, survey
from kvcanon.conformance.verify.prove.seeded_faults import SEEDED
from kvcanon.conformance.verify.prove.seeding import Seeded, planted
from kvcanon.spec.oracle.pages import whole_pages

BUDGET_S = 120.0
"""A refutation takes a second; the rest is for a machine that does other things as well."""


def first_of(kernel: str) -> Seeded:
    """The fault of a kernel that is refuted soonest, by the claim that does it soonest."""
    first = next(each for each in SEEDED if each.function == kernel)
    return Seeded(first.where, first.was, first.becomes, first.refuted_by[:1])


@pytest.mark.parametrize("kernel", kernels())
def test_each_kernel_has_a_fault_that_is_refuted(kernel: str) -> None:
    """A kernel can be written wrong, and what is claimed of it is confirmed all the same."""
    found = survey(first_of(kernel), BUDGET_S)
    assert found.missed == ()
    (proof,) = found.refuted
    assert proof.claim in proof.found


def test_each_claim_refutes_a_fault() -> None:
    """A claim is confirmed of whom nobody knows whether it says anything."""
    assert {name for each in SEEDED for name in each.refuted_by} == set(claims())


def test_what_is_no_fault_survives() -> None:
    """A fault counts as refuted though nothing is wrong with it."""
    sound = Seeded(
        "kvcanon.spec.oracle.pages.whole_pages",
        "length_tokens // page_size",
        "(length_tokens - length_tokens % page_size) // page_size",
        ("whole_pages_is_counting",),
    )
    assert survey(sound, BUDGET_S) == Survey(sound, (), ("whole_pages_is_counting",))


def test_a_fault_is_gone_afterwards() -> None:
    """A fault stays in place for whoever comes next."""
    with planted(first_of("whole_pages")):
        assert whole_pages(5, 4) == 2
    assert whole_pages(5, 4) == 1


def test_a_fault_whose_place_is_gone_is_said() -> None:
    """A kernel was written anew, and its fault is planted nowhere."""
    lost = Seeded("kvcanon.spec.oracle.pages.whole_pages", "no such text", "", ())
    with pytest.raises(UsageError, match="'no such text' 0 times, not once"), planted(lost):
        pass
