"""action.yml and the workflows: what the action runs, and what linters say of all of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from action_steps import ACTION, StepRun, read_yaml, run_step, step
from kvcanon.spec.law import SITE
from nights import at_night
from paths import DOCS, HELPERS, ROOT, TESTS

BIN = Path(sys.executable).parent
NO_CORE = "--config-settings=kvcanon.core=off"
JUDGE, INSTALL = "Judge the cache", "Install kvcanon"
PATHS = f"{HELPERS}:{TESTS}"

FEW = """
from attrs import evolve
from kvcanon.conformance.check.plan import EFFORTS
from reported import Forgetful, Crashing
from kvcanon.reference import ReferenceCache as Sound

EFFORTS["quick"] = evolve(
    EFFORTS["quick"], walker_cases=12, machine_cases=0, ranks_cases=0, corpus_cases=0, store_cases=0
)
"""
"""Caches whose check plays few cases."""


def judge(folder: Path, **inputs: str) -> StepRun:
    """Run the step that judges."""
    (folder / "few.py").write_text(FEW, "utf-8")
    named = {key.replace("_", "-"): value for key, value in inputs.items()}
    return run_step(JUDGE, folder, named, PYTHONPATH=PATHS)


def test_broken_cache_fails_with_annotation_summary_and_reports(tmp_path: Path) -> None:
    """A broken law fails the step, and is named in an annotation, the summary and the reports."""
    done = judge(tmp_path, cache="few:Forgetful", only="walker,LOCK-8")
    assert done.code == 1
    assert done.outputs["exit-code"] == "1"
    (line,) = re.findall(r"^::error .*$", done.output, re.MULTILINE)
    assert line == (
        "::error title=LOCK-8 release_mirrors::few:Forgetful: "
        "receipt 1 is still open after its release"
        f"%0AThe law: {SITE}laws/LOCK-8/"
    )
    assert done.summary.startswith(
        "## kvcanon: few:Forgetful failed\n\nBROKEN (sound): LOCK-8. Played "
    )
    row = rf"| few:Forgetful | [LOCK-8 release\_mirrors]({SITE}laws/LOCK-8/) | receipt 1 is"
    assert row in done.summary
    assert "Failure 1: LOCK-8" in done.summary
    reports = Path(done.outputs["reports"])
    assert json.loads((reports / "report.json").read_text("utf-8"))["verdict"] == "broken"
    assert ET.parse(reports / "junit.xml").getroot().get("failures") == "1"  # noqa: S314
    assert (reports / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")
    assert [path.name for path in (reports / "scripts").iterdir()] == ["few_Forgetful-LOCK_8.py"]


@pytest.mark.nightly
def test_sound_caches_pass(tmp_path: Path) -> None:
    """Caches in a line each, from another folder, pass without annotations."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "few.py").write_text(FEW, "utf-8")
    caches = "\n  few:Sound  \n\nreference\n"
    done = judge(
        tmp_path, cache=caches, working_directory="sub", only="vectors,LOCK-8", seed="date"
    )
    assert done.code == 0, done.output
    assert "::error" not in done.output
    assert done.summary.startswith("## kvcanon: few:Sound, reference passed\n")
    assert re.search(r"quick effort, seed 20\d{6}\n", done.output)


@pytest.mark.nightly
def test_every_input_reaches_the_check(tmp_path: Path) -> None:
    """Each input is an option of the command line, also with spaces and quotes in it."""
    known = tmp_path / "known laws.toml"
    why = 'reason = "on \'purpose\'"\nlink = "https://example.org/1"\n'
    known.write_text(f'[[known]]\nlaw = "LOCK-8"\n{why}', "utf-8")
    chosen = {"known": known.name, "against": "reference", "only": "vectors,LOCK-8"}
    done = judge(tmp_path, cache="few:Forgetful", strict="true", seed="7", **chosen)
    assert "seed 7, against reference" in done.output
    assert "LOCK-8 release_mirrors: on 'purpose'" in " ".join(done.output.split())
    done = judge(
        tmp_path, cache="few:Sound", black_box="true", shard="2/3", only="vectors,TREE-1,MATCH-1"
    )
    assert "only shard 2/3 was played" in " ".join(done.output.split())
    assert "TREE-1: not offered: the cache has no snapshot" in " ".join(done.output.split())
    for wrong in ({"effort": "huge"}, {"minutes": "many"}, {"store": "x", "shard": "1/2"}):
        done = judge(tmp_path, cache="few:Sound", **wrong)
        assert (done.code, done.outputs["exit-code"]) == (2, "2"), done.output


