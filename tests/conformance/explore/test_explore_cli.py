"""`kvcanon explore`: its output, its exit codes, and the script that shows a fault."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve

from command_line import usage_error
from exploring import FULL, HOST, WINDOW, explored
from kvcanon.conformance.cli import main
from kvcanon.conformance.explore.report import markdown_of
from kvcanon.conformance.explore.scopes.naming import GROUPS, SCOPES
from kvcanon.spec.law import LAWS, Need
from paths import DOCS, HELPERS

EXPLORED = DOCS / "explore.md"


@pytest.fixture(autouse=True)
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    for scope in (FULL, HOST):
        # Most premises need more than a tiny scope.
        monkeypatch.setitem(SCOPES, scope.name, evolve(scope, made_for=("MATCH-1",)))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int) -> str:
    """Return what the command prints."""
    assert main(["explore", *arguments, "--jobs", "1"]) == code
    return capsys.readouterr().out


def test_scopes_that_are_not_offered_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache is explored in the scopes that it offers, and the others are named."""
    scopes = ("--scope", "tiny_full,tiny_host", "--levels", "2")
    text = said(capsys, "faulty:PLAIN_ONLY", *scopes, code=0)
    assert "tiny_full" in text
    assert "left out tiny_host: it does not offer write_policy write_through; it offers" in text
    assert main(["explore", "faulty:PLAIN_ONLY", *scopes, "--json", "--jobs", "1"]) == 0
    printed = capsys.readouterr()
    value = json.loads(printed.out)
    assert [each["scope"] for each in value["explorations"]] == ["tiny_full"]
    assert value["run"]["machine"]["cores"] > 0
    assert "left out tiny_host" in printed.err


def test_a_cache_behind_a_pipe_is_explored(capsys: pytest.CaptureFixture[str]) -> None:
    """A cache in a child process has as many states as the same cache here."""
    served = f"pipe:{sys.executable} -m kvcanon.conformance.protocol.pipe_server reference"
    text = said(capsys, served, "--scope", "tiny_full", "--levels", "3", code=0)
    alone = said(capsys, "reference", "--scope", "tiny_full", "--levels", "3", code=0)
    states = [re.search(r"states +[\d,]+ that differ", each) for each in (text, alone)]
    assert states[0] is not None
    assert states[1] is not None
    assert states[0][0] == states[1][0]


def test_a_sound_cache_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """The report says how many states were visited and checked, and the exit code is 0."""
    text = said(capsys, "reference", "--scope", "tiny_full,tiny_host", code=0)
    assert "40 that differ by more than names, and none is left" in text
    # ASYNC-11 and ASYNC-15 are about several caches, and these scopes have no store.
    alone = sum(Need.STORE not in law.needs for law in LAWS.values()) - 2
    assert re.search(rf"laws +\d+ of {alone} exercised; \d+ beyond the scope", text)
    assert "states/s" in text
    assert "209 states were visited, and none is left." in text


def test_a_fault_exits_with_1_and_a_script_that_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fault is shown as text, call by call, and as a script."""
    text = said(capsys, "faulty:Short", "--scope", "tiny_full", "--scripts", str(tmp_path), code=1)
    assert "MATCH-1 longest_usable_prefix, after 2 actions, and no fewer" in text
    assert "match(key_1)" in text
    assert text.rstrip().endswith("BROKEN in tiny_full")
    (script,) = tmp_path.iterdir()
    code = script.read_text("utf-8")
    for cache, exit_code in (("faulty:Short", 1), ("reference", 0)):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("faulty:Short", cache)],
            cwd=HELPERS,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stderr


def test_what_is_not_exhausted_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The report of a limited run says that states are left."""
    text = said(capsys, "--scope", "tiny_full", "--levels", "2", code=0)
    assert "8 of them were not gone on from" in text
    assert "tiny_full not exhausted" in text


