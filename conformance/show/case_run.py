"""Records a case for a page: a vector, or the failure of a check, on a new cache."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import Factory, define, evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.trial import finding_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig, with_names
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Unoffered
from kvcanon.conformance.report.call_code import code_lines, named_keys
from kvcanon.conformance.report.failure_replay import play_recorded
from kvcanon.conformance.report.recorded_calls import RecordedCall
from kvcanon.conformance.show.emitted_events import with_event_tap
from kvcanon.conformance.show.shown_run import (
    Breach,
    ShownRun,
    ShownStep,
    breach_of_law,
    config_facts,
)
from kvcanon.conformance.show.state_recorder import ObservedCall, StateRecorder, Told
from kvcanon.conformance.show.step_packer import DrawnFrom, StepPacker
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.fork import Tell, in_fork
from kvcanon.spec.law import Need
from kvcanon.spec.snapshot import Snapshot

ON_THE_PLAIN_CACHE = "kvcanon show with --cache reference shows the same calls on the plain cache."


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
        parts=packer.parts(),
    )


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
