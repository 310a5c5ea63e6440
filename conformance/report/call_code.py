"""Writes calls as lines of Python that run.

Keys, receipts and slots get a name where they first appear, so that a line means the same on a
fixed cache that hands out other slots. `slots_2.full[1:]` are slots of the second allocation, even
if they were freed since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import takewhile
from typing import cast

from attrs import NOTHING, AttrsInstance, fields, has

from kvcanon.conformance.check.recorded_calls import (
    Call,
    RecordedCall,
    RequestCall,
    StampWrite,
    StoreDecision,
    TransferDecision,
    WaitDecision,
)
from kvcanon.conformance.check.result import CodeLine
from kvcanon.conformance.protocol.request import Admitted
from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import InsertHost, Lock, Operation, Receipt, method_of
from kvcanon.spec.types import Component, Counts, Key, Slots

LONGEST = 1_000
"""Characters of a line that are shown; of a longer one the first `LEFT` and the last `RIGHT`."""
LEFT, RIGHT = 300, 60


def code_lines(calls: Sequence[RecordedCall]) -> tuple[CodeLine, ...]:
    """Write calls as lines of Python."""
    names = _Names()
    return tuple(
        CodeLine(
            call.action,
            call.number,
            *names.code(call),
            answer_in_words(call.answer),
            isinstance(call.answer, CacheError),
        )
        for call in calls
    )


def shortened(line: str) -> str:
    """A line of code for a reader: the middle of a very long one, such as a key, is left out."""
    if len(line) <= LONGEST:
        return line
    return f"{line[:LEFT]} ... {line[-RIGHT:]}  # {len(line):,} characters; the script has all"


def named_keys(calls: Sequence[RecordedCall]) -> Mapping[str, Key]:
    """The keys of calls, by the names that `code_lines` gives them."""
    names = _Names()
    for call in calls:
        names.code(call)
    return names.keys


def literal(value: object) -> str:
    """A value as a Python expression; fields with their default values are left out."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if not has(type(value)):
        return repr(value)
    parts = []
    for each in fields(cast("type[AttrsInstance]", type(value))):
        given, default = getattr(value, each.name), each.default
        if each.init and (default is NOTHING or given != default):
            parts.append(f"{each.name}={literal(given)}")
    return f"{type(value).__name__}({', '.join(parts)})"


class _Names:
    """The names of keys, receipts and slots."""

    def __init__(self) -> None:
        self.keys: dict[str, Key] = {}
        self._receipts: dict[int, str] = {}
        self._slots: dict[str, Slots] = {}
        self._before: list[str] = []

    def code(self, call: RecordedCall) -> tuple[tuple[str, ...], str]:
        """The definitions that a call needs, and the code of the call."""
        self._before = []
        code = self._code(call.call)
        name = self._answer_name(call)
        return tuple(self._before), f"{name} = {code}" if name else code

    def _answer_name(self, call: RecordedCall) -> str:
        """Name the answer of a call, if later calls may use it; empty if not."""
        answer, name = call.answer, ""
        if isinstance(answer, Receipt) and isinstance(call.call, Lock):
            name = f"receipt_{len(self._receipts) + 1}"
            self._receipts[answer.receipt_id] = name
        elif _are_slots(answer):
            name = f"slots_{len(self._slots) + 1}"
            self._slots[name] = cast("Slots", answer)
        elif isinstance(answer, Admitted) and _are_slots(answer.slots):
            name = f"admitted_{len(self._slots) + 1}"
            self._slots[f"{name}.slots"] = answer.slots
        return name

    def _code(self, call: Call) -> str:
        match call:
            case RequestCall():
                key = "" if call.key is None else f", {self._key(call.key)}"
                return f"cache.{call.method}({call.request_id}{key})"
            case TransferDecision() | WaitDecision() | StoreDecision():
                return _decision(call)
            case StampWrite():
                start = f", {call.start_pages}" if call.start_pages else ""
                key, slots = self._key(call.key), self._slots_code(call.slots)
                return f"write_stamps(cache, {key}, {slots}{start})"
            case InsertHost():
                payload = call.payload
                counts = Counts(len(payload.full), len(payload.swa), len(payload.mamba))
                key = self._key(call.key)
                fetched = f"fetched(cache, {key}, {literal(counts)})"
                return f"cache.insert_host({key}, {call.start_pages}, {fetched})"
            case _:
                return f"cache.{method_of(type(call))}({', '.join(self._arguments(call))})"

    def _arguments(self, operation: Operation) -> Iterator[str]:
        """The arguments of a call; one that has a default is named, and left out if it has it."""
        for each in fields(type(operation)):
            value = getattr(operation, each.name)
            if each.default is NOTHING:
                yield self._argument(value)
            elif value != each.default:
                yield f"{each.name}={self._argument(value)}"

    def _argument(self, value: object) -> str:
        match value:
            case Key():
                return self._key(value)
            case Receipt():
                return self._receipts.get(value.receipt_id) or literal(value)
            case Slots():
                return self._slots_code(value)
            case _:
                return literal(value)

    def _key(self, key: Key) -> str:
        for name, known in self.keys.items():
            if known == key:
                return name
        for name, known in self.keys.items():
            if known.namespace == key.namespace and known.pages[: len(key)] == key.pages:
                return f"{name}.prefix({len(key)})"
        name = f"key_{len(self.keys) + 1}"
        self.keys[name] = key
        self._before.append(f"{name} = {_key_literal(key)}")
        return name

    def _slots_code(self, slots: Slots) -> str:
        for name, known in reversed(self._slots.items()):
            if known == slots:
                return name
        parts = [f"{c.value}={self._part(c, some)}" for c, some in slots if some]
        return f"Slots({', '.join(parts)})"

    def _part(self, component: Component, some: tuple[int, ...]) -> str:
        """Slots of one component, as parts of the last allocations that contain them."""
        code, length = self._run(component, some)
        if length == len(some):
            return code
        parts, at = [], 0
        while at < len(some):
            code, length = self._run(component, some[at:])
            parts.append(f"*{code}" if length else str(some[at]))
            at += length or 1
        return f"({', '.join(parts)}{',' * (len(parts) == 1)})"

    def _run(self, component: Component, some: tuple[int, ...]) -> tuple[str, int]:
        """Code and length of the longest beginning that is a part of one allocation."""
        code, longest = "", 0
        for name, known in reversed(self._slots.items()):
            there = known[component]
            for at in range(len(there)):
                length = sum(1 for _ in takewhile(_same, zip(there[at:], some, strict=False)))
                if length > longest:
                    longest = length
                    start = str(at) if at else ""
                    end = "" if at + length == len(there) else str(at + length)
                    part = f"[{start}:{end}]" if start or end else ""
                    code = f"{name}.{component.value}{part}"
        return code, longest


def _decision(call: TransferDecision | WaitDecision | StoreDecision) -> str:
    """The code of what a client decides about a copy, a wait or a store."""
    match call:
        case TransferDecision():
            return f"copies.{call.method}(copies.open_transfer_ids[{call.index}])"
        case WaitDecision(end):
            return f'copies.next_wait("{end}")'
        case StoreDecision(method, picks):
            return f"cache.below.{method}({', '.join(map(str, picks))})"


def _same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def _are_slots(answer: object) -> bool:
    """Whether an answer is made of slots; a faulty cache may answer anything."""
    return isinstance(answer, Slots) and all(isinstance(some, tuple) for _, some in answer)


def _key_literal(key: Key) -> str:
    namespace = literal(key.namespace)
    more = "" if namespace == "Namespace()" else f", {namespace}"
    return f"Key({key.pages!r}{more})"
