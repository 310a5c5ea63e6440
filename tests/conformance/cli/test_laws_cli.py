"""`kvcanon laws`: lists, pages and tables."""

from __future__ import annotations

import json
import re
import subprocess

import pytest
from jsonschema import Draft202012Validator

from command_line import KVCANON, read, read_json, usage_error
from kvcanon.conformance.laws.history import history_of
from kvcanon.conformance.laws.laws_json import SCHEMA
from kvcanon.spec.law import LAWS, SITE
from kvcanon.spec.laws.emission import EMISSIONS, cells, table
from kvcanon.spec.refusals import cells as refusals

SCHEMA_OF_LAWS = json.loads(SCHEMA.read_text("utf-8"))


def test_laws_lists_every_law(capsys: pytest.CaptureFixture[str]) -> None:
    """The list has every law."""
    printed = read(capsys, "laws")
    for law in LAWS.values():
        assert re.search(rf"^  {law.law_id} +{law.law_class.value}[ ,]", printed, re.MULTILINE)
    assert f"{len(LAWS)} laws." in printed


def test_laws_groups_by_area(capsys: pytest.CaptureFixture[str]) -> None:
    """Each area has one heading."""
    printed = read(capsys, "laws")
    for area in {law.area for law in LAWS.values()}:
        assert len(re.findall(rf"^{area}: ", printed, re.MULTILINE)) == 1


@pytest.mark.parametrize("area", ["LOCK", "lock"])
def test_laws_area_lists_its_laws(capsys: pytest.CaptureFixture[str], area: str) -> None:
    """The name of an area lists its laws and no others, in words and as JSON."""
    wanted = [law.law_id for law in LAWS.values() if law.area == "LOCK"]
    printed = read(capsys, "laws", area)
    assert re.findall(r"^  ([A-Z]+-\d+) ", printed, re.MULTILINE) == wanted
    assert f"{len(wanted)} laws." in printed
    assert [law["id"] for law in read_json(capsys, "laws", area)] == wanted


def test_laws_about_prints_symptoms_and_laws(capsys: pytest.CaptureFixture[str]) -> None:
    """A search prints the symptom first, its laws each in a sentence, then other laws."""
    words = ("laws", "--about", "window data is gone after a split")
    printed = read(capsys, *words)
    assert printed.startswith("My window data is gone after a split\n  MATCH-5  serving  A match")
    assert "\nLaws with these words\n" in printed
    assert f"{SITE}symptoms.html" in printed
    found = read_json(capsys, *words)
    assert found["symptoms"][0]["laws"] == ["MATCH-5", "MATCH-6", "TREE-5"]
    assert set(found["laws"]) <= LAWS.keys()


def test_laws_about_nothing_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Words that no law has are answered, and no words are refused."""
    assert read(capsys, "laws", "--about", "xyzzy") == (
        "No symptom and no law has any of these words.\n"
        f"Try the words of your logs, or read all symptoms: {SITE}symptoms.html\n"
    )
    assert read(capsys, "laws", "--about", "CUDA OOM after hours").startswith("The pool leaks")
    assert "no word to look for" in usage_error(capsys, "laws", "--about", "the")
    assert "drop RES-4 or --about" in usage_error(capsys, "laws", "RES-4", "--about", "lock")


def test_laws_json_has_every_law_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON has every field of every law, and is as its schema says."""
    printed = read_json(capsys, "laws")
    Draft202012Validator.check_schema(SCHEMA_OF_LAWS)
    Draft202012Validator(SCHEMA_OF_LAWS).validate(printed)
    laws = printed["laws"]
    assert [law["id"] for law in laws] == list(LAWS)
    assert all(law["statement"] and law["why"] and law["seen_broken"] for law in laws)


@pytest.mark.parametrize("law_id", ["RES-4", "res-4"])
def test_laws_id_prints_the_law_whole(capsys: pytest.CaptureFixture[str], law_id: str) -> None:
    """The page of a law has all its parts."""
    printed = " ".join(read(capsys, "laws", law_id).split())
    law = LAWS["RES-4"]
    for part in (
        law.law_id,
        law.name,
        law.statement,
        law.why,
        law.seen_broken,
        law.kind.value,
        law.address,
    ):
        assert " ".join(part.split()) in printed
    assert f"Since {history_of(law.law_id).words} " in printed
    assert all(need.value in printed for need in law.needs)


def test_laws_id_json_is_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    """The JSON of an id is that law."""
    assert read_json(capsys, "laws", "RES-4")["name"] == LAWS["RES-4"].name


def test_laws_unknown_id_names_near_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown id is refused, with similar ids."""
    assert "no law RES-44; near it are RES-4, " in usage_error(capsys, "laws", "RES-44")
    assert "`kvcanon laws --about 'quux'` searches" in usage_error(capsys, "laws", "quux")


def test_laws_emissions_prints_the_table_of_events(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of events is printed as text and JSON, and not together with a law."""
    assert read(capsys, "laws", "--emissions").splitlines() == table()
    rows = read_json(capsys, "laws", "--emissions")
    assert [tuple(row.values()) for row in rows] == [cells(row) for row in EMISSIONS]
    assert "drop RES-4 or --emissions" in usage_error(capsys, "laws", "RES-4", "--emissions")


def test_laws_refusals_prints_the_table_of_grounds(capsys: pytest.CaptureFixture[str]) -> None:
    """The table of refusals is printed as text and JSON, and not together with others."""
    rows = [tuple(row.values()) for row in read_json(capsys, "laws", "--refusals")]
    assert rows == refusals()
    printed = " ".join(read(capsys, "laws", "--refusals").split())
    assert all(error in printed for _, error, _ in rows)
    assert "reset CacheBusy a receipt is open; a copy in flight has one" in printed
    assert "drop RES-4 or --refusals" in usage_error(capsys, "laws", "RES-4", "--refusals")
    both = usage_error(capsys, "laws", "--emissions", "--refusals")
    assert "drop --emissions or --refusals" in both


@pytest.mark.parametrize("arguments", [("laws",), ("laws", "--json"), ("laws", "RES-4")])
def test_laws_into_a_closed_pipe_ends_in_silence(arguments: tuple[str, ...]) -> None:
    """A closed pipe ends the command silently with exit code 0."""
    with subprocess.Popen(
        [*KVCANON, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
