"""Builds what a release uploads, and installs it as a user has it, far from the checkout."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from paths import ROOT

NO_COMPILER = {"CXX": "/bin/false"}
"""The environment of a machine on which nothing compiles."""

NO_CORE = "kvcanon.core=off"
"""The setting that leaves the fast cache out."""

QUICK = "cmake.define.CMAKE_CXX_FLAGS_RELEASE=-O0"
"""The setting that leaves optimizing out, which takes a third of the time of a build."""


def run(
    *command: str | Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command away from the checkout, and without the paths that this test run was given."""
    own = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own |= env or {}
    return subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)


def run_well(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that must succeed, and return what it printed."""
    done = run(*command, cwd=cwd, env=env)
    assert done.returncode == 0, f"{command} exited {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


@frozen
class Release:
    """What a release uploads, and an environment of a user who installed it."""

    home: Path

    @property
    def sdist(self) -> Path:
        """The source distribution."""
        (found,) = self.home.glob("dist/*.tar.gz")
        return found

    @property
    def wheel(self) -> Path:
        """The wheel, which was built from the source distribution."""
        (found,) = self.home.glob("dist/*.whl")
        return found

    @property
    def environment(self) -> Path:
        """The user's environment."""
        return self.home / "environment"

    @property
    def elsewhere(self) -> Path:
        """An empty folder to run commands from."""
        return self.home / "elsewhere"

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the user's environment."""
        return run(self.environment / "bin" / command, *arguments, cwd=self.elsewhere)

    def python(self, code: str) -> str:
        """Run code there that must succeed, and return what it printed."""
        return run_well(self.environment / "bin/python", "-c", code, cwd=self.elsewhere)


def build_sdist(release: Release) -> None:
    """Build the source distribution alone."""
    build_one = (sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir")
    run_well(*build_one, release.home / "dist", ROOT, cwd=release.elsewhere)


def build(release: Release) -> None:
    """Build the source distribution, and the wheel from that, as `make wheel` does."""
    build_both = (sys.executable, "-m", "build", "--no-isolation", f"-C{QUICK}", "--outdir")
    run_well(*build_both, release.home / "dist", ROOT, cwd=release.elsewhere)


def pip_wheel(
    release: Release,
    sdist: Path,
    *options: str,
    python: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Build a wheel from a source distribution as pip does, with this Python or another.

    The build backend is pure Python: another Python gets it from this environment.
    """
    command = (python or sys.executable, "-m", "pip", "wheel", "--no-cache-dir", "--no-deps")
    target = ("--no-build-isolation", "--wheel-dir", release.home / "dist")
    lent = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if "site-packages" in path)}
    own = {**(lent if python else {}), **(env or {})}
    return run(*command, *target, *options, sdist, cwd=release.elsewhere, env=own)


def install(release: Release) -> None:
    """Install the wheel alone, and lend its environment the third parties of this one.

    To lend is to append a path to the end of the search, so that no dependency is downloaded. The
    .pth files of a folder that is lent so are not read, and the editable install of the checkout,
    which is one, stays behind.
    """
    python = release.environment / "bin/python"
    pip_install = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run_well(
        sys.executable, "-m", "venv", "--without-pip", release.environment, cwd=release.elsewhere
    )
    run_well(*pip_install, "--no-deps", "--no-index", release.wheel, cwd=release.elsewhere)
    own = release.python("import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    lent = sysconfig.get_path("purelib")
    (Path(own) / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")


def once(base: Path, name: str, make: Callable[[Release], None]) -> Release:
    """Make a release once for all tests of a run, in whichever workers they run."""
    # Each worker's folder lies in the run's; without workers the run has just the one.
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    release = Release(shared / name)
    release.elsewhere.mkdir(parents=True, exist_ok=True)
    done = release.home / "done"
    with (release.home / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            make(release)
            done.touch()
    return release


def installed(base: Path, name: str, make: Callable[[Release], None]) -> Release:
    """Make a release once, and install it."""

    def both(release: Release) -> None:
        make(release)
        install(release)

    return once(base, name, both)
