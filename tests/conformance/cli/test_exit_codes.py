"""Exit codes: 0 stands for a verdict, whatever the cache or the reader of stdout do."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from attrs import evolve

import kvcanon.__main__ as kvcanon_main
from command_line import KVCANON, read, usage_error
from killed import left_after_a_kill
from kvcanon.conformance.check.plan import EFFORTS
from kvcanon.conformance.cli import check as check_cli
from kvcanon.conformance.cli import main, terminal
from kvcanon.conformance.cli.command_line import INTERRUPTED
from kvcanon.conformance.cli.terminal import signs_of_life
from kvcanon.conformance.workers.allowance import VARIABLE
from nights import at_night
from paths import HELPERS, ROOT

SERVING = f"{sys.executable} -m kvcanon.conformance.protocol.pipe_server"


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play few cases, with a short limit."""
    few = evolve(
        EFFORTS["quick"],
        walker_cases=16,
        machine_cases=2,
        run=2,
        ranks_cases=4,
        corpus_cases=0,
        store_cases=4,
    )
    monkeypatch.setitem(EFFORTS, "quick", few)
    monkeypatch.setenv(VARIABLE, "1.5")


@pytest.mark.parametrize("jobs", ["1", *at_night("2")])
@pytest.mark.parametrize("way", ["leave", "leave_at_once", "interrupt"])
def test_a_cache_that_ends_its_process_fails_the_check(
    way: str, jobs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check of a cache that exits with 0 exits with 1, and reports the calls and a script."""
    options = ("--only", "walker", "--jobs", jobs, "--scripts", str(tmp_path))
    printed = read(capsys, "check", f"deadly:match_{way}", *options, code=1)
    assert "Failure 1: crash: " in printed
    assert "match(key_1)" in printed
    (script,) = tmp_path.iterdir()
    assert "cache.match(" in script.read_text(encoding="utf-8")


@pytest.mark.nightly
def test_a_hang_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that hangs in native code is reported, with the stack and the calls."""
    monkeypatch.setenv(VARIABLE, "0.4")
    options = ("--only", "walker", "--jobs", "1")
    assert main(["check", "deadly:match_hold_the_interpreter", *options]) == 1
    printed = capsys.readouterr().out
    assert "in hold_the_interpreter" in printed
    assert "no answer within" in printed


@pytest.mark.parametrize("way", ["leave", "leave_at_once", "abort"])
def test_a_cache_that_cannot_be_made_is_a_usage_error(
    way: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If every factory call is deadly, the check exits with 2 and one line."""
    assert "made no cache: it" in usage_error(capsys, "check", f"deadly:unmade_{way}")


def test_other_commands_are_not_ended_as_if_all_were_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """sys.exit(0) in a cache that is replayed is a usage error, too."""
    said = usage_error(capsys, "replay", "deadly:match_leave", "--limit", "3")
    assert "sys.exit(0)" in said


@pytest.mark.parametrize(
    ("way", "words"),
    [("leave_at_once", "exit code 0"), ("read_at_zero", "SIGSEGV"), ("leave", "sys.exit(0)")],
)
def test_a_replay_is_not_ended_as_if_all_were_well(
    way: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that ends the process of a replay gives exit code 2 and one line."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}:{HELPERS}")
    done = subprocess.run(
        [*KVCANON, "replay", f"deadly:match_{way}", "--limit", "3"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert words in done.stderr.splitlines()[-1]
    assert not done.stdout


def test_a_closed_pipe_does_not_change_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check whose reader is gone exits with the code of its verdict, without a word."""
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'tests'}:{HELPERS}")
    arguments = ("check", "reported:Forgetful", "--only", "LOCK-8,vectors", "--jobs", "1")
    with subprocess.Popen(
        [*KVCANON, *arguments, "--json", str(tmp_path / "report.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=HELPERS,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read().startswith(b"Wrote ")
        assert process.wait() == 1


def test_progress_without_a_terminal_shows_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no bar can be drawn, a line says how many of the items are done."""
    monkeypatch.setattr(terminal, "signs_of_life", lambda: signs_of_life(0.05))
    with terminal.progress("abc", "letters") as shown:
        for each in shown:
            assert each in "abc"
            time.sleep(0.15)
    lines = capsys.readouterr().err.splitlines()
    assert "kvcanon: letters: 0 of 3, and goes on" in lines
    assert "kvcanon: letters: 2 of 3, and goes on" in lines


def test_a_silent_command_shows_that_it_lives(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal a line says now and then how far the check is."""
    with signs_of_life(0.05) as note:
        note("walker, mine", 48, 800)
        time.sleep(0.2)
        note("machine, mine", 5, None)
        time.sleep(0.2)
    lines = set(capsys.readouterr().err.splitlines())
    assert "kvcanon: walker, mine: 48 of 800, and goes on" in lines
    assert "kvcanon: machine, mine: 5, and goes on" in lines


def test_a_wrong_limit_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit of the environment that is no number is refused at once."""
    monkeypatch.setenv(VARIABLE, "soon")
    assert "KVCANON_ACTION_SECONDS is 'soon'" in usage_error(capsys, "check", "reference")


@pytest.mark.parametrize(
    ("arguments", "least"),
    [
        (("check", "deadly:match_hold_the_interpreter", "--jobs", "2", "--only", "walker"), 2),
        (("check", "deadly:match_loop", "--jobs", "1", "--only", "walker"), 1),
        (("check", f"pipe:{SERVING} deadly:match_loop", "--jobs", "1", "--only", "walker"), 2),
        (("explore", "reference", "--jobs", "2"), 2),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_no_process_outlives_a_killed_command(
    arguments: tuple[str, ...], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After SIGKILL of a command none of its processes is left, not even in a native loop."""
    monkeypatch.setenv(VARIABLE, "300")
    assert not left_after_a_kill(arguments, least)


def test_a_verdict_is_needed_for_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other end of the check's own code gives 0 either."""

    def leave(*_: object, **__: object) -> None:
        raise SystemExit(0)

    monkeypatch.setattr(check_cli, "check", leave)
    assert main(["check", "reference"]) == 2


def test_interrupt_while_the_command_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Imports take most of a second: Ctrl-C in them ends as later, without a traceback."""

    def interrupted(_name: str) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(kvcanon_main, "import_module", interrupted)
    assert kvcanon_main.main() == INTERRUPTED