@pytest.mark.parametrize(
    "cache", ["nowhere:make", "$(touch made)", *at_night("", "--help", "; touch made")]
)
def test_what_is_no_cache_is_annotated(tmp_path: Path, cache: str) -> None:
    """A wrong name ends with exit code 2 and is never run as a command."""
    done = judge(tmp_path, cache=cache)
    assert done.code == 2
    assert done.outputs["exit-code"] == "2"
    assert not (tmp_path / "made").exists()
    if cache:
        assert re.search(r"^::error title=kvcanon::.", done.output, re.MULTILINE)
        assert done.summary.startswith("## kvcanon: nothing was judged\n")


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [
        ({}, [NO_CORE, f"{ROOT}[suite]"]),
        ({"store": "redis://host"}, [NO_CORE, f"{ROOT}[suite,redis]"]),
        ({"install": "kvcanon[suite]==0.1.0"}, ["kvcanon[suite]==0.1.0"]),
    ],
)
def test_what_is_installed(tmp_path: Path, inputs: dict[str, str], installed: list[str]) -> None:
    """The action installs itself, with its inputs' extras and no core, or what it is given."""
    fake = tmp_path / "pip.py"
    fake.write_text("import sys; print(sys.argv[1:])", "utf-8")
    done = run_step(INSTALL, tmp_path, {"cache": "x", **inputs}, PYTHONPATH=str(tmp_path))
    assert done.code == 0, done.output
    assert done.output.strip() == str(["install", "--quiet", *installed])


# Linters.


def lint(tool: str, *arguments: str) -> None:
    """Run a linter of this environment; its findings are the message of the failure."""
    done = subprocess.run([BIN / tool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def schema(kind: str, *files: Path) -> None:
    """Check files by a schema that check-jsonschema brings along."""
    lint("check-jsonschema", "--builtin-schema", f"vendor.{kind}", *map(str, files))


def test_action_and_workflows_fit_their_schemas() -> None:
    """action.yml and the workflows fit GitHub's schemas."""
    schema("github-actions", ROOT / "action.yml")
    schema("github-workflows", *WORKFLOWS)


def test_action_and_workflows_are_safe() -> None:
    """Zizmor finds nothing in them: no injected templates, no actions without a hash."""
    lint("zizmor", "--offline", "--quiet", str(ROOT / "action.yml"), str(ROOT / ".github"))


@pytest.mark.parametrize("name", [JUDGE, INSTALL])
def test_shell_steps_pass_shellcheck(tmp_path: Path, name: str) -> None:
    """The shell steps pass shellcheck."""
    script = tmp_path / "step.sh"
    script.write_text(f"#!/usr/bin/env bash\nset -eo pipefail\n{step(name)['run']}", "utf-8")
    lint("shellcheck", str(script))


WORKFLOWS = sorted((ROOT / ".github" / "workflows").iterdir())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_steps_of_workflows_pass_shellcheck(tmp_path: Path, workflow: Path) -> None:
    """So do the steps of the workflows."""
    jobs = read_yaml(workflow.read_text("utf-8"))["jobs"].values()
    runs = [each["run"] for job in jobs for each in job["steps"] if "run" in each]
    assert runs
    for number, run in enumerate(runs):
        (tmp_path / f"{number}.sh").write_text(f"#!/usr/bin/env bash\nset -eo pipefail\n{run}")
    lint("shellcheck", *map(str, tmp_path.iterdir()))


def test_action_names_inputs_that_it_has() -> None:
    """Each input is used, and each input that is used exists."""
    text = (ROOT / "action.yml").read_text("utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == ACTION["inputs"].keys()


# docs/ci.md.

BLOCKS = re.findall(r"```yaml\n(.*?)```", (DOCS / "ci.md").read_text("utf-8"), re.DOTALL)


def test_page_shows_both_servers() -> None:
    """The page has workflows of GitHub and pipelines of GitLab."""
    assert sum("runs-on:" in block for block in BLOCKS) >= 3
    assert sum("image:" in block for block in BLOCKS) >= 1


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_of_the_page_is_linted(tmp_path: Path, number: int) -> None:
    """Each YAML block in docs/ci.md fits its schema, and is safe; its inputs exist."""
    block = BLOCKS[number]
    if "runs-on:" not in block:
        file = tmp_path / ".gitlab-ci.yml"
        file.write_text(block, "utf-8")
        schema("gitlab-ci", file)
        return
    folder = tmp_path / ".github" / "workflows"
    folder.mkdir(parents=True)
    file = folder / "judge.yml"
    # The reader puts the hash of a release in the place of HASH.
    file.write_text(block.replace("@HASH", f"@{'0' * 40}"), "utf-8")
    schema("github-workflows", file)
    lint("zizmor", "--offline", "--quiet", str(file))
    steps = [each for job in read_yaml(block)["jobs"].values() for each in job["steps"]]
    used = [each for each in steps if each.get("uses", "").startswith("OWNER/kvcanon@")]
    assert used or any("kvcanon" in each.get("run", "") for each in steps)
    for each in used:
        assert "cache" in each["with"]
        assert each["with"].keys() <= ACTION["inputs"].keys()
