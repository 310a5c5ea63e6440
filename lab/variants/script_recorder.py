"""Recording: records the script of a case from the plain cache.

Two kinds of calls are added to those of the case's actions: after a match, reads of the slots that
it returned; and after each call that emitted events, and at the end, `take_events`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import cast

from attrs import evolve

from kvcanon.conformance.cases.actions import act
from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.client import Client, Stamps
from kvcanon.conformance.protocol.adapter import CopyControl, make_subject
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.protocol.wire import to_json
from kvcanon.conformance.protocol.wrapped_cache import Answer, Arguments, WrappedCache
from kvcanon.conformance.vectors import Json, Script, ScriptCall
from kvcanon.lab.variants.script_names import ScriptNames, slot_owners
from kvcanon.spec.cache import Cache
from kvcanon.spec.errors import BadArgument, CacheError, ReceiptSpent, SlotNotHeld, TransferPending
from kvcanon.spec.operations import Matched, Operation, Read, TakeEvents, Write, method_of
from kvcanon.spec.types import GPU, Component, Slot, TransferId
from kvcanon.spec.views import PageNumbers

_BY_KIND_ONLY = (BadArgument, ReceiptSpent, SlotNotHeld, TransferPending)
"""Refusals whose fields differ between caches: texts, or numbers that the cache chooses."""


def record_script(case: Case) -> Script:
    """Record the calls of a case and the plain cache's answers, without marks."""
    subject = make_subject(REFERENCE, case.config)
    assert subject.copies is not None  # The plain cache takes an engine.
    cache = ScriptRecorder(subject.cache, subject.copies)
    client = Client(cache, subject.can, CopyRecorder(cache), Stamps(case.config.slot_bytes))
    client.states_within = subject.states_within
    for action in case.actions:
        act(client, *action)
    if case.drain:
        client.drain(case.drain)
    if cache.calls[-1].call["op"] != "take_events":
        cache.take_emitted(at_the_end=True)
    return Script(cache.names.keys, tuple(cache.calls))


class ScriptRecorder(WrappedCache):
    """A cache whose calls are recorded as JSON, with names for the numbers that it chose."""

    def __init__(self, cache: Cache, copies: CopyControl) -> None:
        super().__init__(cache)
        self.copies = copies
        self.calls: list[ScriptCall] = []
        self.names = ScriptNames()
        self._numbers = PageNumbers()
        self.take_emitted()

    def _around(
        self,
        operation: Operation,
        call: Callable[Arguments, Answer],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Answer:
        before = slot_owners(self._cache.snapshot(), self._numbers)
        asked = self._asked(operation)
        try:
            answer = call(*args, **kwargs)
        except CacheError as refusal:
            self._note(asked, {"refused": refusal_to_json(refusal)})
            raise
        self.names.forget_slots(before, slot_owners(self._cache.snapshot(), self._numbers))
        told = evolve(answer, branch_pages=None) if isinstance(answer, Matched) else answer
        self._note(asked, {"ok": to_json(told, brief=True)})
        if isinstance(answer, Matched):
            self._read(answer)
        if not isinstance(operation, TakeEvents):
            self.take_emitted()
        return answer

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a device slot that a request holds."""
        self._around(Write(component, slot, data), self._cache.write, component, slot, data)

    def take_emitted(self, *, at_the_end: bool = False) -> None:
        """Record a `take_events` call, if there are events."""
        events = self._cache.take_events()
        if events or at_the_end:
            self._note({"op": "take_events"}, {"ok": to_json(events, brief=True)})

    def decide(self, how: str, transfer_id: TransferId) -> None:
        """Record and make a decision about a copy in flight."""
        there = self.copies.open_transfer_ids
        if not all(map(self.names.knows_transfer, there)):
            self._note({"op": "open_transfer_ids"}, {"ok": list(map(self.names.transfer, there))})
        getattr(self.copies, how)(transfer_id)
        self._note({"op": how, "transfer_id": transfer_id}, {"ok": None})

    def _asked(self, operation: Operation) -> Json:
        arguments = cast("Json", to_json(operation))
        for name in ("state_pages", "keep_store"):  # Only some caches take them.
            if not arguments.get(name, True):
                del arguments[name]
        return cast("Json", self.names.of_call({"op": method_of(type(operation)), **arguments}))

    def _read(self, matched: Matched) -> None:
        for component, slots in matched.slots:
            for slot in slots:
                data = self._cache.read(component, GPU, slot)
                self._note(self._asked(Read(component, GPU, slot)), {"ok": data.hex()})

    def _note(self, call: Json, answer: Json) -> None:
        named = (self.names.of_call(call), self.names.of_answer(answer))
        # JSON has lists, not tuples.
        self.calls.append(ScriptCall(*json.loads(json.dumps(named))))


class CopyRecorder:
    """Copy control that records each decision."""

    def __init__(self, cache: ScriptRecorder) -> None:
        self._cache = cache

    @property
    def open_transfer_ids(self) -> Sequence[TransferId]:
        """Return the copies that neither completed nor failed."""
        return self._cache.copies.open_transfer_ids

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now, without acknowledging the copy to the cache."""
        self._cache.decide("perform", transfer_id)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done."""
        self._cache.decide("acknowledge", transfer_id)

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed."""
        self._cache.decide("fail", transfer_id)


def refusal_to_json(refusal: CacheError) -> Json:
    """Encode the part of a refusal that is the same for all lawful caches."""
    if isinstance(refusal, _BY_KIND_ONLY):
        return {"kind": type(refusal).__name__}
    return cast("Json", to_json(refusal))
