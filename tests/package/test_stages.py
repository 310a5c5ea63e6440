"""How `.ci/stages` runs what CI consists of: what fails ends it or not, and is named at the end."""

import subprocess
from pathlib import Path

STAGES = Path(__file__).parents[2] / ".ci" / "stages"


def played(script: str) -> subprocess.CompletedProcess[str]:
    """What a script says that begins with the stages."""
    return subprocess.run(
        ["/bin/bash", "-c", f"set -euo pipefail; . {STAGES}; {script}"],
        capture_output=True,
        text=True,
        check=False,
    )


def test_sound_stages_end_with_their_times() -> None:
    """All stages sound: their times, and nothing else."""
    said = played("stage one 5 echo a; try_stage two 5 echo b; stages_end")
    assert said.returncode == 0
    assert "== two: echo b\nb\n" in said.stdout
    assert "0 s of      5  one\n" in said.stdout
    assert said.stderr == ""


def test_a_stage_that_fails_ends_the_run() -> None:
    """The next stage is not begun."""
    said = played("stage one 5 false; stage two 5 echo b; stages_end")
    assert said.returncode == 1
    assert "two" not in said.stdout
    assert said.stderr == "failed: one\n"


def test_a_tried_stage_that_fails_lets_the_others_run_and_is_named() -> None:
    """The next stage runs; the end fails."""
    said = played("try_stage one 5 false; try_stage two 5 echo b; stages_end; echo on")
    assert said.returncode == 1
    assert "== two: echo b\nb\n" in said.stdout
    assert not said.stdout.endswith("on\n")
    assert said.stderr == "failed: one\n"


def test_a_stage_over_its_budget_by_half_fails() -> None:
    """A slow stage is named."""
    said = played("stage slow 0 sleep 1; stages_end")
    assert said.returncode == 1
    assert said.stderr.startswith("over the budget by half: slow;")
