"""`kvcanon lab stores`: the table of planted faults, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import read, usage_error
from kvcanon.conformance.stores.case import case_from_json
from kvcanon.conformance.stores.check import STORE_EFFORTS
from kvcanon.conformance.stores.plain_stores import MEMORY
from kvcanon.lab.cli import stores
from kvcanon.lab.stores.fault import StoreFault
from kvcanon.lab.stores.planted import store_faults


@pytest.fixture(autouse=True)
def _one_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Plant one fault, and write no file of the checkout."""
    fault = store_faults()["OneAnswer"]
    monkeypatch.setattr(stores, "store_faults", lambda: {fault.name: fault})
    monkeypatch.setattr(stores, "FILE", tmp_path / "witnesses.json")


def test_table_says_which_case_finds_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    """The law, the number of the case, and the fault in words."""
    printed = read(capsys, "lab", "stores")
    assert "STORE-12" in printed
    assert "Exists has one answer for a batch." in printed
    assert "1 of 1 faults were found by their own law." in printed


def test_witnesses_are_short_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file has one action: the question that shows the fault."""
    (row,) = json.loads(read(capsys, "lab", "stores", "--witnesses", "--json"))
    assert row["found"]
    written = json.loads((tmp_path / "witnesses.json").read_text("utf-8"))
    (case,) = map(case_from_json, written["STORE-12"])
    assert len(case.actions) == 1


def test_a_fault_that_is_not_found_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A store without a fault, under the name of one."""
    none = StoreFault("None", "STORE-12", "Nothing is wrong.", MEMORY)
    monkeypatch.setattr(stores, "store_faults", lambda: {"None": none})
    monkeypatch.setitem(STORE_EFFORTS, "quick", 4)
    assert "not found" in read(capsys, "lab", "stores", code=1)


def test_unknown_effort_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """One line that names the efforts."""
    assert "no effort 'huge'; name quick" in usage_error(
        capsys, "lab", "stores", "--effort", "huge"
    )
