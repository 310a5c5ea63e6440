"""Replays findings: plays each reduced case once more, and records every call and answer.

For a report that is done in a worker, or even in a copy of it, so that a cache cannot end the
report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.call_recorder import CallRecorder
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.recorded_calls import CacheEnded, RecordedCall
from kvcanon.conformance.check.result import Finding, Grounds
from kvcanon.conformance.check.trial import adapter_as, finding_of, short_limit
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig, with_names
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.report.call_code import code_lines, named_keys
from kvcanon.conformance.report.declarations import leaving_out, permitting
from kvcanon.conformance.report.script import script_of
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.fork import Tell, in_fork
from kvcanon.conformance.workers.workers import workers
from kvcanon.spec.law import Level
from kvcanon.spec.types import Key


@frozen
class FindingReplay:
    """The calls of a finding's case."""

    calls: tuple[RecordedCall, ...]
    again: bool
    """Whether the same fault showed again; a cache that is not deterministic may differ."""


def judges_of(finding: Finding, law_ids: Collection[str]) -> JudgeConfig:
    """How to judge a replay so that it ends at the finding, and not before.

    Only the broken laws are checked, or else `law_ids`. SHOULD laws are left out unless the finding
    is of SHOULD laws: they may break before the others, and a replay ends there.
    """
    judges = JudgeConfig(finding.black_box, finding.broken or law_ids)
    must = tuple(law.law_id for law in judges.every_law if law.level is Level.MUST)
    return evolve(judges, laws=must) if must and not finding.only_should else judges


def replay_finding(finding: Finding, adapter: Adapter, judges: JudgeConfig) -> FindingReplay:
    """Play a finding's case again on a new cache, and record all calls and answers."""
    recorder = CallRecorder()
    try:
        found = play_recorded(finding.case, adapter, judges, recorder)
    except Exception as error:  # noqa: BLE001  # Making the cache may raise anything.
        return FindingReplay((), _is_not_made(finding, error))
    calls = _up_to(finding, recorder.calls)
    return FindingReplay(calls, _is_again(found, finding))


