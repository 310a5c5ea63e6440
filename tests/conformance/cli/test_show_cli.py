"""`kvcanon show`: what it takes, the page that it writes, and bad input in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import read, usage_error
from kvcanon.conformance.report.json_report import check_json, json_text
from kvcanon.conformance.vectors import FOLDER
from sample_reports import faulty, sound


@pytest.fixture
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with the reports of a sound cache and of faulty ones."""
    monkeypatch.chdir(tmp_path)
    report = faulty()
    (tmp_path / "faulty.json").write_text(json_text(check_json(report)))
    (tmp_path / "sound.json").write_text(json_text(check_json(sound())))
    (tmp_path / "script.py").write_text(report.findings[0].script)
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "hash_ids": [1]}\n{}\n')
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "later.json").write_text('{"format": "kvcanon-check/99"}')
    (tmp_path / "damaged.json").write_text('{"format": "kvcanon-check/6"}')
    (tmp_path / "other.py").write_text("CASE = open('x')\n")
    (tmp_path / "bytes.bin").write_bytes(b"\xff\xfe\x00")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "page", "says"),
    [
        (("LOAD-1-a",), "LOAD-1-a.show.html", "Vector LOAD-1-a, 9 steps"),
        ((str(FOLDER / "LOAD-1-a.json"), "--output", "v.html"), "v.html", "9 steps"),
        (("faulty.json",), "faulty.show.html", "breaks at step"),
        (("faulty.json", "--failure", "3"), "faulty.show.html", "crash: KeyError"),
        (("script.py",), "script.show.html", "breaks at step"),
        (("script.py", "--cache", "reference"), "script.show.html", "steps"),
    ],
)
def test_page_is_written(
    reports: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    page: str,
    says: str,
) -> None:
    """Each kind of file becomes a page, and one line says how long the run is."""
    printed = read(capsys, "show", *arguments)
    assert printed.startswith(f"{page}: ")
    assert says in printed
    assert (reports / page).read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gone.json",), "gone.json cannot be read: No such file"),
        (("bytes.bin",), "bytes.bin cannot be read: it is no text"),
        (("list.json",), "list.json is nothing to show; give a report"),
        (("later.json",), "has the format kvcanon-check/99; this kvcanon shows kvcanon-check/6"),
        (("damaged.json",), "damaged.json is a damaged report"),
        (("sound.json",), "sound.json has no failure to show: its verdict is holds"),
        (("faulty.json", "--failure", "9"), "has no failure 9; give --failure one of 1,"),
        (("LOAD-1-a", "--failure", "1"), "--failure 1 is for a report"),
        (("trace.jsonl",), "run `kvcanon replay CACHE --trace trace.jsonl --html PAGE`"),
        (("other.py",), "other.py is no script of a failure"),
        (("script.py", "--cache", "nothing"), "no cache 'nothing'"),
        (("script.py", "--output", "script.py"), "is the file to show; give another one"),
        (("LOAD-1-a", "--output", "no/folder.html"), "there is no folder no"),
    ],
)
def test_bad_input_is_one_line(
    reports: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """What cannot be shown ends with 2 and one line that says what to give."""
    assert says in usage_error(capsys, "show", *arguments)
    assert not list(reports.glob("*.html"))


def test_half_characters_are_written(
    reports: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no file can hold is escaped; no page is lost for it."""
    (reports / "half.py").write_text(
        (reports / "script.py").read_text().replace("LOCK", "\\ud800", 1)
    )
    read(capsys, "show", "half.py")
    assert "<h1>\\ud800" in (reports / "half.show.html").read_text()


def test_replay_writes_a_page(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A replay also writes a page, and its report is as ever."""
    options = ("--limit", "12", "--html", "replay.html", "--html-steps", "20", "--html-from", "4")
    printed = read(capsys, "replay", "reference", *options, "--json")
    assert json.loads(printed)["result"]["requests"] == 12
    assert "20 of " in (reports / "replay.html").read_text()


def test_no_browser_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a browser the measurement ends with 2 and a line that says how to get one."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("KVCANON_BROWSER", raising=False)
    assert "no browser was found" in usage_error(capsys, "lab", "bench", "show")
    monkeypatch.setenv("KVCANON_BROWSER", "none-of-this-name")
    assert "KVCANON_BROWSER is 'none-of-this-name'" in usage_error(capsys, "lab", "bench", "show")
