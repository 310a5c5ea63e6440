"""Runs the script of a vector on a cache, as those do who have no kvcanon: call by call, in JSON.

Slots, receipts and transfers are numbers that a cache chooses. So a script has names for them:
`$full_1` is bound to a number by the answer in which the name appears first, and stands for that
number from then on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping

from attrs import frozen

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.pipe_server import serve
from kvcanon.conformance.protocol.wire import to_json
from kvcanon.conformance.vectors import Json, Script
from kvcanon.spec.config import CacheConfig

NAME = "$"
"""The first character of a name; no other string of a script begins with it."""
NOT_TOLD = "branch_pages"
"""The field of an answer that scripts leave out, as a cache need not say it."""
_EMPTY: tuple[object, ...] = (None, 0, [])
"""The value of a field that an answer leaves out."""


@frozen
class ScriptDifference:
    """Where a cache first answers differently from a script."""

    index: int
    got: Json


def play_script(script: Script, adapter: Adapter, config: CacheConfig) -> ScriptDifference | None:
    """Play a script on a new cache up to the first difference; None if there is none."""
    answers, found = io.StringIO(), list[ScriptDifference]()

    def lines() -> Iterator[str]:
        names = dict(script.keys)
        yield json.dumps({"op": "make", "config": to_json(config)})
        for index, each in enumerate(script.calls):
            yield json.dumps(with_numbers(each.call, names))
            got = json.loads(answers.getvalue().splitlines()[-1])
            if not fits(each.answer, got, names):
                found.append(ScriptDifference(index, got))
                return

    serve(adapter, lines(), answers)
    return found[0] if found else None


def with_numbers(value: object, names: Mapping[str, object]) -> object:
    """Replace each name in a value by what it is bound to; unbound names stay."""
    if isinstance(value, str) and value.startswith(NAME):
        return with_numbers(names[value], names) if value in names else value
    if isinstance(value, dict):
        return {name: with_numbers(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [with_numbers(each, names) for each in value]
    return value


def fits(answer: Json, got: Json, names: dict[str, object]) -> bool:
    """Whether an answer is the expected one; binds the names that appear in it first."""
    expected, refused = answer.get("refused"), got.get("refused")
    if isinstance(expected, dict) and isinstance(refused, dict):
        # A refusal may have more fields than the script compares.
        return _fits(expected, {name: refused.get(name) for name in expected}, names)
    return _fits(answer, got, names)


def _fits(expected: object, got: object, names: dict[str, object]) -> bool:
    if isinstance(expected, str) and expected.startswith(NAME):
        return got is not None and _fits(names.setdefault(expected, got), got, names)
    if isinstance(expected, dict) or isinstance(got, dict):
        one, other = expected or {}, got or {}
        if not isinstance(one, dict) or not isinstance(other, dict):
            return False
        compared = {**one, **other}.keys() - {NOT_TOLD}
        return all(_fits(one.get(each), other.get(each), names) for each in sorted(compared))
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(
            _fits(one, other, names) for one, other in zip(expected, got, strict=True)
        )
    return expected == got or (expected in _EMPTY and got in _EMPTY)
