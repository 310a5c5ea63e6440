"""`kvcanon lab corpus`: what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import usage_error
from kvcanon.conformance.corpus import FILE
from paths import ROOT


def test_too_few_cases_leave_the_corpus_as_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus that no check could play whole is not written."""
    monkeypatch.chdir(ROOT)
    before = FILE.read_bytes()
    said = usage_error(capsys, "lab", "corpus", "--cases", "4", "--jobs", "1")
    assert "draw more with --cases" in said
    assert FILE.read_bytes() == before


def test_without_a_checkout_there_is_no_corpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a checkout the command says that it needs one."""
    monkeypatch.chdir(tmp_path)
    assert "is in no checkout of kvcanon" in usage_error(capsys, "lab", "corpus")
