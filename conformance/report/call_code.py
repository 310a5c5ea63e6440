"""Coding: calls as lines of Python that can be run.

Keys, receipts and slots get names where they come up, so that a line says which of them it means,
and means the same though a mended cache hands out other slots.

What readers get wrong: `slots_2.full[1:]` is what the second allocation gave, whatever became of it
since. That it is still held is the client's business, or the mistake that the case is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import singledispatchmethod
from itertools import takewhile
from typing import cast

from attrs import NOTHING, AttrsInstance, fields, frozen, has

from kvcanon.conformance.protocol.request import Admitted
from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.conformance.report.replayed import Ask, Asked, Decide, Fill, ReplayedCall
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Read,
    Receipt,
    TakeEvents,
    Unlock,
    UnlockWindow,
    Write,
)
from kvcanon.spec.types import Component, Counts, Key, Slots


@frozen
class CodeLine:
    """A call as somebody reads it."""

    action: int
    number: int | None
    """Which operation of the cache it was; None where it was none."""
    before: tuple[str, ...]
    """Python that defines what the code names."""
    code: str
    answer: str
    refused: bool
    """Whether it was refused, so that the client went on without an answer."""


def lines_of(calls: Sequence[ReplayedCall]) -> tuple[CodeLine, ...]:
    """Calls in words."""
    names = _Names()
    return tuple(
        CodeLine(
            call.action,
            call.number,
            *names.worded(call),
            answer_in_words(call.answer),
            isinstance(call.answer, CacheError),
        )
        for call in calls
    )


def literal(value: object) -> str:
    """A value as Python that makes it; fields that are as usual are left out."""
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
    """What keys, receipts and slots are called."""

    def __init__(self) -> None:
        self._keys: dict[str, Key] = {}
        self._receipts: dict[int, str] = {}
        self._slots: dict[str, Slots] = {}
        self._before: list[str] = []

    def worded(self, call: ReplayedCall) -> tuple[tuple[str, ...], str]:
        """Definitions that a call needs, and the call."""
        self._before = []
        code = self._code(call.asked)
        name = self._named(call)
        return tuple(self._before), f"{name} = {code}" if name else code

    def _named(self, call: ReplayedCall) -> str:
        """What the answer of a call is called, where later calls may speak of it."""
        answer, name = call.answer, ""
        if isinstance(answer, Receipt) and isinstance(call.asked, Lock):
            name = f"receipt_{len(self._receipts) + 1}"
            self._receipts[answer.receipt_id] = name
        elif _are_slots(answer):
            name = f"slots_{len(self._slots) + 1}"
            self._slots[name] = cast("Slots", answer)
        elif isinstance(answer, Admitted) and _are_slots(answer.slots):
            name = f"admitted_{len(self._slots) + 1}"
            self._slots[f"{name}.slots"] = answer.slots
        return name

    @singledispatchmethod
    def _code(self, asked: Asked) -> str:
        return f"cache.{type(asked).__name__.lower()}()"

    @_code.register
    def _(self, asked: Match) -> str:
        return f"cache.match({self._key(asked.key)})"

    @_code.register
    def _(self, asked: Lock) -> str:
        return f"cache.lock({self._key(asked.key)})"

    @_code.register
    def _(self, asked: Unlock) -> str:
        return f"cache.unlock({self._receipt(asked.receipt)})"

    @_code.register
    def _(self, asked: UnlockWindow) -> str:
        return f"cache.unlock_window({self._receipt(asked.receipt)})"

    @_code.register
    def _(self, asked: Allocate) -> str:
        return f"cache.allocate({literal(asked.counts)})"

    @_code.register
    def _(self, asked: Free) -> str:
        return f"cache.free({self._slots_code(asked.slots)})"

    @_code.register
    def _(self, asked: Evict) -> str:
        return f"cache.evict({literal(asked.counts)})"

    @_code.register
    def _(self, asked: EvictHost) -> str:
        return f"cache.evict_host({literal(asked.counts)})"

    @_code.register
    def _(self, asked: LoadBack) -> str:
        quota = "" if asked.quota_pages is None else f", quota_pages={asked.quota_pages}"
        return f"cache.load_back({self._key(asked.key)}{quota})"

    @_code.register
    def _(self, _asked: TakeEvents) -> str:
        return "cache.take_events()"

    @_code.register
    def _(self, asked: Fill) -> str:
        start = f", {asked.start_pages}" if asked.start_pages else ""
        key, slots = self._key(asked.key), self._slots_code(asked.slots)
        return f"write_stamps(cache, {key}, {slots}{start})"

    @_code.register
    def _(self, asked: Ask) -> str:
        key = "" if asked.key is None else f", {self._key(asked.key)}"
        return f"cache.{asked.how}({asked.request_id}{key})"

    @_code.register
    def _(self, asked: Write) -> str:
        return f"cache.write({literal(asked.component)}, {asked.slot}, {asked.data!r})"

    @_code.register
    def _(self, asked: Read) -> str:
        return f"cache.read({literal(asked.component)}, {literal(asked.medium)}, {asked.slot})"

    @_code.register
    def _(self, asked: Decide) -> str:
        return f"copies.{asked.how}(copies.open_transfer_ids[{asked.index}])"

    @_code.register
    def _(self, asked: Insert) -> str:
        parts = [self._key(asked.key), str(asked.start_pages), self._slots_code(asked.slots)]
        if asked.counted_pages:
            parts.append(f"counted_pages={asked.counted_pages}")
        if asked.priority:
            parts.append(f"priority={asked.priority}")
        return f"cache.insert({', '.join(parts)})"

    @_code.register
    def _(self, asked: InsertHost) -> str:
        payload = asked.payload
        counts = Counts(len(payload.full), len(payload.swa), len(payload.mamba))
        key = self._key(asked.key)
        fetched = f"fetched(cache, {key}, {literal(counts)})"
        return f"cache.insert_host({key}, {asked.start_pages}, {fetched})"

    def _key(self, key: Key) -> str:
        for name, known in self._keys.items():
            if known == key:
                return name
        for name, known in self._keys.items():
            if known.namespace == key.namespace and known.pages[: len(key)] == key.pages:
                return f"{name}.prefix({len(key)})"
        name = f"key_{len(self._keys) + 1}"
        self._keys[name] = key
        self._before.append(f"{name} = {_key_literal(key)}")
        return name

    def _receipt(self, receipt: Receipt) -> str:
        return self._receipts.get(receipt.receipt_id) or literal(receipt)

    def _slots_code(self, slots: Slots) -> str:
        for name, known in reversed(self._slots.items()):
            if known == slots:
                return name
        parts = [f"{c.value}={self._stretch(c, some)}" for c, some in slots if some]
        return f"Slots({', '.join(parts)})"

    def _stretch(self, component: Component, some: tuple[int, ...]) -> str:
        """Slots of one component, as parts of what was allocated with them last."""
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
        """The longest beginning that is a part of one allocation, the last such; its length."""
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


def _same(pair: tuple[int, int]) -> bool:
    return pair[0] == pair[1]


def _are_slots(answer: object) -> bool:
    """Whether an answer is made of slots; a faulty cache may say anything."""
    return isinstance(answer, Slots) and all(isinstance(some, tuple) for _, some in answer)


def _key_literal(key: Key) -> str:
    namespace = literal(key.namespace)
    more = "" if namespace == "Namespace()" else f", {namespace}"
    return f"Key({key.pages!r}{more})"
