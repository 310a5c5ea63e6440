"""Answers of caches as text."""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.result import Grounds
from kvcanon.conformance.check.trial import Trial, adapter_as
from kvcanon.conformance.report.answer_text import answer_in_words
from kvcanon.conformance.report.call_code import code_lines, shortened
from kvcanon.conformance.report.failure_replay import judges_of, replay_finding
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import Evicted, LoadDecision, LoadedBack, Settled
from kvcanon.spec.types import Counts, Slots
from reported import failure_of


@pytest.mark.parametrize(
    "answer",
    [
        Slots(full=None),  # type: ignore[arg-type]
        Evicted(freed=3),  # type: ignore[arg-type]
        Settled(transfers=7),  # type: ignore[arg-type]
        "text\nof two lines",
        ("no", "events"),
    ],
)
def test_nonsense_has_words(answer: object) -> None:
    """Every value has a text of one line, even an invalid answer."""
    assert "\n" not in answer_in_words(answer)


def test_answers_in_words() -> None:
    """Answers have the right text."""
    assert answer_in_words(Evicted(Counts(full=2, mamba=1))) == "freed 2 full, 1 mamba"
    assert answer_in_words(Evicted(Counts())) == "freed nothing"
    assert answer_in_words(None) == "done"
    part = LoadedBack(LoadDecision.ENQUEUED, 4, Counts(2, 1), Counts(1), pages=3)
    told = "transfer 4 loads 2 full, 1 swa of the first 3 pages; evicted 1 full"
    assert answer_in_words(part) == told
    assert answer_in_words(Slots(full=(3, 4, 5, 6, 9, 8))) == "full 3 4 5 6 9 8"
    assert answer_in_words(Slots(full=(2, *range(7, 90)), mamba=(1,))) == "full 2 7-89, mamba 1"


@pytest.mark.parametrize("error", [RuntimeError, CacheError])
def test_messages_can_be_written_and_printed(error: type[Exception]) -> None:
    """Half characters, commands to terminals and reversed text in a message are escaped."""
    words = answer_in_words(error("a \ud800 \x1b[31m \u202e é"))
    assert words.endswith(": a \\ud800 \\x1b[31m \\u202e é")
    words.encode()


def test_long_lines_are_shortened() -> None:
    """A key of thousands of pages does not fill the report."""
    line = f"key_1 = Key({tuple((each,) for each in range(9_000))!r})"
    short = shortened(line)
    assert short.startswith("key_1 = Key(((0,), (1,), ")
    assert "(8999,))) " in short
    assert short.endswith(f"# {len(line):,} characters; the script has all")
    assert len(short) < 500
    assert shortened("cache.poll()") == "cache.poll()"


def test_answer_that_breaks_a_law_is_told_without_states() -> None:
    """Judged by answers alone, the call that breaks a law is listed with what it answered."""
    asked = Trial(adapter_as("reported:Forgetful")).from_outside()
    drawn = (draw_case(seed, asked.adapter.offer) for seed in range(400))
    found = (asked.play(case)[0] for case in drawn)
    finding = next(each for each in found if each is not None)
    replay = replay_finding(finding, asked.adapter, judges_of(finding, ()))
    answer, _, law_ids = code_lines(replay.calls)[-1].answer.partition("<- breaks ")
    assert answer
    assert law_ids == ", ".join(finding.broken)


def test_nonsense_is_told_to_its_end() -> None:
    """A cache with invalid answers has a report with all its answers."""
    failure = failure_of("reported:Nonsense")
    assert failure.grounds is Grounds.LAW
    replay = replay_finding(failure, adapter_as("reported:Nonsense"), judges_of(failure, ()))
    lines = code_lines(replay.calls)
    assert lines[-1].answer == "<- breaks REFUSE-4"
    assert "it must be" in failure.text.splitlines()[0]
