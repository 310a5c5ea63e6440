"""The wheels of a release: which are built, and that one serves all Pythons from 3.12 on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from functools import partial
from pathlib import Path
from shutil import which

import pytest

from action_steps import read_yaml
from installed import QUICK, Release, build, installed, once, pip_wheel, run_well
from kvcanon.optimized import _core
from paths import ROOT

BIN = Path(sys.executable).parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CI = read_yaml((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
PINNED = (ROOT / "constraints.txt").read_text("utf-8")
RELEASE = (ROOT / ".github/workflows/release.yml").read_text("utf-8")

FITS = """
import sys, sysconfig
from pathlib import Path
assert sys.implementation.name == "cpython" and sys.version_info >= (3, 12)
assert not sysconfig.get_config_var("Py_GIL_DISABLED")
assert Path(sysconfig.get_path("include"), "Python.h").is_file()
print(sys.version_info.minor)
"""
"""Succeeds in a Python that can build for the stable ABI."""

USES = """
import sys
from array import array
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("kvcanon.optimized._core", sys.argv[1])
core = module_from_spec(spec)
spec.loader.exec_module(core)
cache = core.CacheCore(
    page_size=4, unit_words=1, window_tokens=0, mamba=False, device_slots=(9, 0, 0),
    host_slots=(0, 0, 0), write_policy=0, eviction_policy=0, load_back_threshold_pages=0,
    events=True,
)
prompt = array("i", range(400))
print(core.hash_ways(), cache._add_namespace(b"", bytes(32)), cache.free_slot_counts())
print(cache.match(prompt).prefix_pages, cache.lock(prompt, pages=0) > 0, cache.evict(2))
print(len(cache.take_events()), core.Tree(cache).pool_counts(0, 0))
try:
    core.hash_ways("two")
except TypeError as refused:
    print(refused)
"""
"""Loads a core by its path and calls what needs no NumPy: a Python without packages can run it."""


def stable_pythons() -> dict[int, Path]:
    """The CPythons of this machine that can build for the stable ABI, by their minor version."""
    named = [which(f"python3.{minor}") for minor in range(12, 20)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    paths = [sys.executable, *(path for path in named if path)]
    found: dict[int, Path] = {}
    for path in [*map(Path, paths), *pyenv.glob("versions/3.*/bin/python")]:
        done = subprocess.run([path, "-c", FITS], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.setdefault(int(done.stdout), path)
    return found


@pytest.fixture(scope="module")
def pythons() -> dict[int, Path]:
    """Those Pythons; at least one."""
    found = stable_pythons()
    if not found:
        pytest.skip("this machine has no CPython 3.12 or later with its headers")
    return found


def build_stable(stable: Release, sdist: Path, python: Path) -> None:
    """Build the wheel of the stable ABI."""
    done = pip_wheel(stable, sdist, "--config-settings", QUICK, python=python)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """What this Python builds, as installed: the same as in `test_packaging`."""
    return installed(tmp_path_factory.getbasetemp(), "release", build)


@pytest.fixture(scope="module")
def stable(
    release: Release, pythons: dict[int, Path], tmp_path_factory: pytest.TempPathFactory
) -> Release:
    """What the oldest of those Pythons builds from the same source."""
    make = partial(build_stable, sdist=release.sdist, python=pythons[min(pythons)])
    return once(tmp_path_factory.getbasetemp(), "stable", make)


@pytest.mark.nightly
def test_wheel_is_judged_where_no_compiler_is(release: Release) -> None:
    """The audit of `make wheel` passes, and the installed fast cache keeps the laws there."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    judge = (ROOT / ".ci/check-wheel", release.wheel, "--only", "vectors")
    report = run_well(*judge, cwd=release.elsewhere, env={"PATH": path})
    assert "manylinux_" in report or sys.platform != "linux"
    assert "No law is broken." in report


@pytest.mark.nightly
def test_stable_wheel_is_for_3_12_and_later(stable: Release) -> None:
    """The wheel of 3.12 says that later versions can use it, and keeps to what they promise."""
    assert stable.wheel.name.startswith("kvcanon-0.1.0-cp312-abi3-")
    run_well(BIN / "abi3audit", "--strict", stable.wheel, cwd=stable.elsewhere)


