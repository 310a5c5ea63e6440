"""`kvcanon check-store`: exit codes, what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import read, usage_error
from kvcanon.conformance.stores import check
from kvcanon.conformance.stores.case import case_from_json
from kvcanon.conformance.stores.witnesses import read_witnesses
from kvcanon.spec.stores import STORE_LAWS

FAULTY = '''
from kvcanon.conformance.stores.plain_stores import file_adapter
from kvcanon.reference.stores.file_store import FileStore

class Forgetful(FileStore):
    """A put of several pages writes one, and says that it wrote all."""

    def put(self, pages):
        super().put(pages[:1])
        return [True] * len(pages)

ADAPTER = file_adapter("forgetful", Forgetful)
'''


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Draw few cases, and find modules in a folder of the test."""
    monkeypatch.setitem(check.STORE_EFFORTS, "quick", 4)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "their_store.py").write_text(FAULTY, "utf-8")


@pytest.fixture
def _one_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the witnesses of one law, which the faulty store breaks."""
    of_one = {"STORE-10": read_witnesses()["STORE-10"]}
    monkeypatch.setattr(check, "read_witnesses", lambda: of_one)


def test_a_sound_store_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The plain store in memory breaks no law, and the last line says so."""
    printed = read(capsys, "check-store", "memory")
    assert "memory: no law is broken." in printed.splitlines()[-1]
    assert all(f"\n{law_id} " in printed for law_id in STORE_LAWS)


@pytest.mark.usefixtures("_one_law")
def test_a_faulty_store_ends_with_1_and_the_shortest_calls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The law, its words, and the calls that break it; the JSON has the case."""
    file = tmp_path / "report.json"
    options = ("their_store:ADAPTER", "--only", "STORE-10", "--json", str(file))
    printed = read(capsys, "check-store", *options, code=1)
    assert "Failure 1: STORE-10 acknowledged_page_is_found (serving)" in printed
    assert re.search(r"put\(A0.*\) -> yes", printed)
    report = json.loads(file.read_text("utf-8"))
    (finding,) = report["findings"]
    assert finding["law"] == "STORE-10"
    assert len(case_from_json(finding["case"]).actions) <= 3
    assert report["verdict"] == "broken"


@pytest.mark.usefixtures("_one_law")
def test_quiet_prints_the_verdict_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, for logs."""
    options = ("their_store:ADAPTER", "--only", "STORE-10", "--quiet")
    printed = read(capsys, "check-store", *options, code=1)
    assert printed.startswith("forgetful breaks 1 law")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["file"], "no store 'file'; near it is files"),
        (["xyz"], "no store 'xyz'; name memory"),
        (["their_store:FileStore"], "name a StoreAdapter"),
        (["their_store:NONE"], "no factory 'NONE'"),
        (["files", "--effort", "huge"], "no effort 'huge'; name quick"),
        (["files", "--only", "STORE-99"], "no law of stores 'STORE-99'"),
        (["files", "--only", ","], "--only names no law"),
        (["files", "--json", "/nowhere/report.json"], "there is no folder /nowhere"),
    ],
)
def test_wrong_calls_end_with_2(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each mistake is one line that names it."""
    assert words in usage_error(capsys, "check-store", *arguments)


def test_laws_of_stores_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """They follow those of caches in the list; one is printed whole, and as JSON."""
    assert "27 laws of stores" in read(capsys, "laws")
    listed = read(capsys, "laws", "STORE")
    assert all(f"  {law_id} " in listed for law_id in STORE_LAWS)
    whole = read(capsys, "laws", "store-5")
    assert whole.startswith("STORE-5  identity_is_in_the_name")
    assert "Exercised by" in whole
    assert json.loads(read(capsys, "laws", "STORE-5", "--json"))["class"] == "sound"
