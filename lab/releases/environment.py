"""Makes and finds the environments of releases.

An environment is a virtual environment with the published release, the pinned packages around it,
stand-ins for GPU-only packages, and a link to this project, so that a process there runs the same
kvcanon as the process that started it. The cache of a project without a published release is copied
from a folder that the user names; the manifest says from which commit.

The manifest is written last. A folder without a manifest is unfinished, and `make` resumes it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import cast

from attrs import frozen

from kvcanon import __version__
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import RELEASES, STAND_INS, Release
from kvcanon.lab.releases.source import check_source, copy_source
from kvcanon.lab.tied_program import run_tied

Run = Callable[[Sequence[str], Mapping[str, str]], None]
"""Runs a command with these variables, and raises `UsageError` if it fails."""

MANIFEST = "kvcanon-peer.json"
BESIDE = "kvcanon-beside"
"""The folder of an environment for stand-ins and the link to this project."""
_OURS_ALONE = ("PYTHONHOME", "PYTHONPATH", "VIRTUAL_ENV")
"""Variables of our own interpreter, which another interpreter must not inherit."""
_RESOURCES = files("kvcanon.lab.releases")


@frozen
class Peer:
    """A finished environment."""

    release: Release
    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return _python(self.folder)

    @property
    def variables(self) -> dict[str, str]:
        """The variables of a process there."""
        ours = {name: value for name, value in os.environ.items() if name not in _OURS_ALONE}
        return ours | dict(self.release.environment)

    @property
    def stubbed(self) -> dict[str, str]:
        """The replaced packages, and what the stand-in of each does."""
        return {name: STAND_INS[name].what for name in self.release.stand_ins}

    @property
    def packages(self) -> Path:
        """The folder of its installed packages."""
        return Path(sysconfig.get_path("purelib", "venv", {"base": str(self.folder)}))

    @property
    def copied(self) -> str:
        """Where its cache was copied from; empty if it was installed."""
        manifest = self.folder / MANIFEST
        if self.release.source is None or not manifest.is_file():
            return ""
        return cast("str", json.loads(manifest.read_text(encoding="utf-8"))["source"])


def usual_folder() -> Path:
    """The default folder of environments."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "kvcanon" / "peers"


def peers_in(folder: Path) -> dict[str, Peer]:
    """The finished environments in a folder, by the name of their release.

    Each gets this kvcanon: one that another checkout made would run the code of that one.
    """
    found = {
        release.name: Peer(release, folder / release.folder)
        for release in RELEASES.values()
        if (folder / release.folder / MANIFEST).is_file()
    }
    for peer in found.values():
        _link_ours(peer.packages / BESIDE)
    return found


def commands(release: Release, folder: Path) -> list[list[str]]:
    """The commands that fill an environment, in order."""
    python = str(_python(folder))
    pins = [str(_RESOURCES / "pins" / f"{name}.txt") for name in release.pins]
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    made = [[sys.executable, "-m", "venv", str(folder)]]
    if "torch" in pinned_names(release):
        # Only torch is installed with dependencies; a CPU build, if the index has one, needs none.
        made.append([*install, *(f"--constraint={each}" for each in pins), "torch"])
    # The pins are complete: every other requirement of a release needs a GPU or a server.
    made.append([*install, "--no-deps", *(f"--requirement={each}" for each in pins)])
    if release.hashed:
        hashed = _RESOURCES / "pins" / f"{release.folder}.sha256"
        made.append([*install, "--no-deps", "--require-hashes", "--requirement", str(hashed)])
    elif release.source is None:
        made.append([*install, "--no-deps", release.name])
    return made


def pinned_names(release: Release) -> set[str]:
    """The packages that are pinned for a release, in lower case."""
    files = [_RESOURCES / "pins" / f"{name}.txt" for name in release.pins]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return {line.partition("==")[0].lower() for line in lines if not line.startswith("#")}


def make(release: Release, into: Path, run: Run, source: Path | None = None) -> Peer:
    """Make the environment of a release in a folder, or return an existing one.

    `source` is the folder of a project without a published release. An existing environment gets
    its files again, or keeps what it has if no folder is given.

    Raises:
        UsageError: the folder has other contents, a command failed, or the source is missing, not
            that of the project, or not needed.
    """
    peer = Peer(release, into / release.folder)
    finished = (peer.folder / MANIFEST).is_file()
    check_source(release, source, needed=not finished)
    if finished and source is None:
        _put_beside(peer)
        return peer
    if _is_something_else(peer.folder):
        raise UsageError(f"{peer.folder} holds something else; name another folder with --into")
    for command in () if finished else commands(release, peer.folder):
        run(command, peer.variables)
    (peer.folder / MANIFEST).unlink(missing_ok=True)
    _put_beside(peer)
    copied = {} if source is None else {"source": copy_source(release, source, peer.packages)}
    run([str(peer.python), "-c", _probe(release)], peer.variables)
    python = sys.version.split()[0]
    manifest = {"release": release.name, "stubbed": peer.stubbed, "python": python} | copied
    (peer.folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return peer


def _probe(release: Release) -> str:
    """A program that fails where the caches or our command line lack a package.

    A command is run, since typer imports some of what it needs only then.
    """
    laws = "from kvcanon.conformance import cli; sys.exit(cli.main(['laws', 'TREE-1']))"
    return f"import sys, {release.probe}; {laws}"


def run_command(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Run a command quietly. Raises: UsageError, with the last line of its output."""
    done = run_tied(command, env=variables)
    if done.returncode:
        lines = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
        raise UsageError(f"{' '.join(command)} failed: {lines[-1]}")


def _is_something_else(folder: Path) -> bool:
    return folder.exists() and not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir())


def _python(folder: Path) -> Path:
    return Path(sysconfig.get_path("scripts", "venv", {"base": str(folder)})) / "python"


def _put_beside(peer: Peer) -> None:
    """Add the stand-ins and this project at the end of the environment's import path.

    They are in a folder of their own, which a .pth file adds after the installed packages, so that
    an installed package wins over its stand-in.
    """
    beside = peer.packages / BESIDE
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    for name in peer.release.stand_ins:
        (beside / name).mkdir(parents=True)
        for file, source in STAND_INS[name].files.items():
            text = (_RESOURCES / "stand_ins" / source).read_text(encoding="utf-8")
            (beside / name / file).write_text(text, encoding="utf-8")
    _link_ours(beside)
    facts = beside / f"kvcanon-{__version__}.dist-info" / "METADATA"
    facts.parent.mkdir()
    named = f"Metadata-Version: 2.1\nName: kvcanon\nVersion: {__version__}\n"
    facts.write_text(named, encoding="utf-8")
    (peer.packages / f"{BESIDE}.pth").write_text(f"{BESIDE}\n", encoding="utf-8")


def _link_ours(beside: Path) -> None:
    """Let the environment import this kvcanon, unless it does so already."""
    link, ours = beside / "kvcanon", Path(str(files("kvcanon")))
    if not beside.is_dir() or (link.is_symlink() and link.readlink() == ours):
        return
    # In one step, since another process may be importing it.
    made = beside / f"kvcanon-{os.getpid()}"
    made.symlink_to(ours, target_is_directory=True)
    made.replace(link)