@pytest.mark.nightly
def test_stable_core_works_in_each_later_python(
    stable: Release, pythons: dict[int, Path], tmp_path: Path
) -> None:
    """Each later Python loads the core of that wheel, which answers as the core of this Python."""
    run_well(sys.executable, "-m", "zipfile", "-e", stable.wheel, tmp_path, cwd=tmp_path)
    core = tmp_path / "kvcanon/optimized/_core.abi3.so"
    wanted = run_well(sys.executable, "-c", USES, _core.__file__, cwd=tmp_path)
    for python in pythons.values():
        assert run_well(python, "-c", USES, core, cwd=tmp_path) == wanted


@pytest.mark.parametrize(
    ("platform", "architectures", "suffix"),
    [
        ("linux", "auto64", "manylinux_x86_64"),
        ("linux", "aarch64", "manylinux_aarch64"),
        ("macos", "x86_64,arm64", "macosx_arm64"),
    ],
)
def test_each_platform_has_its_wheels(platform: str, architectures: str, suffix: str) -> None:
    """Cibuildwheel builds for CPython 3.11 and 3.12, and tests with what came later."""
    ask = (BIN / "cibuildwheel", "--print-build-identifiers", "--platform", platform, "--archs")
    listed = run_well(*ask, architectures, ROOT, cwd=ROOT)
    assert listed.split() == [f"cp3{minor}-{suffix}" for minor in (11, 12, 13, 14)]


def test_release_builds_with_the_pinned_cibuildwheel() -> None:
    """The version that the tests above ask is the one that a release runs."""
    (pinned,) = re.findall(r"pypa/cibuildwheel@\w{40} # v([\d.]+)", RELEASE)
    assert f"\ncibuildwheel=={pinned}\n" in PINNED


def test_only_the_last_job_can_publish() -> None:
    """Jobs that build have no rights; the one that publishes runs for tags, and builds nothing."""
    workflow = read_yaml(RELEASE)
    assert workflow["permissions"] == {}
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items()}
    assert rights == {
        "sdist": {"contents": "read"},
        "wheels": {},
        "publish": {"id-token": "write", "attestations": "write"},
    }
    publish = workflow["jobs"]["publish"]
    assert publish["if"] == "github.event_name == 'push'"
    assert publish["environment"]["name"] == "pypi"
    assert set(publish["needs"]) == {"sdist", "wheels"}
    assert not [step for step in publish["steps"] if "run" in step]


@pytest.mark.parametrize(("tag", "code"), [("v{}", 0), ("{}", 1), ("v{}.1", 1), ("v", 1)])
def test_tag_is_the_version(tag: str, code: int) -> None:
    """A tag that is not the version of pyproject.toml ends the release before anything is built."""
    steps = read_yaml(RELEASE)["jobs"]["sdist"]["steps"]
    (check,) = [step["run"] for step in steps if step.get("name", "").startswith("Refuse a tag")]
    env = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "TAG": tag.format(PYPROJECT["project"]["version"]),
    }
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", check]
    done = subprocess.run(bash, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert ("::error::the tag is" in done.stdout) == bool(code)


def test_torch_range_is_what_is_tested() -> None:
    """The oldest and the newest torch of the range are those that CI runs the tests with."""
    (torch,) = [
        line
        for line in PYPROJECT["project"]["optional-dependencies"]["optimized"]
        if line.startswith("torch")
    ]
    low, high = re.findall(r"\d+\.\d+", torch)
    assert torch == f"torch>={low},<{high}"
    ran = {job["torch"] for job in CI["jobs"]["torch"]["strategy"]["matrix"]["include"]}
    minors = sorted(tuple(map(int, version.split(".")[:2])) for version in ran)
    major, minor = map(int, high.split("."))
    assert minors[0] == tuple(map(int, low.split(".")))
    assert minors[-1] == (major, minor - 1)
    (pinned,) = re.findall(r"^torch==([\d.]+)", PINNED, re.MULTILINE)
    assert minors[0] <= tuple(map(int, pinned.split(".")[:2])) <= minors[-1]
