"""Records the calls of a case with the state, the events and the broken laws after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

from attrs import Factory, define, evolve

from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.recorded_calls import Call, RecordedCall
from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge import with_names
from kvcanon.conformance.protocol.adapter import RequestSubject, Subject
from kvcanon.conformance.report.answer_text import answer_in_words, outcome_in_words
from kvcanon.conformance.report.call_code import code_lines, named_keys
from kvcanon.conformance.show.rows import WaitingEvents
from kvcanon.conformance.show.shown_run import Breach, ShownStep, breaches_of
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.law import Need
from kvcanon.spec.operations import TakeEvents
from kvcanon.spec.snapshot import Snapshot

Result = TypeVar("Result")

ObservedCall: TypeAlias = tuple[RecordedCall, ShownStep]
"""A call that ended, and what was seen then; its code is written once all calls are known."""
Told: TypeAlias = Snapshot | RecordedCall | ObservedCall | None
"""The state of the new cache, None if it does not show it; a call that begins; one that ended."""


@define
class Heard:
    """The calls that a recorder reported, in order."""

    start: Snapshot | None = None
    calls: list[ObservedCall] = Factory(list)
    last: RecordedCall | None = None
    """A call that began and has not ended."""

    def hear(self, told: Told) -> None:
        """Take a report."""
        if isinstance(told, RecordedCall):
            self.last = told
        elif isinstance(told, tuple):
            self.calls.append(told)
            self.last = None
        else:
            self.start = told


def named_steps(calls: Sequence[ObservedCall]) -> list[ShownStep]:
    """The steps of calls that ended, with their code, in which each key has one name."""
    recorded = [call for call, _ in calls]
    keys = named_keys(recorded)
    steps = []
    for line, (_, step) in zip(code_lines(recorded), calls, strict=True):
        breaches = [evolve(each, text=with_names(each.text, keys)) for each in step.breaches]
        steps.append(
            evolve(step, code=line.code, definitions=line.before, breaches=tuple(breaches))
        )
    return steps


class StateRecorder(CallRecorder):
    """Records calls with the states after them, and reports each as it ends."""

    def __init__(self, tell: Callable[[Told], None], *, by_states: bool) -> None:
        """`by_states` says that events wait in snapshots until the client takes them."""
        super().__init__()
        self.heard: list[Event] = []
        """Events that an event tap heard since the last call ended."""
        self._tell = tell
        self._by_states = by_states
        self._look: Callable[[], Snapshot] | None = None
        self._waiting = WaitingEvents(None)

    def made(self, subject: Subject | RequestSubject) -> None:
        """Report the state of the new cache."""
        if Need.SNAPSHOT in subject.shows:
            self._look = subject.cache.snapshot
        state = self._state()
        self._waiting = WaitingEvents(state)
        self._tell(state)

    def record(self, call: Call, do: Callable[[], Result], *, operation: bool = False) -> Result:
        """Make a call, and report what was seen when it ended."""
        ended = len(self.calls)
        try:
            return super().record(call, do, operation=operation)
        finally:
            if len(self.calls) > ended:  # Not a part of a call that is recorded as a whole.
                self._ended(self.calls[-1])

    def began(self, call: RecordedCall) -> None:
        """Report a call before it is made."""
        self._tell(call)

    def _ended(self, call: RecordedCall) -> None:
        answer = call.answer
        state = self._state()
        breaches: tuple[Breach, ...] = ()
        if isinstance(answer, ViolationError):
            breaches = breaches_of(answer)
            if answer.step is not None:
                state = answer.step.after  # What the judge saw.
        elif isinstance(answer, BaseException) and not isinstance(answer, CacheError):
            breaches = (Breach(f"crash: {type(answer).__name__}", answer_in_words(answer)),)
        kept = None if isinstance(answer, BaseException) else answer
        step = ShownStep(
            call.action,
            call.number,
            "",
            _words_of(answer),
            isinstance(answer, CacheError),
            state,
            self._events(call.call, state),
            breaches,
        )
        self._tell((evolve(call, answer=kept), step))

    def _state(self) -> Snapshot | None:
        """The state now; None if the cache does not show one."""
        if self._look is None:
            return None
        try:
            state: object = self._look()
        except Exception:  # noqa: BLE001  # A faulty cache may raise anything.
            return None
        return state if isinstance(state, Snapshot) else None

    def _events(self, call: Call, state: Snapshot | None) -> tuple[Event, ...]:
        """The events that a call emitted."""
        heard, self.heard[:] = tuple(self.heard), ()
        if not self._by_states:
            return heard
        return self._waiting.emitted(state, taken=isinstance(call, TakeEvents))


def _words_of(answer: object) -> str:
    """An answer in words; the page says beside it which laws it breaks."""
    if isinstance(answer, ViolationError):
        return outcome_in_words(answer) or "the answer is not kept"
    return answer_in_words(answer)