def test_it_goes_on_from_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run resumes from the checkpoint of the first."""
    options = ("--scope", "tiny_full,tiny_host", "--checkpoint", str(tmp_path), "--json")
    first = json.loads(said(capsys, *options, "--levels", "3", code=0))["explorations"]
    again = json.loads(said(capsys, *options, code=0))["explorations"]
    assert {path.name for path in tmp_path.iterdir()} == {
        "reference-tiny_full.npz",
        "reference-tiny_host.npz",
    }
    assert [each["left"] > 0 for each in first] == [True, True]
    assert [(each["states"], each["left"]) for each in again] == [(40, 0), (169, 0)]


def test_premises_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """The report lists the laws that were not exercised."""
    text = said(capsys, "--scope", "tiny_full", "--premises", code=0)
    found = explored(FULL)
    assert "LOAD-1 full_only_pre_evict" in text
    assert "beyond the scope" in text
    assert re.search(rf"TREE-1 .* a node +{found.laws_exercised['TREE-1']}\n", text)
    (value,) = json.loads(said(capsys, "--scope", "tiny_full", "--json", code=0))["explorations"]
    assert value["laws_exercised"] == found.laws_exercised
    assert value["not_exercised"] == list(found.not_exercised)


def test_a_scope_that_asks_nothing_exits_with_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scope in which a chosen law was not exercised exits with 1."""
    monkeypatch.setitem(SCOPES, "tiny_full", evolve(FULL, made_for=("LOAD-1",)))
    text = said(capsys, "--scope", "tiny_full", code=1)
    assert "NOT EXERCISED: LOAD-1" in text
    assert text.rstrip().endswith("NOT EXERCISED: laws that have to be, in tiny_full.")
    text = said(capsys, "--scope", "tiny_full", "--levels", "1", code=0)
    assert "not exhausted" in text


def test_the_tables_of_the_docs_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the tables of the docs, and nothing else."""
    text = said(capsys, "--scope", "tiny_full,tiny_host", "--markdown", code=0)
    assert all(line.startswith("|") or not line for line in text.splitlines())
    assert "| `tiny_full` | 40 | 522 |" in text
    assert "| together | 209 |" in text
    assert "| LOAD-4 `whole_prefix_comes` | a load-back that was enqueued | `tiny_host` |" in text


def test_most_scopes_are_told_by_the_others() -> None:
    """A cell with most of the scopes lists the exceptions instead."""
    text = markdown_of([explored(FULL), explored(WINDOW), explored(HOST)])
    assert "| TREE-4 `children_differ` | two children of one parent | all but `tiny_host` |" in text
    assert (
        "| ALLOC-4 `mapping_agrees` | a page with window data on the device | `tiny_window` |"
        in text
    )
    beyond = "a use of a prefix with window data out of its reach"
    assert f"| REC-1 `window_only_refresh` | {beyond} | none |" in text
    assert "| RES-1 `no_dead_node` | a node | all |" in text


def test_the_docs_have_every_scope() -> None:
    """Every scope has its row in the docs."""
    text = EXPLORED.read_text("utf-8")
    assert all(f"`{name}`" in text for group in GROUPS.values() for name in group)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--scope", "everything"), "there is no scope 'everything'; name"),
        (("--scope", ","), "names no scope"),
        (("--scope", "tiny_full", "--only", "LOAD-99"), "no law LOAD-99"),
        (("nonsense", "--scope", "tiny_full"), "no cache 'nonsense'"),
        (("faulty:OPAQUE", "--scope", "tiny_full", "--jobs", "1"), "shows no snapshot"),
        (("hash_blocks:ADAPTER", "--scope", "tiny_full"), "is used by requests"),
        (("faulty:NICKNAMED", "--scope", "tiny_host"), "tiny_host: it does not offer write_policy"),
    ],
)
def test_a_call_at_fault_exits_with_2(
    arguments: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong call exits with 2 and one line on stderr."""
    assert expected in usage_error(capsys, "explore", *arguments)
