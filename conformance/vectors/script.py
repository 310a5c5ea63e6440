"""A script: the calls of a case in order, each with its answer, in the JSON of the pipe.

Slots, receipts and transfers are numbers that a cache chooses. So a script has names for them:
`$full_1` is bound to a number by the answer in which the name appears first, and stands for that
number from then on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence

from attrs import evolve, field, frozen

from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.pipe_server import serve
from kvcanon.conformance.protocol.wire import to_json
from kvcanon.spec.config import CacheConfig

NAME = "$"
"""The first character of a name; no other string of a script begins with it."""
MARK = "may_differ"
_EMPTY: tuple[object, ...] = (None, 0, [])
"""The value of a field that an answer leaves out."""

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


@frozen
class ScriptDifference:
    """Where a cache first answers differently from a script."""

    index: int
    got: Json


def script_from_json(keys: object, calls: object) -> Script:
    """Decode the script of a file. Raises: ValueError."""
    if not isinstance(keys, dict) or not isinstance(calls, list):
        raise ValueError("its keys must be an object, and its calls a list")  # noqa: TRY004
    return Script(keys, tuple(_call_from_json(each) for each in calls))


def call_to_json(call: ScriptCall) -> Json:
    """Encode a call as it stands in a file."""
    marks = {MARK: list(call.may_differ)} if call.may_differ else {}
    return {**call.call, "answer": call.answer, **marks}


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


def marked(script: Script, marks: Mapping[int, Sequence[str]]) -> Script:
    """Return the same script, with some calls marked."""
    calls = tuple(
        evolve(each, may_differ=tuple(marks.get(index, ())))
        for index, each in enumerate(script.calls)
    )
    return evolve(script, calls=calls)


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
        return all(_fits(one.get(each), other.get(each), names) for each in {**one, **other})
    if isinstance(expected, list) and isinstance(got, list):
        return len(expected) == len(got) and all(
            _fits(one, other, names) for one, other in zip(expected, got, strict=True)
        )
    return expected == got or (expected in _EMPTY and got in _EMPTY)


def _call_from_json(value: object) -> ScriptCall:
    if not isinstance(value, dict) or not {"op", "answer"} <= value.keys():
        raise ValueError(f"{value!r} is no call: it must be an object with op and answer")
    call = {name: each for name, each in value.items() if name not in ("answer", MARK)}
    return ScriptCall(call, value["answer"], tuple(value.get(MARK, ())))
