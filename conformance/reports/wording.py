"""Wording: calls as lines of Python that can be run, and answers in a few words.

Keys, receipts and slots get names where they come up, so that a line says which of them it means,
and means the same though a mended cache hands out other slots.

What readers get wrong: `slots_2.full[1:]` is what the second allocation gave, whatever became of it
since. That it is still held is the client's business, or the mistake that the case is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import cast

from attrs import NOTHING, fields, frozen, has

from kvcanon.conformance.reports.retelling import Asked, Call, Decide, Fill, Read, Write
from kvcanon.conformance.verdict import LawsBroken
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import (
    Allocate,
    Done,
    Evict,
    Evicted,
    EvictHost,
    Flush,
    Free,
    HostInserted,
    Insert,
    Inserted,
    InsertHost,
    LoadBack,
    LoadDecision,
    LoadedBack,
    Lock,
    Match,
    Matched,
    Poll,
    Receipt,
    Refused,
    Reset,
    Settled,
    TakeEvents,
    Taken,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.types import Component, Counts, Key, Slots

LONGEST = 110
"""Characters of an answer of unknown kind that are shown."""


@frozen
class Line:
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


def lines_of(calls: Sequence[Call]) -> tuple[Line, ...]:
    """Calls in words."""
    names = _Names()
    return tuple(
        Line(
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
    for each in fields(type(value)):
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

    def worded(self, call: Call) -> tuple[tuple[str, ...], str]:
        """Definitions that a call needs, and the call."""
        self._before = []
        code = self._code(call.asked)
        if isinstance(call.asked, Lock) and isinstance(call.answer, Receipt):
            name = f"receipt_{len(self._receipts) + 1}"
            self._receipts[call.answer.receipt_id] = name
            code = f"{name} = {code}"
        if isinstance(call.asked, Allocate) and _are_slots(call.answer):
            name = f"slots_{len(self._slots) + 1}"
            self._slots[name] = cast("Slots", call.answer)
            code = f"{name} = {code}"
        return tuple(self._before), code

    def _code(self, asked: Asked) -> str:
        match asked:
            case Match(key):
                code = f"cache.match({self._key(key)})"
            case Lock(key):
                code = f"cache.lock({self._key(key)})"
            case Unlock(receipt):
                code = f"cache.unlock({self._receipt(receipt)})"
            case UnlockWindow(receipt):
                code = f"cache.unlock_window({self._receipt(receipt)})"
            case Allocate(counts):
                code = f"cache.allocate({literal(counts)})"
            case Free(slots):
                code = f"cache.free({self._slots_code(slots)})"
            case Insert():
                code = self._insert(asked)
            case Evict(counts):
                code = f"cache.evict({literal(counts)})"
            case EvictHost(counts):
                code = f"cache.evict_host({literal(counts)})"
            case LoadBack(key, quota_pages):
                quota = "" if quota_pages is None else f", quota_pages={quota_pages}"
                code = f"cache.load_back({self._key(key)}{quota})"
            case InsertHost():
                code = self._insert_host(asked)
            case Poll() | Flush() | Reset():
                code = f"cache.{type(asked).__name__.lower()}()"
            case TakeEvents():
                code = "cache.take_events()"
            case _:
                code = self._no_operation(asked)
        return code

    def _no_operation(self, asked: Fill | Write | Read | Decide) -> str:
        match asked:
            case Fill(key, slots):
                return f"write_stamps(cache, {self._key(key)}, {self._slots_code(slots)})"
            case Write(component, slot, data):
                return f"cache.write({literal(component)}, {slot}, {data!r})"
            case Read(component, medium, slot):
                return f"cache.read({literal(component)}, {literal(medium)}, {slot})"
            case Decide(how, index):
                return f"copies.{how}(copies.open_transfer_ids[{index}])"

    def _insert(self, asked: Insert) -> str:
        parts = [self._key(asked.key), str(asked.start_pages), self._slots_code(asked.slots)]
        if asked.counted_pages:
            parts.append(f"counted_pages={asked.counted_pages}")
        if asked.priority:
            parts.append(f"priority={asked.priority}")
        return f"cache.insert({', '.join(parts)})"

    def _insert_host(self, asked: InsertHost) -> str:
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
        """Slots of one component, as a part of what was allocated last with all of them."""
        for name, known in reversed(self._slots.items()):
            there = known[component]
            for at in range(len(there) - len(some) + 1):
                if there[at : at + len(some)] == some:
                    whole = f"{name}.{component.value}"
                    start = str(at) if at else ""
                    end = "" if at + len(some) == len(there) else str(at + len(some))
                    return whole if not start and not end else f"{whole}[{start}:{end}]"
        return repr(some)


def _are_slots(answer: object) -> bool:
    """Whether an answer is made of slots; a faulty cache may say anything."""
    return isinstance(answer, Slots) and all(isinstance(some, tuple) for _, some in answer)


def _key_literal(key: Key) -> str:
    namespace = literal(key.namespace)
    more = "" if namespace == "Namespace()" else f", {namespace}"
    return f"Key({key.pages!r}{more})"


def answer_in_words(answer: object) -> str:
    """What came of a call."""
    match answer:
        case LawsBroken():
            return _broken(answer)
        case Refused(error):
            return answer_in_words(error)
        case CacheError():
            return f"refused, {type(answer).__name__}: {answer}"
        case Exception():
            return f"raised {type(answer).__name__}: {answer}".rstrip(": ")
        case None | Done():
            return "done"
        case bytes():
            return f"{len(answer)} bytes"
        case Taken(events):
            return _events(events)
        case tuple():
            return _events(answer)
    try:
        return _outcome(answer)
    except (TypeError, AttributeError):
        # What is told here is a fault, and it may be just that an answer is made of nonsense.
        return _shortened(answer)


def _outcome(answer: object) -> str:
    match answer:
        case Matched(prefix_pages, device_pages, _, pending):
            loading = f"; still loading: transfer {_listed(pending)}" if pending else ""
            return f"{_pages(prefix_pages)} usable, {device_pages} on the device{loading}"
        case Receipt(receipt_id):
            return f"receipt {receipt_id}"
        case Slots():
            some = [f"{c.value} {_listed(slots)}" for c, slots in answer if slots]
            return ", ".join(some) or "no slots"
        case Inserted():
            return _inserted(answer)
        case Evicted(freed):
            return f"freed {_counts(freed)}"
        case LoadedBack():
            return _loaded(answer)
        case HostInserted(placed, refilled, present, dropped):
            return f"{placed} placed, {refilled} refilled, {present} present, {dropped} dropped"
        case Settled(transfers):
            each = [f"transfer {transfer_id} {status.value}" for transfer_id, status in transfers]
            return ", ".join(each) or "nothing settled"
    return _shortened(answer)


def _shortened(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _broken(broken: LawsBroken) -> str:
    law_ids = ", ".join(dict.fromkeys(each.law.law_id for each in broken.violations))
    outcome = getattr(getattr(broken, "step", None), "outcome", None)
    said = "" if outcome is None else f"{answer_in_words(outcome)}  "
    return f"{said}<- breaks {law_ids}"


def _inserted(answer: Inserted) -> str:
    parts = [f"{_pages(answer.present_pages)} present", f"took {_counts(answer.adopted)}"]
    if answer.freed:
        parts.append(f"freed {_counts(answer.freed)}")
    if answer.backups:
        parts.append(f"backup: transfer {_listed(answer.backups)}")
    if answer.backup_declined_pages:
        parts.append(f"no room to back up {_pages(answer.backup_declined_pages)}")
    return ", ".join(parts)


def _loaded(answer: LoadedBack) -> str:
    evicted = f"; evicted {_counts(answer.evicted)}" if answer.evicted else ""
    if answer.decision is LoadDecision.ENQUEUED:
        return f"transfer {answer.transfer_id} loads {_counts(answer.loading)}{evicted}"
    return f"{answer.decision.value.replace('_', ' ')}{evicted}"


def _events(events: tuple[object, ...]) -> str:
    return ", ".join(_event(event) for event in events) or "no events"


def _event(event: Event | object) -> str:
    if isinstance(event, AllBlocksCleared):
        return "cleared"
    kind = "stored" if isinstance(event, BlockStored) else "removed"
    return f"{kind} {getattr(event, 'medium', '?')}"


def _counts(counts: Counts) -> str:
    some = [f"{counts[each]} {each.value}" for each in Component if counts[each]]
    return ", ".join(some) or "nothing"


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _listed(numbers: Sequence[int]) -> str:
    return " ".join(str(each) for each in numbers)
