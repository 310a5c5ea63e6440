"""Asks laws about states, steps and streams, one by one or as a table.

A row of a table has what a law says, and the subject that it says it of:

    "TREE-1: node 2 is in the tree ...": broken,

An answer is written as doctest writes output: `...` in a text stands for any words, and among the
texts of one row for any further violations. A row of a law's id alone has subjects that keep it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import EllipsisType

import pytest

import kvcanon.spec.laws  # noqa: F401  Importing the laws is what registers them.
from kvcanon.spec.events import Event, fold_events
from kvcanon.spec.law import LAWS, Stream, Subject
from kvcanon.spec.operations import Done, Operation, Outcome
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step

Answer = str | tuple[str | EllipsisType, ...]


def ask(law_id: str, subject: Subject) -> list[str]:
    """The violations of a law by a subject; empty if the law holds."""
    return list(LAWS[law_id].check(subject))


def step(
    before: Snapshot,
    operation: Operation,
    after: Snapshot,
    outcome: Outcome | None = None,
    events: Collection[Event] = (),
) -> Step:
    """A step; its outcome is Done if the law does not read it."""
    return Step(before, operation, outcome or Done(), after, tuple(events))


def still(state: Snapshot, operation: Operation, outcome: Outcome | None = None) -> Step:
    """A step that changes nothing."""
    return step(state, operation, state, outcome)


def stream(state: Snapshot, *events: Event, start: Collection[Event] = ()) -> Stream:
    """A stream with these events after those in `start`, ending in a state."""
    return Stream(fold_events(start), events, state)


def fits(answer: Answer, found: Sequence[str]) -> bool:
    """Whether violations are those of an answer."""
    expected = (answer,) if isinstance(answer, str) else answer
    if not expected:
        return not found
    first, rest = expected[0], expected[1:]
    if isinstance(first, EllipsisType):
        return any(fits(rest, found[at:]) for at in range(len(found) + 1))
    words = ".*".join(re.escape(part) for part in first.split("..."))
    return bool(found) and re.fullmatch(words, found[0]) is not None and fits(rest, found[1:])


def assert_says(law_id: str, subject: Subject, answer: Answer = ()) -> None:
    """Check what a law reports of a subject: by default, nothing."""
    found = ask(law_id, subject)
    assert fits(answer, found), f"{law_id} should say {answer}, and says {found}"


Table = Mapping[Answer, Subject | Collection[Subject]]


def table(*tables: Table) -> Callable[..., None]:
    """A test of laws, each row of these tables by itself."""
    rows = [row for each in tables for row in _rows(each)]

    @pytest.mark.parametrize(
        ("law_id", "answer", "subject"), rows, ids=[f"{row[0]}-{row[1]}"[:60] for row in rows]
    )
    def test(law_id: str, answer: Answer, subject: Subject) -> None:
        """A law says of a subject what its row says."""
        assert_says(law_id, subject, answer)

    return test


def _rows(given: Table) -> Iterator[tuple[str, Answer, Subject]]:
    for answer, subjects in given.items():
        texts = (answer,) if isinstance(answer, str) else answer
        law_ids, _, first = str(texts[0]).partition(": ")
        expected = (first, *texts[1:]) if first else texts[1:]
        each = [subjects] if isinstance(subjects, Snapshot | Step | Stream) else list(subjects)
        for law_id in law_ids.split(", "):
            assert law_id in LAWS
            for subject in each:
                yield law_id, expected, subject
