"""Loaded modules do not change what a seed draws."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from kvcanon.conformance.check.machine import run_machine
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.reference import ReferenceCache

NUMBERS = "\n".join(f"N{number} = {number}" for number in range(701, 3900, 53))


def test_a_module_of_numbers_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed draws the same cases after another local module is loaded."""
    trial = Trial(Adapter("reference", ReferenceCache))
    _, before = run_machine(trial, examples=12)
    source = tmp_path / "numbers_of_mine.py"
    source.write_text(NUMBERS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    module = ModuleType("numbers_of_mine")
    module.__file__ = str(source)
    monkeypatch.setitem(sys.modules, "numbers_of_mine", module)
    _, after = run_machine(trial, examples=12)
    assert after == before