class _TellingRecorder(CallRecorder):
    """Tells each call before and after it is made, to a process that outlives this one."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def began(self, call: RecordedCall) -> None:
        """Report what ended before, and the call."""
        self._tell((self.calls, call))
        self.calls = []


def replay_in_copy(finding: Finding, adapter: Adapter, judges: JudgeConfig) -> FindingReplay:
    """As `replay_finding`, in a copy of this process that the cache may end or block.

    The last call is then the one that did so.
    """
    calls: list[RecordedCall] = []
    last: list[RecordedCall] = []

    def heard(told: tuple[list[RecordedCall], RecordedCall]) -> None:
        calls.extend(told[0])
        last[:] = [told[1]]

    def play(tell: Tell) -> tuple[Finding | None, list[RecordedCall]]:
        recorder = _TellingRecorder(tell)
        found = play_recorded(finding.case, adapter, judges, recorder)
        return found, recorder.calls

    try:
        with short_limit():
            found, rest = in_fork(play, heard)
    except ProcessDied as died:
        end = CacheEnded(str(died))
        calls += [evolve(call, answer=end) for call in last]
        ended = finding_of(died.ending, finding.case, adapter.name)
        return FindingReplay(tuple(calls), _is_again(ended, finding))
    except Exception as error:  # noqa: BLE001  # Making the cache may raise anything.
        return FindingReplay((), _is_not_made(finding, error))
    return FindingReplay(_up_to(finding, [*calls, *rest]), _is_again(found, finding))


def _is_not_made(finding: Finding, error: Exception) -> bool:
    not_made = finding.grounds is Grounds.CRASH and not finding.operation
    return not_made and isinstance(error, UsageError)


def calls_of(case: Case, adapter: Adapter) -> tuple[RecordedCall, ...]:
    """The calls of a case that a cache plays without a fault. Raises: AssertionError: a fault."""
    recorder = CallRecorder()
    finding = play_recorded(case, adapter, JudgeConfig(black_box=True), recorder)
    if finding is not None:
        raise AssertionError(finding.words)
    return tuple(recorder.calls)


def play_recorded(
    case: Case, adapter: Adapter, judges: JudgeConfig, recorder: CallRecorder
) -> Finding | None:
    """Play a case up to the first finding, of SHOULD laws too. Raises: as `make_subject`."""
    judges = evolve(judges, ends_at_should=True)
    run = CaseRun(adapter, case, judges, clients=recorder)
    for action in case.actions:
        run.act(action)
        recorder.action += 1
    if case.drain:
        run.drain(case.drain)
    return run.finding


def _up_to(finding: Finding, calls: Sequence[RecordedCall]) -> tuple[RecordedCall, ...]:
    """The calls up to the finding: after a difference between two caches both go on."""
    last = finding.operation
    kept = list(takewhile(lambda call: call.number is None or call.number <= last, calls))
    while kept and kept[-1].number is None and not isinstance(kept[-1].answer, BaseException):
        kept.pop()
    return tuple(kept)


def _is_again(found: Finding | None, finding: Finding) -> bool:
    """Whether a replay found it again."""
    if finding.grounds is Grounds.AGREEMENT:
        # A difference needs two caches, and the replay has one.
        return found is None
    if found is None or found.grounds is not finding.grounds:
        return False
    return finding.name in (found.broken if finding.grounds is Grounds.LAW else (found.name,))


# For a report.


def replay_all(
    name: str, findings: Sequence[Finding], law_ids: Sequence[str], seed: int, *, apart: bool
) -> tuple[Finding, ...]:
    """Replay the findings of a cache by its name, here or in a worker with the seed of the check.

    `law_ids` are the laws to check where no law is broken.
    """
    if not apart:
        adapter = adapter_as(name)
        return tuple(replayed(finding, adapter, law_ids) for finding in findings)
    with workers(1, apart=True, seed=seed) as by:
        shown = []
        for finding in findings:
            job = by.executor.submit(replay_one, name, finding, law_ids, False)
            try:
                shown.append(job.result())
            except ProcessDied:
                again = by.executor.submit(replay_one, name, finding, law_ids, True)
                shown.append(again.result())
        return tuple(shown)


def replay_one(
    name: str,
    finding: Finding,
    law_ids: Sequence[str],
    in_copy: bool,  # Of a job.
) -> Finding:
    """Replay a finding; in a copy of this process if it ends or blocks its process."""
    in_copy = in_copy or finding.takes_its_process
    return replayed(finding, adapter_as(name), law_ids, in_copy=in_copy)


def replayed(
    finding: Finding, adapter: Adapter, law_ids: Collection[str], *, in_copy: bool = False
) -> Finding:
    """A finding with the calls of its replay; `law_ids` are the laws to check if it is of no law.

    `in_copy` plays in a copy of this process.
    """
    judges = judges_of(finding, law_ids)
    replay = (replay_in_copy if in_copy else replay_finding)(finding, adapter, judges)
    shown = evolve(
        _with_names(finding, named_keys(replay.calls)),
        calls=code_lines(replay.calls),
        shown_again=replay.again,
        folded=tuple(replayed(each, adapter, law_ids, in_copy=in_copy) for each in finding.folded),
    )
    shown = evolve(shown, script=script_of(shown, judges))
    if in_copy or finding.grounds is not Grounds.LAW:
        return shown
    return evolve(
        shown,
        permitted_by=permitting(finding, adapter),
        left_out_by=leaving_out(finding, adapter.offer, named_keys(replay.calls).values()),
    )


def _with_names(finding: Finding, keys: Mapping[str, Key]) -> Finding:
    """A finding whose sentences give each key the name that it has in the calls."""
    return evolve(
        finding,
        text=with_names(finding.text, keys),
        words=with_names(finding.words, keys),
        texts=tuple(with_names(text, keys) for text in finding.texts),
    )
