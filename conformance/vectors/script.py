"""A script: the calls of a case in order, each with its answer, as JSON on a pipe has them.

Slots, receipts and transfers are numbers that a cache chooses. So a script has names for them:
`$full_1` is bound to a number by the answer in which the name comes up first, and stands for that
number wherever it comes up again.
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
"""What a name begins with; no other string of a script does."""
MARK = "may_differ"
_EMPTY: tuple[object, ...] = (None, 0, [])
"""What a field has that an answer leaves out."""

Json = dict[str, object]


@frozen
class ScriptCall:
    """One call, and what the plain cache answers."""

    call: Json
    """A line of the pipe, with names for numbers: `op`, and the arguments by name."""
    answer: Json
    """`{"ok": ...}` without the fields that have their default, or `{"refused": ...}`."""
    may_differ: tuple[str, ...] = ()
    """The freedoms by which a lawful cache answers otherwise."""


@frozen
class Script:
    """All calls of a case."""

    keys: Mapping[str, object] = field(factory=dict)
    """Every key that the calls take, by the name that they use for it."""
    calls: tuple[ScriptCall, ...] = ()


@frozen
class ScriptDifference:
    """Where a cache first answers something else than a script has."""

    index: int
    got: Json


def script_from_json(keys: object, calls: object) -> Script:
    """The script of a file. Raises: ValueError."""
    if not isinstance(keys, dict) or not isinstance(calls, list):
        raise ValueError("its keys must be an object, and its calls a list")  # noqa: TRY004
    return Script(keys, tuple(_call_from_json(each) for each in calls))


def call_to_json(call: ScriptCall) -> Json:
    """A call as it stands in a file."""
    marks = {MARK: list(call.may_differ)} if call.may_differ else {}
    return {**call.call, "answer": call.answer, **marks}


def play_script(script: Script, adapter: Adapter, config: CacheConfig) -> ScriptDifference | None:
    """Play a script on a new cache up to the first difference; None where there is none."""
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
    """The same script, with some calls marked."""
    calls = tuple(
        evolve(each, may_differ=tuple(marks.get(index, ())))
        for index, each in enumerate(script.calls)
    )
    return evolve(script, calls=calls)


def with_numbers(value: object, names: Mapping[str, object]) -> object:
    """A value in which each name stands for what it is bound to; unbound names stay."""
    if isinstance(value, str) and value.startswith(NAME):
        return with_numbers(names[value], names) if value in names else value
    if isinstance(value, dict):
        return {name: with_numbers(each, names) for name, each in value.items()}
    if isinstance(value, list):
        return [with_numbers(each, names) for each in value]
    return value


def fits(answer: Json, got: Json, names: dict[str, object]) -> bool:
    """Whether an answer is the expected one; binds the names that come up first in it."""
    expected, refused = answer.get("refused"), got.get("refused")
    if isinstance(expected, dict) and isinstance(refused, dict):
        # A refusal may say more than what the script holds it to.
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
