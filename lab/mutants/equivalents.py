"""Reviewed mutants: those that no law has to detect, each with a reason.

The list is beside this file. It has the reason of each id, by core and kind: equal, if the
mutant behaves like the original; lawful, if it differs in a way that the laws allow. Neither kind
counts in the score. An entry is stale if a law detects its mutant.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.errors import UsageError

LIST = Path("lab/mutants/equivalent.toml")


class Core(StrEnum):
    """The cache that is mutated."""

    REFERENCE = "reference"
    NATIVE = "native"


class ReviewKind(StrEnum):
    """Why no law has to detect a mutant."""

    EQUAL = "equal"
    """It behaves the same in everything that a client or a snapshot shows."""
    LAWFUL = "lawful"
    """It behaves differently, in a way that the laws allow."""


@frozen
class Reviewed:
    """An entry of the list."""

    place_id: str
    kind: ReviewKind
    reason: str


def read_reviewed(checkout: Path, core: Core) -> Mapping[str, Reviewed]:
    """The entries for a core, by id. Raises: UsageError."""
    path = checkout / LIST
    try:
        kinds = tomllib.loads(path.read_text(encoding="utf-8")).get(core, {})
        entries = [
            Reviewed(place_id, ReviewKind(kind), " ".join(reason.split()))
            for kind, reasons in kinds.items()
            for place_id, reason in reasons.items()
        ]
    except (OSError, ValueError, AttributeError) as problem:
        raise UsageError(f"{path} cannot be read: {problem}") from problem
    found = {each.place_id: each for each in entries}
    if len(found) < len(entries):
        raise UsageError(f"{path} has an id under both kinds; keep one")
    return found


def require_places(reviewed: Mapping[str, Reviewed], places: Mapping[str, object]) -> None:
    """Check that every entry's place exists. Raises: UsageError."""
    gone = [place_id for place_id in reviewed if place_id not in places]
    if gone:
        raise UsageError(f"{LIST} lists {', '.join(gone)}, which is no place; drop it or rename it")
