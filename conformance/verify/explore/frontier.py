"""What an exploration has to remember: which states were visited, and where to go on.

Of a state that was visited sixteen bytes are kept, of one that is yet to be gone on from its path,
two bytes an action. So the memory is bounded by the size of a scope in numbers, whatever its states
are made of; and all of it goes into a file, from which another process goes on.

What readers get wrong: a level is not a round of work. It is all states that so many actions lead
to and no fewer, and the paths to them are therefore the shortest.
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
from attrs import Factory, define

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.verify.explore.canonicalizer import DIGEST_BYTES

Path: TypeAlias = tuple[Action, ...]
"""The actions that lead to a state from an empty cache."""

RECENT = 1 << 18
"""As many digests are kept apart until they are sorted in among the others."""

FORMAT = "kvcanon-exploration/2"


class Visited:
    """The digests of states, sorted, and those that came since."""

    def __init__(self, digests: Sequence[bytes] | npt.NDArray[np.bytes_] = ()) -> None:
        self._sorted = np.sort(np.array(digests, dtype=f"S{DIGEST_BYTES}"))
        self._recent: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._sorted) + len(self._recent)

    def enter(self, digests: Sequence[bytes]) -> list[bool]:
        """Enter digests; of each, whether it is new."""
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
        """All of them, sorted."""
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
    """Actions as numbers of two bytes, in the order in which they came up."""

    def __init__(self, actions: Sequence[Action] = ()) -> None:
        self.actions = list(actions)
        self._numbers = {action: number for number, action in enumerate(self.actions)}

    def code(self, action: Action) -> bytes:
        """An action in two bytes."""
        number = self._numbers.setdefault(action, len(self.actions))
        if number == len(self.actions):
            self.actions.append(action)
        return number.to_bytes(2, "big")

    def path(self, coded: bytes) -> Path:
        """The path of so many actions."""
        numbers = (coded[at : at + 2] for at in range(0, len(coded), 2))
        return tuple(self.actions[int.from_bytes(each, "big")] for each in numbers)


@define
class Progress:
    """How far an exploration has come: all that it needs to go on."""

    visited: Visited
    codes: Codes
    level: list[bytes]
    """The coded paths to the states of this level."""
    at: int = 0
    """How many of them were gone on from."""
    following: list[bytes] = Factory(list)
    """The coded paths to the states of the next level, as far as it is known."""
    levels: list[int] = Factory(list)
    """How many states there were in each level that is done."""
    edges: int = 0
    steps: int = 0
    laws_exercised: Counter[str] = Factory(Counter)
    """How often each law was exercised, by id."""
    seconds: float = 0.0
    """How long it took, in all runs."""
    cpu_seconds: float = 0.0
    """How long processors worked for it."""


def begin(digest: bytes) -> Progress:
    """The beginning: one state, to which no action leads."""
    visited = Visited()
    visited.enter([digest])
    return Progress(visited, Codes(), [b""])


def save(progress: Progress, file: File, of: Mapping[str, str]) -> None:
    """Write progress to a file, in one go, so that there is always a whole one."""
    facts = {
        "format": FORMAT,
        "of": dict(of),
        "actions": [list(action) for action in progress.codes.actions],
        "at": progress.at,
        "levels": progress.levels,
        "edges": progress.edges,
        "steps": progress.steps,
        "laws_exercised": progress.laws_exercised,
        "seconds": progress.seconds,
        "cpu_seconds": progress.cpu_seconds,
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
    """Progress from a file. Raises: UsageError: it is none, or that of another exploration."""
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
                facts["at"],
                _unpacked("following", read),
                facts["levels"],
                facts["edges"],
                facts["steps"],
                Counter(facts["laws_exercised"]),
                facts["seconds"],
                facts["cpu_seconds"],
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
