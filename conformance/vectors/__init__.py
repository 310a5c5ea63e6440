"""Vectors: files with one short case, its calls with their answers, its fault, its law and a name.

They are for caches in any language. `README.md` beside this module defines the format, and what is
promised about it. The answers in a vector are the plain cache's. Another sound cache may answer
differently where a call is marked with a freedom; the laws decide.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.cases.actions import ACTIONS, UNDRAWN
from kvcanon.conformance.cases.case import RANKS, Case, case_from_json
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import LAWS, Need

FORMAT = "kvcanon-vector/2"
FIELDS = (
    "format",
    "id",
    "law",
    "reason",
    "mutant",
    "level",
    "config",
    "keys",
    "calls",
    "case",
)

FOLDER = Path(__file__).with_name("cases")
"""The folder of vectors, one per file; the file name is the vector's id."""


MARK = "may_differ"

Json = dict[str, object]


@frozen
class ScriptCall:
    """One call, and the plain cache's answer."""

    call: Json
    """A line of the pipe, with names for numbers: `op`, and the arguments by name."""
    answer: Json
    """`{"ok": ...}` without the fields that have their default, or `{"refused": ...}`."""
    may_differ: tuple[str, ...] = ()
    """The freedoms with which a lawful cache answers differently."""


@frozen
class Script:
    """All calls of a case."""

    keys: Mapping[str, object] = field(factory=dict)
    """Every key in the calls, by its name."""
    calls: tuple[ScriptCall, ...] = ()


class VectorLevel(StrEnum):
    """What a judge must see of the cache to find that the vector's law is broken."""

    BLACK_BOX = "black-box"
    """Answers, events and bytes."""
    SNAPSHOT = "snapshot"
    """Snapshots."""


@frozen
class Vector:
    """A case, the law that it tests, and the fault that it finds."""

    vector_id: str
    """The id of the law that it was made for, and a letter; never reused for anything else."""
    law_id: str
    """The law that it tests: differs from its id if another law now demands this part."""
    mutant: str
    """The fault with which the case was found and reduced."""
    reason: str
    """What a cache with that fault does wrong, in a sentence."""
    level: VectorLevel
    case: Case
    """The case that the judge plays: actions, whose calls depend on the cache's answers."""
    script: Script = field(hash=False)
    """The script that others play: the calls that the plain cache gets in the case."""


def vector_files() -> list[Path]:
    """Return the files of all vectors."""
    return sorted(FOLDER.glob("*.json"))


@cache
def read_vectors() -> tuple[Vector, ...]:
    """Return all vectors, in the order of the laws. Raises: UsageError."""
    vectors = [vector_from_json(path.stem, path.read_text("utf-8")) for path in vector_files()]
    order = list(LAWS)
    return tuple(sorted(vectors, key=lambda each: (order.index(each.law_id), each.vector_id)))


def vector_from_json(name: str, text: str) -> Vector:
    """Decode the vector of a file. Raises: UsageError."""
    try:
        return _vector(name, json.loads(text))
    except (BadArgument, TypeError, ValueError) as problem:
        raise UsageError(f"vector {name} cannot be read: {problem}") from problem


def _vector(name: str, value: Mapping[str, Any]) -> Vector:
    if tuple(value) != FIELDS:
        raise ValueError(f"it has not exactly {', '.join(FIELDS)}, in this order")
    if value["format"] != FORMAT:
        raise ValueError(f"its format is {value['format']!r}, not {FORMAT}")
    law_id = value["law"]
    if law_id not in LAWS:
        raise ValueError(f"there is no law {law_id!r}")
    if value["id"] != name or not re.fullmatch(rf"{law_id}-[a-z]+", name):
        raise ValueError(f"its id is {value['id']!r}, which is not its law, a letter and its name")
    if tuple(value["case"]) not in (("actions", "drain"), ("actions", "drain", "store")):
        raise ValueError("its case has not exactly actions, drain, or also store, in this order")
    case = case_from_json({"config": value["config"], **value["case"]})
    if Need.RANKS in LAWS[law_id].needs:
        case = evolve(case, ranks=RANKS)
    unknown = sorted({action.name for action in case.actions} - (ACTIONS | UNDRAWN).keys())
    if unknown:
        raise ValueError(f"there is no action {unknown[0]!r}")
    level = VectorLevel(value["level"])
    script = script_from_json(value["keys"], value["calls"])
    return Vector(name, law_id, value["mutant"], value["reason"], level, case, script)


def script_from_json(keys: object, calls: object) -> Script:
    """Decode the script of a file. Raises: ValueError."""
    if not isinstance(keys, dict) or not isinstance(calls, list):
        raise ValueError("its keys must be an object, and its calls a list")  # noqa: TRY004
    return Script(keys, tuple(_call_from_json(each) for each in calls))


def _call_from_json(value: object) -> ScriptCall:
    if not isinstance(value, dict) or not {"op", "answer"} <= value.keys():
        raise ValueError(f"{value!r} is no call: it must be an object with op and answer")
    call = {name: each for name, each in value.items() if name not in ("answer", MARK)}
    return ScriptCall(call, value["answer"], tuple(value.get(MARK, ())))
