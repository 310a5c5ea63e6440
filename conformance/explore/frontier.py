"""What an exploration remembers: which states were visited, and where to go on.

A visited state takes 16 bytes (its digest); a state still to expand takes its path, two bytes per
action. So memory depends on the number of states and not on their size. All of it can be saved to a
file, from which another process resumes.

Level n has exactly the states that need n actions, so the paths to them are the shortest.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path as File
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
from attrs import Factory, define, field

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.explore.canonicalizer import DIGEST_BYTES

Path: TypeAlias = tuple[Action, ...]
"""The actions that lead to a state from an empty cache."""

RECENT = 1 << 18
"""How many new digests are collected before they are merged into the sorted array."""

FORMAT = "kvcanon-exploration/2"


class Visited:
    """The digests of visited states: a sorted array, and a set of recent ones."""

    def __init__(self, digests: Sequence[bytes] | npt.NDArray[np.bytes_] = ()) -> None:
        self._sorted = np.sort(np.array(digests, dtype=f"S{DIGEST_BYTES}"))
        self._recent: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def enter(self, digests: Sequence[bytes]) -> list[bool]:
        """Add digests. Returns, for each, whether it is new."""
        if not digests:
            return []
        known = self._known(digests)
        new = []
        for digest, is_known in zip(digests, known, strict=True):
            new.append(not is_known and digest not in self._recent)
            if new[-1]:
                self._recent.add(digest)
        if len(self._recent) >= RECENT:
            self._sorted, self._recent = self.all(), set()
        return new

    def all(self) -> npt.NDArray[np.bytes_]:
        """All digests, sorted."""
        recent = np.array(sorted(self._recent), dtype=self._sorted.dtype)
        return np.sort(np.concatenate([self._sorted, recent]), kind="stable")

    def _known(self, digests: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        queried = np.array(digests, dtype=self._sorted.dtype)
        if not len(self._sorted):
            return np.zeros(len(queried), dtype=np.bool_)
        places = np.searchsorted(self._sorted, queried)
        places[places == len(self._sorted)] = 0
        found: npt.NDArray[np.bool_] = self._sorted[places] == queried
        return found


class Codes:
    """Encodes actions as two-byte numbers, in the order of first use."""

    def __init__(self, actions: Sequence[Action] = ()) -> None:
        self.actions = list(actions)
        self._numbers = {action: number for number, action in enumerate(self.actions)}

    def code(self, action: Action) -> bytes:
        """Encode an action as two bytes."""
        number = self._numbers.setdefault(action, len(self.actions))
        if number == len(self.actions):
            self.actions.append(action)
        return number.to_bytes(2, "big")

    def path(self, coded: bytes) -> Path:
        """Decode a path."""
        numbers = (coded[at : at + 2] for at in range(0, len(coded), 2))
        return tuple(self.actions[int.from_bytes(each, "big")] for each in numbers)


@define
class Progress:
    """The progress of an exploration: everything that is needed to resume it."""

    visited: Visited
    codes: Codes
    level: list[bytes]
    """The coded paths to the states of this level."""
    at: int = 0
    """How many of them were expanded."""
    following: list[bytes] = Factory(list)
    """The coded paths to the states of the next level found so far."""
    levels: list[int] = Factory(list)
    """The number of states of each finished level."""
    edges: int = 0
    steps: int = 0
    laws_exercised: Counter[str] = field(factory=Counter, converter=Counter)
    """How often each law was exercised, by id."""
    seconds: float = 0.0
    """Wall-clock time of all runs."""
    cpu_seconds: float = 0.0
    """CPU time of all runs and processes."""


NUMBERS = ("at", "levels", "edges", "steps", "laws_exercised", "seconds", "cpu_seconds")
"""The fields that a file has as numbers."""


def begin(digest: bytes) -> Progress:
    """Progress at the start: one state with the empty path."""
    visited = Visited()
    visited.enter([digest])
    return Progress(visited, Codes(), [b""])


def save(progress: Progress, file: File, of: Mapping[str, str]) -> None:
    """Write progress to a file, atomically, so that the file is never incomplete."""
    facts = {
        "format": FORMAT,
        "of": dict(of),
        "actions": [list(action) for action in progress.codes.actions],
        **{name: getattr(progress, name) for name in NUMBERS},
    }
    unfinished = file.with_name(file.name + ".unfinished")
    with unfinished.open("wb") as out:
        np.savez(
            out,
            allow_pickle=False,
            told=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
            visited=progress.visited.all(),
            **_packed("level", progress.level),
            **_packed("following", progress.following),
        )
    unfinished.replace(file)


def load(file: File, of: Mapping[str, str]) -> Progress:
    """Read progress. Raises: UsageError: no checkpoint, or that of another exploration."""
    try:
        with np.load(file, allow_pickle=False) as read:
            facts = json.loads(read["told"].tobytes())
            if facts["format"] != FORMAT:
                raise UsageError(
                    f"{file} is of another version of kvcanon; remove it to start over"
                )
            if facts["of"] != dict(of):
                other = [
                    name for name in {**facts["of"], **of} if facts["of"].get(name) != of.get(name)
                ]
                raise UsageError(
                    f"{file} is of an exploration with another {' and '.join(other)}; "
                    "name another file, or remove it to start over"
                )
            return Progress(
                Visited(read["visited"]),
                Codes([Action(*action) for action in facts["actions"]]),
                _unpacked("level", read),
                following=_unpacked("following", read),
                **{name: facts[name] for name in NUMBERS},
            )
    except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as problem:
        raise UsageError(
            f"{file} is no progress of an exploration; name another file, or remove it"
        ) from problem


def _packed(name: str, paths: Sequence[bytes]) -> dict[str, npt.NDArray[Any]]:
    return {
        name: np.frombuffer(b"".join(paths), dtype=np.uint8),
        f"{name}_lengths": np.array([len(path) for path in paths], dtype=np.uint32),
    }


def _unpacked(name: str, read: Mapping[str, npt.NDArray[Any]]) -> list[bytes]:
    joined, at, paths = read[name].tobytes(), 0, []
    for length in read[f"{name}_lengths"].tolist():
        paths.append(joined[at : at + length])
        at += length
    return paths
