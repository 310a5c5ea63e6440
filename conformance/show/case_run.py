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
from typing import Any, cast

from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.result import Finding, Grounds, Standing, finding_from_json
from kvcanon.conformance.check.trial import adapter_as, finding_of, short_limit
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, MakeCache, Unoffered
from kvcanon.conformance.report.failure_replay import judges_of, play_recorded
from kvcanon.conformance.report.markup import Markup, tag
from kvcanon.conformance.report.report import CheckReport
from kvcanon.conformance.show.page import embedded
from kvcanon.conformance.show.shown_run import (
    Breach,
    ShownRun,
    ShownStep,
    breach_of_law,
    config_facts,
)
from kvcanon.conformance.show.state_recorder import Heard, StateRecorder, named_steps
from kvcanon.conformance.show.step_packer import DrawnFrom, StepPacker
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.fork import Tell, in_fork
from kvcanon.conformance.workers.workers import workers
from kvcanon.spec.events import Event
from kvcanon.spec.law import Need

ON_THE_PLAIN_CACHE = "kvcanon show with --cache reference shows the same calls on the plain cache."

MOST_SHOWN = 40
"""Findings of a report that get a run."""


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
    heard = Heard()
    finding = _play(case, adapter, judges, heard)
    notes: list[str] = []
    steps = _with_finding(named_steps(heard.calls), finding, expected, notes)
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


def _play(case: Case, adapter: Adapter, judges: JudgeConfig, heard: Heard) -> Finding | None:
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


class TappedCache:
    """A cache whose taken events also go to a listener; everything else is the cache's own."""

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
