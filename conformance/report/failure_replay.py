"""Replays a failure: plays its reduced case once more, and records every call and answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.client import Stamps
from kvcanon.conformance.check.deaths import REDUCED_SECONDS, finding_of
from kvcanon.conformance.check.finding import Finding, Grounds
from kvcanon.conformance.check.play import CaseRun
from kvcanon.conformance.check.result import Failure
from kvcanon.conformance.check.time_limit import LIMIT
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge.judges import JudgeConfig, laws_of
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.report.call_recorder import CallRecorder
from kvcanon.conformance.report.recorded_calls import CacheEnded, RecordedCall
from kvcanon.conformance.workers.ending import ProcessDied
from kvcanon.conformance.workers.fork import Tell, in_fork
from kvcanon.spec.law import Level


@frozen
class FailureReplay:
    """The calls of a failure."""

    calls: tuple[RecordedCall, ...]
    again: bool
    """Whether the same fault showed again; a cache that is not deterministic may differ."""


def judges_of(failure: Failure, law_ids: Collection[str]) -> JudgeConfig:
    """How to judge a replay so that it ends at the failure, and not before.

    Only the broken laws are checked, or else `law_ids`. SHOULD laws are left out unless the failure
    is of SHOULD laws: they may break before the others, and a replay ends there.
    """
    laws = laws_of(failure.finding.broken or law_ids)
    if laws and not failure.finding.only_should:
        laws = tuple(law for law in laws if law.level is Level.MUST) or laws
    return JudgeConfig(failure.black_box, laws)


def replay_failure(failure: Failure, adapter: Adapter, judges: JudgeConfig) -> FailureReplay:
    """Play a failure's case again on a new cache, and record all calls and answers."""
    recorder = CallRecorder()
    first = failure.finding
    try:
        found = play_recorded(failure.case, adapter, judges, recorder)
    except Exception as error:  # noqa: BLE001  # Making the cache may raise anything.
        return FailureReplay((), _is_not_made(failure, error))
    calls = _up_to_the_finding(recorder.calls, failure)
    return FailureReplay(calls, _is_again(found, first))


class _TellingRecorder(CallRecorder):
    """Tells each call before and after it is made, to a process that outlives this one."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def began(self, call: RecordedCall) -> None:
        """Tell what ended before, and the call."""
        self._tell((self.calls, call))
        self.calls = []


def replay_in_copy(failure: Failure, adapter: Adapter, judges: JudgeConfig) -> FailureReplay:
    """As `replay_failure`, in a copy of this process that the cache may end or block.

    The last call is then the one that did so.
    """
    calls: list[RecordedCall] = []
    last: list[RecordedCall] = []

    def heard(told: tuple[list[RecordedCall], RecordedCall]) -> None:
        calls.extend(told[0])
        last[:] = [told[1]]

    def play(tell: Tell) -> tuple[Finding | None, list[RecordedCall]]:
        recorder = _TellingRecorder(tell)
        found = play_recorded(failure.case, adapter, judges, recorder)
        return found, recorder.calls

    try:
        with LIMIT.at_most(REDUCED_SECONDS):
            found, rest = in_fork(play, heard)
    except ProcessDied as died:
        end = CacheEnded(str(died))
        calls += [evolve(call, answer=end) for call in last]
        ended = finding_of(died.ending, adapter.name)
        return FailureReplay(tuple(calls), _is_again(ended, failure.finding))
    except Exception as error:  # noqa: BLE001  # Making the cache may raise anything.
        return FailureReplay((), _is_not_made(failure, error))
    return FailureReplay(
        _up_to_the_finding([*calls, *rest], failure), _is_again(found, failure.finding)
    )


def _is_not_made(failure: Failure, error: Exception) -> bool:
    first = failure.finding
    not_made = first.grounds is Grounds.CRASH and not first.operation
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
    run = CaseRun(
        adapter,
        case.config,
        Stamps(case.config.slot_bytes),
        judges.of_case(case),
        ends_at_should=True,
        clients=recorder,
    )
    for action in case.actions:
        run.act(action)
        recorder.action += 1
    if case.drain:
        run.drain(case.drain)
    return run.finding


def _up_to_the_finding(calls: Sequence[RecordedCall], failure: Failure) -> tuple[RecordedCall, ...]:
    """The calls up to the finding: after a difference between two caches both go on."""
    last = failure.finding.operation
    kept = list(takewhile(lambda call: call.number is None or call.number <= last, calls))
    while kept and kept[-1].number is None and not isinstance(kept[-1].answer, BaseException):
        kept.pop()
    return tuple(kept)


def _is_again(found: Finding | None, first: Finding) -> bool:
    """Whether the replay ended as the failure did."""
    if first.grounds is Grounds.AGREEMENT:
        # A difference needs two caches, and the replay has one.
        return found is None
    if found is None or found.grounds is not first.grounds:
        return False
    return first.name in found.broken if first.grounds is Grounds.LAW else found.name == first.name
