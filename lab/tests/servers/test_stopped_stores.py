"""What a run over stopped stores calls wrong, and what its table shows."""

from __future__ import annotations

import pytest
from attrs import asdict, evolve

from kvcanon.lab.bench.tables.stopped import stopped_stores
from kvcanon.lab.servers.stopped_stores import DEADLINE_SECONDS, StoppedRow, in_words, wrong_of

RIGHT = StoppedRow(
    "Redis",
    "kvcanon",
    unknown=(0.1, 0.2),
    before=(0.05, 0.06),
    stopped=(0.1, DEADLINE_SECONDS, 0.1),
    back_seconds=1.5,
    after=(0.05, 0.07),
    before_found=2,
    after_found=1,
    replies=9,
    right=9,
)


def test_a_row_that_is_right_has_nothing_wrong() -> None:
    """A request may wait as long as one that is not stored, and a deadline."""
    assert list(wrong_of(RIGHT, 0)) == []
    assert in_words(RIGHT) == (
        "Redis, kvcanon: first token in ms: not stored 150 (most 200), stored 55 (most 60), "
        "stopped 100 (most 2000), after 60 (most 70); back after 1.5 s; 9 of 9 replies right"
    )


@pytest.mark.parametrize(
    ("row", "found", "words"),
    [
        (evolve(RIGHT, right=8), 0, "1 replies are wrong"),
        (evolve(RIGHT, before_found=0), 0, "before it was stopped, 0 of 2 stored prompts"),
        (evolve(RIGHT, after_found=0), 0, "after it went on, 0 of 2 stored prompts"),
        (evolve(RIGHT, stopped=(0.1, 5.0, 0.1)), 0, "a request waited 5.0 s, which is above 2.7 s"),
        (RIGHT, 3, "it was not stopped: every prompt came from it"),
        (evolve(RIGHT, back_seconds=None), 0, "it was not used again within 60 s"),
    ],
)
def test_what_is_wrong_is_said(row: StoppedRow, found: int, words: str) -> None:
    """Each of the promises by itself."""
    (wrong,) = wrong_of(row, found)
    assert wrong.startswith("Redis, kvcanon: ")
    assert words in wrong


def test_the_table_has_medians_and_the_most() -> None:
    """A column for each time, and whether the store was used."""
    made = stopped_stores([{"deadline_seconds": 2.0, "rows": [asdict(RIGHT)]}])
    assert made.rows == (
        (
            *("Redis, kvcanon", "150 (200)", "55 (60)", "100 (2,000)", "60 (70)"),
            *("1.5 s", "3 of 4", "9 of 9"),
        ),
    )
    assert made.figures_are.endswith("the deadline is 2,000 ms")
