"""Copies the cache of a project without a published release from a folder that the user names.

Only the files of the cache are copied. What was copied is recorded by the commit of the folder, if
it is a git checkout whose cache files are unchanged, and always by a digest of the files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.catalogue import Release, SourceFiles

SOURCE = "kvcanon-source"
"""The folder of the copied files, in an environment's folder of packages."""
_GIT_SECONDS = 20


def check_source(release: Release, source: Path | None, *, needed: bool) -> None:
    """Check that a source folder is given where one is needed, and has the cache's files.

    Raises: UsageError.
    """
    if release.source is None:
        if source is not None:
            raise UsageError(f"{release.name} comes from the package index; leave out --source")
        return
    if source is None:
        if needed:
            raise UsageError(
                f"no package index has {release.name}; name a folder with its source by --source"
            )
        return
    root = source / release.source.root
    missing = [file for file in release.source.files if not (root / file).is_file()]
    if missing:
        raise UsageError(f"{root} has no {missing[0]}; name the folder of {release.name} itself")


def copy_source(release: Release, source: Path, packages: Path) -> str:
    """Copy the cache's files into a folder of packages; returns what was copied, in words."""
    if release.source is None:
        return ""
    target, root = packages / SOURCE, source / release.source.root
    shutil.rmtree(target, ignore_errors=True)
    for file in release.source.files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file, target / file)
    (packages / f"{SOURCE}.pth").write_text(f"{SOURCE}\n", encoding="utf-8")
    commit = _commit_of(root, release.source)
    where = f"commit {commit}" if commit else "no commit"
    return f"{where}, SHA-256 of its cache files {digest_of(root, release.source)}"


def digest_of(root: Path, source: SourceFiles) -> str:
    """The SHA-256 over names and contents of the cache's files."""
    digest = hashlib.sha256()
    for file in source.files:
        content = (root / file).read_bytes()
        digest.update(f"{file}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


def _commit_of(root: Path, source: SourceFiles) -> str:
    """The commit of a git checkout; empty if there is none, or its cache files were changed."""
    paths = [str(root / file) for file in source.files]
    # `ls-files` fails for files that git does not track: a copy inside another repository.
    if _git(root, "ls-files", "--error-unmatch", "--", *paths) is None:
        return ""
    changed = _git(root, "status", "--porcelain", "--", *paths)
    return "" if changed is None or changed else _git(root, "rev-parse", "HEAD") or ""


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command; None if it failed or there is no git."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, check=False, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else done.stdout.strip()
