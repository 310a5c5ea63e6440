"""The version of this package with the commit that it was made of, where that is known."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

SHOWN = 12
"""How many digits of a commit are shown."""


def version_line() -> str:
    """The line of `kvcanon --version`."""
    found = commit()
    version = distribution("kvcanon").version
    return f"kvcanon {version}" + ("" if found is None else f" (commit {found[:SHOWN]})")


def commit() -> str | None:
    """The commit of the checkout that this is, or that pip installed; None if that is unknown."""
    git = Path(__file__).resolve().parents[2] / ".git"
    if git.exists():
        return commit_of_checkout(git)
    try:
        origin = distribution("kvcanon").read_text("direct_url.json")
    except PackageNotFoundError:  # A copy of the sources alone, as `make gpu` may have.
        return None
    found = None if origin is None else json.loads(origin).get("vcs_info", {}).get("commit_id")
    return found if isinstance(found, str) else None


def commit_of_checkout(git: Path) -> str | None:
    """The commit that is checked out, by the files of Git; None if they do not say it.

    Git itself would do it, and takes as long as all the rest of `kvcanon --version`.
    """
    try:
        if git.is_file():  # That of a second work tree names the folder.
            git = git.parent / git.read_text("utf-8").removeprefix("gitdir: ").strip()
        head = (git / "HEAD").read_text("utf-8").strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        shared = git / "commondir"
        common = git / shared.read_text("utf-8").strip() if shared.exists() else git
        if (common / name).exists():
            return (common / name).read_text("utf-8").strip()
        packed = (common / "packed-refs").read_text("utf-8").splitlines()
    except OSError:
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
