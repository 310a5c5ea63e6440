"""Folders of stores: one process opens one at a time, and what is not ours is moved aside.

A store has a folder of its own inside of the one that a user names, called by its identity. The
folders of other models there give way: the oldest is removed when a store needs the room.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from attrs import frozen

from kvcanon.disk.errors import DiskUnusable
from kvcanon.disk.identity import FORMAT, DiskIdentity
from kvcanon.disk.journal import UNFINISHED

LOCK = "lock"
SLAB = "slab"
JOURNAL = "journal"
FACTS = "identity.json"
"""What the identity was made from, for people."""
CURRENT = "current"
"""The header of the journal that goes with the slab: an old copy of a journal has another."""
_FILES = (LOCK, SLAB, JOURNAL, FACTS, CURRENT)
_OWN = {*_FILES, *(name + UNFINISHED for name in _FILES)}
_NAME = re.compile(r"[0-9a-f]{32}-[\w.-]+")
_LOG = logging.getLogger(__name__)


@frozen
class OpenFolder:
    """A folder that this process has opened and locked against other processes."""

    path: Path
    lock: int

    def close(self) -> None:
        """Let others have it."""
        os.close(self.lock)


def open_folder(root: Path, identity: DiskIdentity) -> OpenFolder:
    """Make the folder of an identity, and lock it. Raises: DiskUnusable."""
    path = root / identity.folder
    try:
        for _ in range(3):
            if path.exists() and not path.is_dir():
                move_aside(path, "it is no folder")
            path.mkdir(parents=True, exist_ok=True)
            folder = OpenFolder(path, _locked(path))
            strange = _what_is_strange(path)
            if not strange:
                with suppress(OSError):  # They are for people; a full disk does without.
                    _write_facts(path / FACTS, identity)
                return folder
            move_aside(path, strange)
            folder.close()
    except OSError as error:
        raise DiskUnusable(
            f"{path} cannot be used as a folder of pages: {error.strerror or error}; "
            "name a folder that this user may write to"
        ) from error
    raise DiskUnusable(f"{path} is filled by another program; name another folder")


def move_aside(path: Path, why: str) -> None:
    """Rename what is in the way, and say so. Raises: OSError."""
    for number in count(1):
        aside = path.with_name(f"{path.name}.aside-{number}")
        if not aside.exists():
            path.rename(aside)
            _LOG.warning("%s was moved to %s, since %s", path, aside.name, why)
            return


def _locked(path: Path) -> int:
    """Lock a folder for this process. Raises: DiskUnusable, if another has it."""
    lock = path / LOCK
    if lock.exists() and not lock.is_file():
        move_aside(lock, "it is no file")
    file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise DiskUnusable(
            f"{path} is open in another process; give each server a folder of its own"
        ) from error
    return file


def _what_is_strange(path: Path) -> str:
    """What in a folder no store of this format has written; empty if all is ours."""
    for each in path.iterdir():
        if each.name not in _OWN:
            return f"it has {each.name}, which is not of a store of pages"
        if not each.is_file() or each.is_symlink():
            return f"its {each.name} is no file"
    try:
        version = json.loads((path / FACTS).read_text("utf-8"))["format"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # Without it, or with a damaged one, the records themselves say whose they are.
    return "" if version == FORMAT else f"its format is {version}, and this is {FORMAT}"


def _write_facts(path: Path, identity: DiskIdentity) -> None:
    """Write what an identity was made from, unless it is there. Raises: OSError."""
    facts = {"format": FORMAT, "place": identity.place, "facts": dict(identity.facts)}
    text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
    if path.exists() and path.read_bytes() == text.encode():
        return
    new = path.with_name(path.name + UNFINISHED)
    new.write_text(text, "utf-8")
    new.replace(path)


def stale_folders(root: Path, identity: DiskIdentity) -> Iterator[Path]:
    """The folders of other models that no process has open, the oldest first."""
    own = identity.base.hex()
    others = [
        each
        for each in root.iterdir()
        if each.is_dir() and _NAME.fullmatch(each.name) and not each.name.startswith(own)
    ]
    for each in sorted(others, key=lambda path: path.stat().st_mtime):
        try:
            os.close(_locked(each))
        except (DiskUnusable, OSError):
            continue
        yield each


def size_bytes(folder: Path) -> int:
    """The sizes of all files in a folder."""
    return sum(each.stat().st_size for each in folder.iterdir() if each.is_file())


def remove_folder(folder: Path) -> bool:
    """Remove the folder of another model, and say so; False if it has been opened meanwhile."""
    try:
        lock = _locked(folder)
    except (DiskUnusable, OSError):
        return False
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)
    _LOG.warning("%s, of a model that is not served now, was removed for room", folder)
    return True
