"""Answers: whether what a call returned has the annotated type, down to each number in it.

A judge that computes with a value of another type raises somewhere deep inside, and its traceback
says nothing about the cache. So each answer is checked first. A wrong one is a finding of REFUSE-4,
which names the operation, the value and the type that it must have.

Types are exact where a mistake would pass unseen: `True` is no number of pages, and a list that the
cache changes later is no tuple. Keys and snapshots are checked by their class alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from attrs import fields, has

from kvcanon.conformance.errors import AnswerError, ViolationError, shown
from kvcanon.conformance.judge.explain import sentence
from kvcanon.conformance.protocol.wire import CALLS, OF_STORES
from kvcanon.spec.errors import CacheError
from kvcanon.spec.law import LAWS, Violation
from kvcanon.spec.operations import Done, Refused
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Counts, Key, Medium, Slot

ANSWER_LAW = "REFUSE-4"
"""The law that an answer of a wrong type breaks."""

BY_CLASS_ALONE = (Key, Snapshot)
"""Classes that are checked without their fields: laws compare them as a whole."""

Find: TypeAlias = Callable[[object], "WrongPart | None"]
"""Returns the first part of a value that has a wrong type, or None."""

Read: TypeAlias = Callable[[Component, Medium, Slot], bytes]
"""Reads the bytes of a slot."""

WrongPart: TypeAlias = tuple[str, object, str]
"""The place of a part in the answer, as ".slots.full[0]", its value, and what it must be."""


def wrong_answer(operation: str, answer: object) -> str | None:
    """Return what is wrong with the answer of an operation, in a sentence; None if nothing is.

    The operation is named by its method.
    """
    wrong = _finder_of(operation)(answer)
    if wrong is None:
        return None
    place, value, right = wrong
    if not place:
        return f"{operation} answered {_described(value)}; it must be {right}"
    kind = type(answer).__name__
    part = place.removeprefix(".") if place.startswith(".") else f"its part {place}"
    whole = f"{operation} answered {_start(answer, kind)}"
    is_small = right == "at least 0"
    return f"{whole}: {part} is {value if is_small else _described(value)}; it must be {right}"


def require_answer(operation: str, answer: object) -> None:
    """Refuse an answer of a wrong type, where no law is checked. Raises: AnswerError."""
    wrong = wrong_answer(operation, answer)
    if wrong is not None:
        raise AnswerError(wrong)


def typed_read(read: Read) -> Read:
    """Return a function that reads the bytes of a slot, and raises AnswerError for other values."""

    def read_bytes(component: Component, medium: Medium, slot: Slot) -> bytes:
        data = read(component, medium, slot)
        require_answer("read", data)
        return data

    return read_bytes


def outcome_of(answer: object) -> object:
    """What a call returned or refused, as an outcome that reports have words for."""
    if isinstance(answer, CacheError):
        return Refused(answer)
    return Done() if answer is None else answer


def answer_violation(wrong: AnswerError, number: int, asked: str) -> ViolationError:
    """A finding of REFUSE-4 in operation `number`, which is `asked` in words."""
    found = Violation(LAWS[ANSWER_LAW], str(wrong))
    words = (
        f"{wrong}\n\n{ANSWER_LAW} {found.law.name}, in operation {number}, {asked}\n"
        f"    The law: {sentence(found.law)}\n"
        f"    Its page: {found.law.address}"
    )
    return ViolationError(words, [found])


def _described(value: object) -> str:
    """A value with the name of its class, unless the text of the value begins with it."""
    text, kind = shown(value), _kind_of(value)
    if value is None or text.startswith((type(value).__name__, kind, "a ", "<class")):
        return text
    return f"{text}, {_with_article(kind)}"


def _start(answer: object, kind: str) -> str:
    """The whole answer, shortened."""
    text = shown(answer, 120)
    return text if text.startswith((kind, "a ")) else f"{text}, {_with_article(kind)}"


def _kind_of(value: object) -> str:
    """The name of a value's class, with its module where that says more."""
    kind = type(value)
    own = kind.__module__ in ("builtins", "__main__") or kind.__module__.startswith("kvcanon.")
    return kind.__name__ if own else f"{kind.__module__}.{kind.__name__}"


def _with_article(name: str) -> str:
    return f"an {name}" if name[0].lower() in "aeio" else f"a {name}"


