"""Runs the shell steps of action.yml as the runner of GitHub Actions does, in a scratch folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from ruamel.yaml import YAML

from paths import ROOT


def read_yaml(text: str) -> Any:  # noqa: ANN401 # YAML
    """The value of a YAML document."""
    return YAML(typ="safe", pure=True).load(text)


ACTION = read_yaml((ROOT / "action.yml").read_text("utf-8"))


@frozen
class StepRun:
    """What a step did."""

    code: int
    output: str
    """What the runner reads: stdout and stderr."""
    outputs: Mapping[str, str]
    summary: str


def step(name: str) -> Mapping[str, Any]:
    """The step of the action with this name."""
    return next(each for each in ACTION["runs"]["steps"] if each["name"] == name)


def run_step(name: str, folder: Path, inputs: Mapping[str, str], **env: str) -> StepRun:
    """Run a shell step with these inputs of the action, and the usual value of each other."""
    chosen = step(name)
    usual = {key: str(each.get("default", "")) for key, each in ACTION["inputs"].items()}
    values = {**usual, **inputs}
    assert values.keys() == ACTION["inputs"].keys()
    files = {key: folder / key for key in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("", "utf-8")
    (folder / "temp").mkdir(exist_ok=True)
    script = folder / "step.sh"
    script.write_text(chosen["run"], "utf-8")
    given = {key: _evaluated(value, values) for key, value in chosen["env"].items()}
    runner = {key: str(file) for key, file in files.items()} | {
        "RUNNER_TEMP": str(folder / "temp"),
        "GITHUB_ACTION_PATH": str(ROOT),
        # `python` is the one that runs this test.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    at = _evaluated(chosen.get("working-directory", "."), values)
    done = subprocess.run(
        ["/usr/bin/env", "bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder / at,
        env=os.environ | runner | given | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=600,
    )
    lines = files["GITHUB_OUTPUT"].read_text("utf-8").splitlines()
    outputs = dict(line.split("=", 1) for line in lines)
    summary = files["GITHUB_STEP_SUMMARY"].read_text("utf-8")
    return StepRun(done.returncode, done.stdout, outputs, summary)


def _evaluated(text: str, inputs: Mapping[str, str]) -> str:
    """A value with its expressions replaced; the action uses its inputs alone."""
    return re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: inputs[found[1]], text)
