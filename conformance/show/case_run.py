"""Records a case for a page: a vector, or the failure of a check, on a new cache.

The case is played in a copy of this process, which tells each call as it ends: a cache that ends or
blocks its process is shown up to there. A judge without snapshots takes the events after each
operation. So they are heard with the operation that emitted them, which the client that takes them
later could not say.

A finding is judged by the laws that it breaks, so that the run ends at the call that breaks them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar, cast

from attrs import Factory, define, evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.recorded_calls import Call, RecordedCall
from kvcanon.conformance.check.result import Finding, Grounds, Standing, finding_from_json
from kvcanon.conformance.check.trial import adapter_as, finding_of, short_limit
from kvcanon.conformance.errors import UsageError, ViolationError
from kvcanon.conformance.judge import JudgeConfig, with_names
from kvcanon.conformance.protocol.adapter import (
    Adapter,
    CacheKind,
    MakeCache,
    RequestSubject,
    Subject,
    Unoffered,
)
from kvcanon.conformance.report.answer_text import answer_in_words, outcome_in_words
from kvcanon.conformance.report.call_code import code_lines, named_keys
from kvcanon.conformance.report.failure_replay import judges_of, play_recorded
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.conformance.report.report import CheckReport
from kvcanon.conformance.show.page import embedded
from kvcanon.conformance.show.rows import WaitingEvents
from kvcanon.conformance.show.shown_run import (
    Breach,
    ShownRun,
    ShownStep,
    breach_of_law,
    breaches_of,
    config_facts,
)
from kvcanon.conformance.show.step_packer import DrawnFrom, StepPacker
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.fork import Tell, in_fork
from kvcanon.conformance.workers.workers import workers
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import Event
from kvcanon.spec.law import Need
from kvcanon.spec.operations import TakeEvents
from kvcanon.spec.snapshot import Snapshot

Result = TypeVar("Result")

ON_THE_PLAIN_CACHE = "kvcanon show with --cache reference shows the same calls on the plain cache."

MOST_SHOWN = 40
"""Findings of a report that get a run."""

ObservedCall: TypeAlias = tuple[RecordedCall, ShownStep]
"""A call that ended, and what was seen then; its code is written once all calls are known."""
Told: TypeAlias = Snapshot | RecordedCall | ObservedCall | None
"""The state of the new cache, None if it does not show it; a call that begins; one that ended."""


@define
class _Heard:
    """What the copy of this process told."""

    start: Snapshot | None = None
    calls: list[ObservedCall] = Factory(list)
    last: RecordedCall | None = None
    """A call that began and has not ended."""

    def hear(self, told: Told) -> None:
        """Take what was told."""
        if isinstance(told, RecordedCall):
            self.last = told
        elif isinstance(told, tuple):
            self.calls.append(told)
            self.last = None
        else:
            self.start = told


def record_case(
    case: Case,
    adapter: Adapter,
    judges: JudgeConfig,
    title: str,
    expected: Finding | None = None,
) -> ShownRun:
    """Play a case on a new cache in a copy of this process, up to the first finding.

    `expected` is what the page must show. Raises: UsageError: the cache cannot be made, or does not
    offer the configuration.
    """
    heard = _Heard()
    finding = _play(case, adapter, judges, heard)
    calls = [call for call, _ in heard.calls]
    keys = named_keys(calls)
    steps = []
    for line, (_, step) in zip(code_lines(calls), heard.calls, strict=True):
        breaches = [evolve(each, text=with_names(each.text, keys)) for each in step.breaches]
        steps.append(
            evolve(step, code=line.code, definitions=line.before, breaches=tuple(breaches))
        )
    notes: list[str] = []
    steps = _with_finding(steps, finding, expected, notes)
    packer = StepPacker(heard.start)
    for step in steps:
        packer.add(step)
    notes += packer.lacks(adapter.name)
    if packer.drawn is DrawnFrom.NOTHING:
        notes.append(ON_THE_PLAIN_CACHE)
    names = (*(action.name for action in case.actions), "the drain")
    return ShownRun(
        title=title,
        facts=(("cache", adapter.name), *config_facts(case.config)),
        config=case.config,
        group_word="action",
        groups=names,
        charts=packer.charts(),
        notes=(*notes, *packer.notes),
        steps=packer.steps,
        breaks_at=packer.breaks_at,
        # A case ends with the call that it is about.
        opens_at=None if packer.breaks_at is not None else packer.steps,
        parts=packer.parts(),
    )


def run_of_finding(cache: str, finding: Finding, law_ids: Collection[str]) -> ShownRun:
    """Record a finding; `law_ids` are the laws to check if it is of no law. Raises: UsageError."""
    judges = judges_of(finding, law_ids)
    with short_limit():
        return record_case(finding.case, adapter_as(cache), judges, finding.headline, finding)


def drawn_findings(report: CheckReport, seed: int) -> Callable[[Finding], Markup]:
    """Record the findings of a report in a worker; returns the element of each for its page."""
    drawn: dict[str, Markup] = {}
    caches = {cache.name: cache for cache in report.caches}
    with workers(1, apart=True, seed=seed) as by:
        for each in report.findings[:MOST_SHOWN]:
            checked = [
                judged.law.law_id
                for judged in caches[each.cache].laws
                if judged.standing in (Standing.HELD, Standing.BROKEN)
            ]
            job = by.executor.submit(run_of_finding, each.cache, each, checked)
            try:
                drawn[each.number] = embedded(job.result())
            except (UsageError, ProcessDied) as problem:
                drawn[each.number] = tag("p", f"No tree can be shown: {problem}")
    return lambda finding: drawn.get(finding.number, Markup(""))


def numbered_findings(report: Mapping[str, Any]) -> dict[str, tuple[Finding, list[str]]]:
    """The findings of a JSON report by number, each with the laws that were checked.

    Raises: KeyError, TypeError, ValueError, BadArgument: it is no such report.
    """
    found: dict[str, tuple[Finding, list[str]]] = {}
    firsts = [
        (cache, finding)
        for cache in report["caches"]
        for finding in (*cache["failures"], *cache["not_kept"])
    ]
    for number, (cache, first) in enumerate(firsts, 1):
        laws = [law["id"] for law in cache["laws"] if law["standing"] in ("held", "broken")]
        for at, each in enumerate([first, *first["folded"]]):
            name = f"{number}.{at}" if at else f"{number}"
            found[name] = finding_from_json(each, cache["name"]), laws
    return found


def _play(case: Case, adapter: Adapter, judges: JudgeConfig, heard: _Heard) -> Finding | None:
    """Play in a copy of this process. Raises: UsageError."""
    is_tree = adapter.kind is CacheKind.TREE
    by_states = is_tree and not judges.black_box and Need.SNAPSHOT not in adapter.hides

    def play(tell: Tell) -> Finding | None:
        recorder = StateRecorder(tell, by_states=by_states)
        tapped = adapter
        if not by_states:
            tapped = with_event_tap(adapter, recorder.heard)
        try:
            return play_recorded(case, tapped, judges, recorder)
        except Unoffered as refusal:
            raise UsageError(f"this case cannot be played: {refusal}") from refusal

    try:
        return in_fork(play, heard.hear)
    except ProcessDied as died:
        finding = finding_of(died.ending, case, adapter.name)
        if heard.last is not None:
            call, breach = heard.last, Breach(finding.headline, finding.text)
            step = ShownStep(call.action, call.number, "", finding.text, breaches=(breach,))
            heard.calls.append((call, step))
        return finding


def _with_finding(
    steps: Sequence[ShownStep],
    finding: Finding | None,
    expected: Finding | None,
    notes: list[str],
) -> list[ShownStep]:
    """The steps with the breach that was expected, or that no call shows."""
    shown = list(steps)
    if any(step.breaches for step in shown):
        return shown
    if finding is not None and shown:
        shown[-1] = evolve(shown[-1], breaches=_breaches(finding))
        return shown
    if finding is not None:
        notes.append(f"{finding.headline}: {finding.text}")
    if expected is None:
        return shown
    at = next(
        (i for i, step in enumerate(shown) if step.number == expected.operation), len(shown) - 1
    )
    breaches = _breaches(expected)
    if shown and expected.grounds is Grounds.AGREEMENT:  # A cache alone does not show it.
        shown[at] = evolve(shown[at], breaches=breaches)
        return shown[: at + 1]
    named = ", ".join(breach.title for breach in breaches)
    notes.append(f"The fault did not show again when this page was made: {named}.")
    return shown


def _breaches(finding: Finding) -> tuple[Breach, ...]:
    """What a finding says that breaks."""
    broken = tuple(breach_of_law(law_id, text) for law_id, text in finding.evidence.items())
    return broken or (Breach(finding.headline, finding.text),)


class StateRecorder(CallRecorder):
    """Records calls with the states after them, and tells each as it ends."""

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
        """Tell the state of the new cache."""
        if Need.SNAPSHOT in subject.shows:
            self._look = subject.cache.snapshot
        state = self._state()
        self._waiting = WaitingEvents(state)
        self._tell(state)

    def record(self, call: Call, do: Callable[[], Result], *, operation: bool = False) -> Result:
        """Make a call, and tell what was seen when it ended."""
        ended = len(self.calls)
        try:
            return super().record(call, do, operation=operation)
        finally:
            if len(self.calls) > ended:  # Not a part of a call that is recorded as a whole.
                self._ended(self.calls[-1])

    def began(self, call: RecordedCall) -> None:
        """Tell a call before it is made."""
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


class TappedCache:
    """A cache whose taken events are heard; everything else is the cache's own."""

    def __init__(self, cache: object, heard: list[Event]) -> None:
        self._tapped, self._heard = cache, heard

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # Whatever the cache has there.
        found = getattr(self._tapped, name)
        if name != "take_events" or not callable(found):
            return found

        def take_events() -> object:
            events = found()
            if isinstance(events, tuple):
                self._heard.extend(events)
            return events

        return take_events


def with_event_tap(adapter: Adapter, heard: list[Event]) -> Adapter:
    """The same adapter; `heard` gets all events that are taken from a cache that it makes."""

    @wraps(adapter.make, updated=())
    def make(*args: object, **kwargs: object) -> object:
        return TappedCache(adapter.make(*args, **kwargs), heard)

    return evolve(adapter, make=cast("MakeCache", make))
