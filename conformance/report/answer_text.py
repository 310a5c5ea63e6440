"""Answers of a cache in a few words, for every value: a faulty cache may answer anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import singledispatch
from typing import Any

from kvcanon.conformance.check.recorded_calls import CacheEnded
from kvcanon.conformance.errors import ViolationError, message_of
from kvcanon.conformance.judge import ANSWER_LAW
from kvcanon.conformance.protocol.request import Admitted
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import AllBlocksCleared, BlockStored
from kvcanon.spec.operations import (
    Done,
    Evicted,
    HostInserted,
    Inserted,
    LoadDecision,
    LoadedBack,
    Matched,
    Receipt,
    Refused,
    Settled,
    Taken,
)
from kvcanon.spec.types import Component, Counts, Slots

LONGEST = 110
"""Characters of an answer of unknown kind that are shown."""
SHORTEST_RANGE = 5
"""So many numbers that count up are shown as a range."""


def answer_in_words(answer: object) -> str:
    """The answer of a call, in one line."""
    try:
        words = _in_words(answer)
    except Exception:  # noqa: BLE001  # A faulty answer may raise anything.
        words = repr(answer)
    return " ".join(words.split())


@singledispatch
def _in_words(answer: object) -> str:
    text = repr(answer)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


@_in_words.register
def _(answer: BaseException) -> str:
    if isinstance(answer, CacheEnded):
        return str(answer)
    if isinstance(answer, CacheError):
        return f"refused, {type(answer).__name__}: {message_of(answer)}"
    if isinstance(answer, ViolationError):
        law_ids = ", ".join(dict.fromkeys(each.law.law_id for each in answer.violations))
        return f"{outcome_in_words(answer)} <- breaks {law_ids}".lstrip()
    return f"raised {type(answer).__name__}: {message_of(answer)}".rstrip(": ")


def outcome_in_words(broken: ViolationError) -> str:
    """The answer of the call that broke a law; empty if it is not known."""
    outcome = broken.outcome
    # An answer of a wrong type is no outcome of a step; the sentence above the calls shows it.
    is_wrong = any(each.law.law_id == ANSWER_LAW for each in broken.violations)
    return "" if outcome is None or is_wrong else answer_in_words(outcome)


@_in_words.register
def _(answer: Matched) -> str:
    loading = f"; still loading: transfer {_listed(answer.pending)}" if answer.pending else ""
    return f"{_pages(answer.prefix_pages)} usable, {answer.device_pages} on the device{loading}"


@_in_words.register
def _(answer: Inserted) -> str:
    parts = [f"{_pages(answer.present_pages)} present", f"took {_counts(answer.adopted)}"]
    if answer.freed:
        parts.append(f"freed {_counts(answer.freed)}")
    if answer.backups:
        parts.append(f"backup: transfer {_listed(answer.backups)}")
    if answer.backup_declined_pages:
        parts.append(f"no room to back up {_pages(answer.backup_declined_pages)}")
    return ", ".join(parts)


@_in_words.register
def _(answer: LoadedBack) -> str:
    evicted = f"; evicted {_counts(answer.evicted)}" if answer.evicted else ""
    if answer.decision is LoadDecision.ENQUEUED:
        of = "" if answer.pages is None else f" of the first {_pages(answer.pages)}"
        return f"transfer {answer.transfer_id} loads {_counts(answer.loading)}{of}{evicted}"
    return f"{answer.decision.value.replace('_', ' ')}{evicted}"


_IN_ONE_EXPRESSION: Mapping[type, Callable[[Any], str]] = {
    type(None): lambda _: "done",
    Done: lambda _: "done",
    bytes: lambda data: f"{len(data)} bytes",
    Refused: lambda refused: _in_words(refused.error),
    Receipt: lambda receipt: f"receipt {receipt.receipt_id}",
    Slots: lambda slots: _joined((f"{of.value} {_listed(s)}" for of, s in slots if s), "no slots"),
    Admitted: lambda answer: f"{_pages(answer.reused_pages)} reused; {_in_words(answer.slots)}",
    Evicted: lambda answer: f"freed {_counts(answer.freed)}",
    HostInserted: lambda answer: (
        f"{answer.placed_pages} placed, {answer.refilled_pages} refilled, "
        f"{answer.present_pages} present, {answer.dropped_pages} dropped"
    ),
    Settled: lambda answer: _joined(
        (f"transfer {which} {status.value}" for which, status in answer.transfers),
        "nothing settled",
    ),
    Taken: lambda answer: _in_words(answer.events),
    tuple: lambda events: _joined(map(_event, events), "no events"),
}
for _kind, _words in _IN_ONE_EXPRESSION.items():
    _in_words.register(_kind, _words)


def _event(event: object) -> str:
    if isinstance(event, AllBlocksCleared):
        return "cleared"
    kind = "stored" if isinstance(event, BlockStored) else "removed"
    return f"{kind} {getattr(event, 'medium', '?')}"


def _counts(counts: Counts) -> str:
    return _joined(
        (f"{counts[each]} {each.value}" for each in Component if counts[each]), "nothing"
    )


def _joined(parts: Iterable[str], nothing: str) -> str:
    return ", ".join(parts) or nothing


def _pages(count: int) -> str:
    return "1 page" if count == 1 else f"{count} pages"


def _listed(numbers: Sequence[int]) -> str:
    """Numbers in their order; many that count up are a range, such as "7-31"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return " ".join(map(_run, runs))


def _run(run: Sequence[int]) -> str:
    if len(run) < SHORTEST_RANGE:
        return " ".join(map(str, run))
    return f"{run[0]}-{run[-1]}"
