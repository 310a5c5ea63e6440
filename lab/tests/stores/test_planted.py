"""The faults that are planted in the plain stores are found, each by its own law."""

from __future__ import annotations

from collections import Counter

import pytest

from kvcanon.conformance.stores.check import first_break, ground_of
from kvcanon.conformance.stores.play import play_case
from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.lab.stores.fault import StoreFault, breaks
from kvcanon.lab.stores.hunt import hunt
from kvcanon.lab.stores.planted import store_faults
from kvcanon.spec.stores import STORE_LAWS

FAULTS = list(store_faults().values())
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=[each.name for each in FAULTS])


def test_every_law_has_two_faults() -> None:
    """A law that no fault tests is not finished."""
    count = Counter(each.law_id for each in FAULTS)
    assert {law_id for law_id in STORE_LAWS if count[law_id] < 2} == set()


def test_every_law_has_a_witness() -> None:
    """Each law can be shown in a few calls."""
    assert read_witnesses().keys() == STORE_LAWS.keys()


def test_faults_say_what_they_are() -> None:
    """The first line of the docstring of each is a sentence, and no two say the same."""
    assert all(each.what.endswith(".") for each in FAULTS)
    assert len({each.what for each in FAULTS}) == len(FAULTS)


def test_what_is_no_plain_store_is_no_fault() -> None:
    """A fault is derived from a plain store."""
    with pytest.raises(TypeError, match="derived from no plain store"):
        breaks("STORE-1")(int)


@each_fault
def test_fault_breaks_its_law_in_a_witness(fault: StoreFault) -> None:
    """One of the witnesses of its law shows each fault."""
    with ground_of(fault.adapter) as ground:
        law = STORE_LAWS[fault.law_id]
        assert any(
            first_break(play_case(fault.adapter, ground, case), law)
            for case in read_witnesses()[fault.law_id]
        )


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1, 2])
@each_fault
def test_fault_is_found_in_drawn_cases(fault: StoreFault, seed: int) -> None:
    """The drawn cases of a quick check find each fault, without the witnesses."""
    assert hunt(fault, seed).case is not None