@cache
def _finder_of(operation: str) -> Find:
    return _finder((CALLS.get(operation) or OF_STORES[operation]).answers)


@cache
def _finder(kind: object) -> Find:
    """Return the check of an annotated type."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _of_union(arguments)
    if origin is tuple:
        return _of_tuple(arguments)
    if origin in (Collection, Sequence):
        return _of_each(
            Collection, f"a collection of {_name_of(arguments[0])}", _finder(arguments[0])
        )
    if kind is int:
        return _of_int
    if isinstance(kind, type) and has(kind) and kind not in BY_CLASS_ALONE:
        return _of_class(kind)
    return _of_kind(types.NoneType if kind is None else kind)


def _name_of(kind: object) -> str:
    """The name of a type, as a report has it."""
    if kind in (None, types.NoneType):
        return "None"
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _of_kind(kind: object) -> Find:
    assert isinstance(kind, type)  # noqa: S101  # The annotations have no others.
    name = _name_of(kind)
    right = name if name in ("None", "bytes") else _with_article(name)
    return lambda value: None if isinstance(value, kind) else ("", value, right)


def _of_int(value: object) -> WrongPart | None:
    if type(value) is int or (isinstance(value, int) and not isinstance(value, bool)):
        return None
    return "", value, "an int"


def _of_count(value: object) -> WrongPart | None:
    if type(value) is int and value >= 0:
        return None
    return _of_int(value) or ("", value, "at least 0")


def _of_each(kind: type, right: str, find: Find) -> Find:
    """Check a tuple or another collection of any length."""

    def find_in(value: object) -> WrongPart | None:
        if not isinstance(value, kind) or isinstance(value, (str, bytes)):
            return "", value, right
        parts = cast("Collection[object]", value)  # Both kinds are.
        if find is _of_int and set(map(type, parts)) <= {int}:
            return None  # Most are lists of slots.
        for index, each in enumerate(parts):
            wrong = find(each)
            if wrong is not None:
                return f"[{index}]{wrong[0]}", wrong[1], wrong[2]
        return None

    return find_in


def _of_tuple(arguments: tuple[object, ...]) -> Find:
    if arguments[-1:] == (Ellipsis,):
        return _of_each(tuple, "a tuple", _finder(arguments[0]))
    return _of_row(tuple(_finder(each) for each in arguments))


def _of_row(finds: tuple[Find, ...]) -> Find:
    """Check a tuple with one type for each place."""

    def find_in(value: object) -> WrongPart | None:
        if not isinstance(value, tuple) or len(value) != len(finds):
            return "", value, f"a tuple of {len(finds)}"
        for index, (find, each) in enumerate(zip(finds, value, strict=True)):
            wrong = find(each)
            if wrong is not None:
                return f"[{index}]{wrong[0]}", wrong[1], wrong[2]
        return None

    return find_in


def _of_union(kinds: tuple[object, ...]) -> Find:
    finds = [_finder(kind) for kind in kinds]
    names = [_name_of(kind) for kind in kinds]
    right = _with_article(f"{', '.join(names[:-1])} or {names[-1]}")

    def find_in(value: object) -> WrongPart | None:
        found: list[WrongPart] = []
        for find in finds:
            wrong = find(value)
            if wrong is None:
                return None
            found.append(wrong)
        # A value of one of the classes has a wrong part; any other is wrong as a whole.
        deeper = [each for each in found if each[0]]
        return deeper[0] if deeper else ("", value, right)

    return find_in


def _of_class(kind: type) -> Find:
    """Check the class of a value, and each of its fields."""
    hints = get_type_hints(kind)
    parts = [
        (
            each.name,
            _of_count
            if _is_count(kind, each.name, hints[each.name])
            else _finder(hints[each.name]),
        )
        for each in fields(kind)
        if each.eq
    ]

    def find_in(value: object) -> WrongPart | None:
        if not isinstance(value, kind):
            return "", value, _with_article(kind.__name__)
        for name, find in parts:
            part = getattr(value, name)
            if type(part) is tuple and not part:
                continue  # Most parts of most answers are empty.
            wrong = find(part)
            if wrong is not None:
                return f".{name}{wrong[0]}", wrong[1], wrong[2]
        return None

    return find_in


def _is_count(kind: type, name: str, hint: object) -> bool:
    """Whether a field is a number of pages or slots, which is never negative."""
    return hint is int and (kind is Counts or name.endswith("_pages"))
