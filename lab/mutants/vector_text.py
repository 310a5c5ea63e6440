"""The text of a vector's file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from attrs import asdict

from kvcanon.conformance.cases.case import case_to_json
from kvcanon.conformance.vectors import FORMAT, MARK, Json, ScriptCall, Vector


def vector_text(vector: Vector) -> str:
    """Return the text of a vector's file: a line for each call, and for each field before."""
    case = case_to_json(vector.case)
    store = json.dumps(case["store"]) if "store" in case else ""
    head = {
        "format": FORMAT,
        "id": vector.vector_id,
        "law": vector.law_id,
        "reason": vector.reason,
        "mutant": vector.mutant,
        "level": vector.level.value,
    }
    lines = [
        *(f"  {json.dumps(name)}: {json.dumps(each)}," for name, each in head.items()),
        # Fields with their defaults are written, too, so that a vector keeps its meaning if these
        # change.
        *_object("config", asdict(vector.case.config)),
        *_object("keys", vector.script.keys),
        *_list("  ", "calls", [_call_to_json(each) for each in vector.script.calls]),
        '  "case": {',
        *_list("    ", "actions", case["actions"]),
        f'    "drain": {json.dumps(case["drain"])}' + (f',\n    "store": {store}' if store else ""),
        "  }",
    ]
    return "\n".join(["{", *lines, "}\n"])


def _object(name: str, fields: Mapping[str, object]) -> list[str]:
    """Return the lines of a field that is an object."""
    lines = [f"    {json.dumps(each)}: {json.dumps(value)}" for each, value in fields.items()]
    return [f"  {json.dumps(name)}: {{", ",\n".join(lines), "  },"]


def _list(indent: str, name: str, values: Iterable[object]) -> list[str]:
    """Return the lines of a field that is a list."""
    lines = [f"{indent}  {json.dumps(each)}" for each in values]
    return [f"{indent}{json.dumps(name)}: [", ",\n".join(lines), f"{indent}],"]


def _call_to_json(call: ScriptCall) -> Json:
    """Encode a call as it stands in a file."""
    marks = {MARK: list(call.may_differ)} if call.may_differ else {}
    return {**call.call, "answer": call.answer, **marks}
