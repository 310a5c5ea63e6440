"""The laws as JSON, for tools that cite them: `kvcanon laws --json`, and the site's `laws.json`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon import __version__
from kvcanon.conformance.laws.history import history_of
from kvcanon.conformance.laws.store_laws import store_law_json, store_laws_named
from kvcanon.conformance.vectors import Vector, read_vectors
from kvcanon.spec.law import LAWS, Law

FORMAT = "kvcanon-laws/3"
SCHEMA = Path(__file__).with_name("laws.schema.json")
"""The JSON Schema of `laws_json`."""

_LINK = re.compile(r"https://[^\s,;)]+[^\s,;).]")


def laws_json() -> dict[str, object]:
    """All laws."""
    return {
        "format": FORMAT,
        "kvcanon": __version__,
        "laws": [law_json(law) for law in LAWS.values()],
        "store_laws": [store_law_json(law) for law in store_laws_named(None)],
    }


def law_json(law: Law) -> dict[str, object]:
    """What a law says, needs and was seen broken by, as values for JSON."""
    file, line = source_of(law)
    history = history_of(law.law_id)
    return {
        "id": law.law_id,
        "area": law.area,
        "name": law.name,
        "kind": law.kind.value,
        "level": law.level.value,
        "class": law.law_class.value,
        "chosen_by": law.chosen_by,
        "added": history.added,
        "changed": list(history.changed),
        "needs": sorted(need.value for need in law.needs),
        "premise": law.premise.words,
        "statement": law.statement,
        "why": law.why,
        "seen_broken": law.seen_broken,
        "links": links_of(law),
        "from_outside": law.from_outside is not None,
        "witnesses": [witness.vector_id for witness in witnesses_of(law)],
        "source": f"{file}:{line}",
        "address": law.address,
    }


def members_in_words(kind: type[StrEnum]) -> Mapping[str, str]:
    """What each member of an enumeration is: the docstrings below the members."""
    tree = ast.parse(inspect.getsource(kind))
    assert isinstance(tree.body[0], ast.ClassDef)  # noqa: S101  # It is a class.
    body, words = tree.body[0].body, dict[str, str]()
    for each, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant):
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else ""
            words[kind(str(each.value.value))] = " ".join(str(text).split())
    return words


def witnesses_of(law: Law) -> list[Vector]:
    """The vectors in which a fault was seen to break the law."""
    return [vector for vector in read_vectors() if vector.law_id == law.law_id]


def links_of(law: Law) -> list[str]:
    """The links of where a law was seen broken."""
    return _LINK.findall(law.seen_broken)


def source_of(law: Law) -> tuple[str, int]:
    """The file of a law, as "spec/laws/lock.py", and the line of its function."""
    check = inspect.unwrap(law.check)
    _, first = inspect.getsourcelines(check)
    return f"spec/laws/{check.__module__.rpartition('.')[2]}.py", first
