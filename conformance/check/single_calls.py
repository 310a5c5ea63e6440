"""Single calls: the actions of a case, each replaced by exact actions that make one call each.

An action makes several calls, of which most faults need one or two. So before a case is reduced to
its end it is played once with every call recorded, and each call is written as an action of its own
that names its key, slots and receipt. Reducing then leaves out single calls.

Pages become letters, equal pages equal letters. There are few letters, so that keys with many
different pages need the other spelling: the children of each prefix are numbered in turn.

An action with a call that no exact action makes stays as it is. What its calls leave with the
client is followed all the same, so that later actions mean the same request or receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from attrs import Factory, define, evolve, fields, frozen

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.exact_actions import LETTERS, MOST_NAMESPACES, exact_action
from kvcanon.conformance.cases.prompts import LONGEST_PAGES
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.recorded_calls import (
    Call,
    RecordedCall,
    RequestCall,
    StampWrite,
    TransferDecision,
    WaitDecision,
)
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Flush,
    Free,
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Poll,
    Receipt,
    Reset,
    TakeEvents,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.types import (
    FULL,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Namespace,
    Page,
    ReceiptId,
    Slots,
)

DECISIONS = {"acknowledge": 0, "perform": 2, "fail": 3}
"""The second pick of `copy` for what is decided about a copy."""
WAIT_ENDS = {"done": "mend_wait", "failed": "fail_wait", "broken_off": "break_off_wait"}
"""The actions that say how the next wait ends."""
PLAIN: Mapping[type, str] = {
    Poll: "poll",
    Flush: "flush",
    Reset: "reset",
    TakeEvents: "take_events",
}
"""The actions of calls without arguments: with picks of 0 each makes its call."""
OF_KEYS: Mapping[type, str] = {
    Match: "match_exactly",
    Lock: "lock_exactly",
    LoadBack: "load_back_exactly",
}
OF_COUNTS: Mapping[type, str] = {Evict: "evict_exactly", EvictHost: "evict_host_exactly"}
USUAL_PRIORITIES = 3
"""The priorities that `finish` can give."""


def in_single_calls(case: Case, adapter: Adapter, judges: JudgeConfig) -> Iterator[Case]:
    """The case with one action for each call, in each spelling of its keys.

    It may do something else than the case: the caller plays it. First comes the one with the fewest
    actions that stayed as they are.
    """
    recorded = _recorded(case, adapter, judges)
    spellings = (spelled_by_page(recorded.keys()), spelled_by_place(recorded.keys()))
    found: dict[Case, int] = {}
    for spelling in spellings:
        translation = _Translation(recorded, spelling)
        for each in translation.cases(case):
            found.setdefault(each, translation.kept)
    yield from sorted(found, key=lambda each: found[each])


@frozen
class _Recorded:
    """The calls of each action, with the drain last, and what the client is like."""

    calls: tuple[tuple[RecordedCall, ...], ...]
    known: tuple[tuple[Key, ...], ...]
    """The keys that became known in each action."""
    components: tuple[Component, ...]
    namespaces: tuple[Namespace, ...]

    def keys(self) -> list[Key]:
        """All keys, in the order of their use."""
        each_action = zip(self.calls, self.known, strict=True)
        return [
            key
            for calls, known in each_action
            for key in (*known, *(each.call.key for each in calls if hasattr(each.call, "key")))
            if isinstance(key, Key)
        ]


def _recorded(case: Case, adapter: Adapter, judges: JudgeConfig) -> _Recorded:
    """Play a case and record its calls."""
    recorder = CallRecorder()
    run = CaseRun(adapter, case, judges, clients=recorder)
    client, known, seen = run.client, list[tuple[Key, ...]](), 0
    for action in case.actions:
        run.act(action)
        recorder.action += 1
        known.append(tuple(client.keys[seen:]))
        seen = len(client.keys)
    if case.drain:
        run.drain(case.drain)
    calls: list[list[RecordedCall]] = [[] for _ in range(len(case.actions) + 1)]
    for call in recorder.calls:
        calls[call.action].append(call)
    return _Recorded(
        tuple(map(tuple, calls)), (*known, ()), case.config.components, tuple(client.namespaces)
    )


# Spellings of keys.

Spelling = Mapping[Key, Sequence[int]]
"""The letters of each key that can be spelled."""


def spelled_by_page(keys: Iterable[Key]) -> Spelling:
    """Spell keys so that equal pages have equal letters; those with too many pages are left out."""
    letters: dict[Page, int] = {}
    spelling: dict[Key, Sequence[int]] = {}
    for key in keys:
        spelled = [letters.setdefault(page, len(letters)) for page in key.pages]
        if len(key) <= LONGEST_PAGES and all(letter < LETTERS for letter in spelled):
            spelling[key] = spelled
    return spelling


def spelled_by_place(keys: Iterable[Key]) -> Spelling:
    """Spell keys so that the pages that follow one prefix have consecutive letters."""
    following: dict[Key, dict[Page, int]] = {}
    spelling: dict[Key, Sequence[int]] = {}
    for key in keys:
        spelled = []
        for at, page in enumerate(key.pages[:LONGEST_PAGES]):
            there = following.setdefault(key.prefix(at), {})
            spelled.append(there.setdefault(page, len(there)))
        if len(key) == len(spelled) and all(letter < LETTERS for letter in spelled):
            spelling[key] = spelled
    return spelling


# The translation.


class _NoSuchActionError(Exception):
    """No exact action makes this call."""


@define
class _Held:
    """What the client of the new case holds after some actions, in its order."""

    requests: list[tuple[Key, int, Slots]] = Factory(list)
    """The key, first page and slots of each request."""
    receipts: list[ReceiptId] = Factory(list)
    spent: list[ReceiptId] = Factory(list)
    blocks: list[Slots] = Factory(list)
    running: list[RequestId] = Factory(list)
    """The requests of a cache that is used by requests."""

    def copy(self) -> _Held:
        """A copy."""
        return _Held(*([*getattr(self, each.name)] for each in fields(_Held)))

    def request_of(self, slots: Slots) -> int:
        """The index of the request with these slots. Raises: _NoSuchActionError."""
        return _index([held for _, _, held in self.requests], slots)


def _index(among: Sequence[object], value: object) -> int:
    """The index of a value. Raises: _NoSuchActionError."""
    if value not in among:
        raise _NoSuchActionError
    return among.index(value)


def _of_decision(call: TransferDecision | WaitDecision) -> Action:
    """A decision about a copy, or about the next wait for one."""
    if isinstance(call, WaitDecision):
        return Action(WAIT_ENDS[call.end])
    return Action("copy", call.index, DECISIONS[call.method])


class _Translation:
    """Writes recorded calls as exact actions, one after the other."""

    def __init__(self, recorded: _Recorded, spelling: Spelling) -> None:
        self._recorded = recorded
        self._spelling = spelling
        self._held = _Held()
        self.kept = 0
        """How many actions stayed as they are."""

    def cases(self, case: Case) -> Iterator[Case]:
        """The case in single calls, also those of its drain if it gets there; or with its drain."""
        *calls, drain = self._recorded.calls
        actions = [
            each
            for action, made, known in zip(case.actions, calls, self._recorded.known, strict=False)
            for each in self._of_action(action, made, known)
        ]
        with suppress(_NoSuchActionError):
            yield evolve(case, actions=(*actions, *self._translated(drain)), drain=())
        if drain:
            yield evolve(case, actions=tuple(actions))

    def _of_action(
        self, action: Action, calls: Sequence[RecordedCall], known: Sequence[Key]
    ) -> list[Action]:
        """An action in single calls, or as it is."""
        before = self._held.copy()
        try:
            names = [self._exact("know_exactly", key) for key in known]
            return [*names, *self._translated(calls)]
        except _NoSuchActionError:
            self._held = before
            self.kept += 1
            self._keep(calls)
            return [action]

    def _translated(self, calls: Sequence[RecordedCall]) -> list[Action]:
        """Calls as exact actions. Raises: _NoSuchActionError."""
        return [
            action
            for at, call in enumerate(calls)
            for action in self._of_call(call, calls[at + 1 :])
        ]

    def _keep(self, calls: Sequence[RecordedCall]) -> None:
        """Follow what an action that stays as it is leaves with the client."""
        slots: list[tuple[Key, Slots]] = []
        for at, each in enumerate(calls):
            match each.call:
                case Lock() if isinstance(each.answer, Receipt):
                    self._held.receipts.append(each.answer.receipt_id)
                case Unlock(receipt) if receipt.receipt_id in self._held.receipts:
                    self._spend(receipt)
                case Allocate() if isinstance(each.answer, Slots):
                    slots.append((self._key_for(each.answer, calls[at + 1 :]), each.answer))
                case Insert(slots=given) | Free(slots=given):
                    slots = [some for some in slots if some[1] != given]
        for key, some in slots:
            if len(key):
                self._held.requests.append((key, len(key) - len(some.full), some))
            else:
                self._held.blocks.append(some)

    def _of_call(self, made: RecordedCall, later: Sequence[RecordedCall]) -> Iterator[Action]:
        """A call as exact actions: one, or none if the client of the new case makes no such call.

        Raises: _NoSuchActionError.
        """
        call, plain = made.call, PLAIN.get(type(made.call))
        match call:
            case StampWrite():
                pass  # A request of an exact action writes its slots at once.
            case Allocate(counts):
                yield self._allocation(counts, made.answer, later)
            case Free(slots):
                yield self._free(slots)
            case Insert():
                yield self._insertion(call, refused=isinstance(made.answer, BaseException))
            case RequestCall():
                yield self._of_request(call, refused=isinstance(made.answer, BaseException))
            case Reset(keep_store=True):
                raise _NoSuchActionError
            case _ if plain:
                yield Action(plain)
            case _:
                yield self._without_slots(call)
                if isinstance(call, Lock) and isinstance(made.answer, Receipt):
                    self._held.receipts.append(made.answer.receipt_id)

    def _without_slots(self, call: Call) -> Action:
        """A call that neither hands over nor gives back slots. Raises: _NoSuchActionError."""
        match call:
            case Match(key) | Lock(key) | LoadBack(key, None):
                return self._exact(OF_KEYS[type(call)], key)
            case LoadBack(key, int(quota)):
                return self._exact("load_back_within", key, rest=quota)
            case InsertHost():
                return self._fetch(call)
            case Unlock(receipt) | UnlockWindow(receipt):
                return self._release(receipt, whole=isinstance(call, Unlock))
            case Evict(counts) | EvictHost(counts):
                return Action(OF_COUNTS[type(call)], counts.full, counts.swa, counts.mamba)
            case TransferDecision() | WaitDecision():
                return _of_decision(call)
            case _:
                raise _NoSuchActionError

    def _release(self, receipt: Receipt, *, whole: bool) -> Action:
        """Release a receipt, or its window alone. Raises: _NoSuchActionError."""
        if not whole:
            return Action("unlock_window", _index(self._held.receipts, receipt.receipt_id))
        if receipt.receipt_id in self._held.receipts:
            return Action("unlock", self._spend(receipt), 0, 1)
        return Action("unlock", _index(self._held.spent, receipt.receipt_id), 0, 0)

    def _of_request(self, call: RequestCall, *, refused: bool) -> Action:
        """A call of a cache of requests. Raises: _NoSuchActionError."""
        running, key = self._held.running, call.key or Key(())
        if call.method == "admit":
            action = self._exact("allocate_exactly", key)
            if not refused:
                running.append(call.request_id)
            return action
        index = _index(running, call.request_id)
        if call.method == "extend":
            return self._exact("extend_exactly", key, rest=index)
        running.remove(call.request_id)
        return Action(call.method, index)

    def _exact(self, name: str, key: Key, rest: int = 0, bare_pages: int = 0) -> Action:
        """An exact action on a key. Raises: _NoSuchActionError."""
        letters, namespaces = self._spelling.get(key), self._recorded.namespaces
        if letters is None or rest < 0 or bare_pages < 0:
            raise _NoSuchActionError
        namespace = _index(namespaces[:MOST_NAMESPACES], key.namespace)
        return exact_action(name, letters, namespace, start_pages=rest, bare_pages=bare_pages)

    def _spend(self, receipt: Receipt) -> int:
        """Spend a receipt; returns its index before."""
        index = self._held.receipts.index(receipt.receipt_id)
        self._held.spent.append(self._held.receipts.pop(index))
        return index

    def _allocation(self, counts: Counts, answer: object, later: Sequence[RecordedCall]) -> Action:
        """A request for the slots of a key, or an allocation for none."""
        if isinstance(answer, Slots):
            key = self._key_for(answer, later)
            start, components = len(key) - counts.full, self._recorded.components
            usual = (counts.swa <= counts.full) if SWA in components else not counts.swa
            if len(key) and start >= 0 and usual and counts.mamba == int(MAMBA in components):
                bare = counts.full - counts.swa if SWA in components else 0
                action = self._exact("allocate_exactly", key, start, bare)
                self._held.requests.append((key, start, answer))
                return action
            self._held.blocks.append(answer)
        if min(counts.full, counts.swa, counts.mamba) < 0:
            raise _NoSuchActionError
        return Action("hold_exactly", counts.full, counts.swa, counts.mamba)

    def _key_for(self, slots: Slots, later: Iterable[RecordedCall]) -> Key:
        """The key whose data a later call of the action puts into slots; empty if none does."""
        for each in later:
            if isinstance(each.call, StampWrite | Insert) and each.call.slots == slots:
                return each.call.key
        return Key(())

    def _free(self, slots: Slots) -> Action:
        if slots in self._held.blocks:
            index = self._held.blocks.index(slots)
            self._held.blocks.pop(index)
            return Action("free_held", index)
        for at, (key, start, held) in enumerate(self._held.requests):
            if held == slots:
                self._held.requests.pop(at)
                return Action("abort", at)
            gone = len(slots.swa)
            if gone and slots == Slots(swa=held.swa[:gone]):
                self._held.requests[at] = key, start, evolve(held, swa=held.swa[gone:])
                return Action("slide", at, gone)
        raise _NoSuchActionError

    def _insertion(self, call: Insert, *, refused: bool) -> Action:
        if not call.slots.counts():
            if call.start_pages != len(call.key) or call.counted_pages or call.priority < 0:
                raise _NoSuchActionError
            return self._exact("hit_exactly", call.key, rest=call.priority)
        index = self._held.request_of(call.slots)
        if self._held.requests[index][:2] != (call.key, call.start_pages):
            raise _NoSuchActionError
        if not refused:
            self._held.requests.pop(index)
        if call.counted_pages or call.priority not in range(USUAL_PRIORITIES):
            return Action("finish_counted", index, call.counted_pages, call.priority)
        return Action("finish", index, 0, call.priority)

    def _fetch(self, call: InsertHost) -> Action:
        given = Counts(*(len(getattr(call.payload, each.value)) for each in (FULL, SWA, MAMBA)))
        components = self._recorded.components
        state = min(1, given.full) if MAMBA in components else 0
        if given.full != len(call.key) - call.start_pages or given.mamba != state:
            raise _NoSuchActionError
        bare = given.full - given.swa if SWA in components else 0
        return self._exact("insert_host_exactly", call.key, call.start_pages, bare)
