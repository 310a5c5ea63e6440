"""The inquiry: laws that are asked of one step after the other.

A step from a state in which the laws of states held touches little, and is of one kind. So laws of
states are asked about what it touched, as far as that is enough, and of the other laws only those
that can come to anything. A thorough inquiry asks every law about everything: it is what the other
is measured by, and what it must agree with.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import evolve

from kvcanon.conformance.observe.relevance import Relevant
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import fold_events
from kvcanon.spec.law import SHAPE, Kind, Law, Stream, Subject, Violation, judge, judge_next
from kvcanon.spec.laws.expected_events import is_truth, moved_on
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step


class Inquiry:
    """Asks laws of steps, and remembers of the state after the last one what held there."""

    def __init__(self, laws: Collection[Law], *, thorough: bool = False) -> None:
        asked = {kind: tuple(law for law in laws if law.kind is kind) for kind in Kind}
        self._states = tuple(law for law in asked[Kind.STATE] if law.law_id not in SHAPE)
        """All but those of the tree's shape, which `judge` asks first."""
        self._steps, self._streams = asked[Kind.STEP], asked[Kind.STREAM]
        self._relevant_steps = Relevant(self._steps, _said)
        self._relevant_streams = Relevant(self._streams, _said)
        self._thorough = thorough
        self._last: Snapshot | None = None
        """The last state that had a shape; None before the first."""
        self._sound = False
        """Whether all laws of states held of it."""
        self._settled = False
        """Whether what events had said by then was what was where, each page once."""

    def compared(self, before: Snapshot, after: Snapshot) -> Difference:
        """Compare two states; where they are equal, one stands for both: much is known of it."""
        difference = Difference(before, after)
        if self._thorough or not difference.is_none:
            return difference
        return Difference(before, before)

    def ask(self, step: Step, stream: Stream) -> list[Violation]:
        """What is wrong with a step; where a tree has no shape, nothing else that walks on it."""
        seen = step.before is self._last
        if seen and self._sound:
            found = judge_next(step.difference, self._states)
        else:
            found = judge(step.after, self._states)
        self._last, self._sound = None, not (found or self._thorough)
        if not seen and not shapeless(found):
            # The shape of a state that was seen before was asked then.
            found += judge(step.before, ())
        if shapeless(found):
            return found
        self._last = step.after
        if self._thorough:
            return [*found, *_broken(self._steps, step), *_broken(self._streams, stream)]
        found += _broken(self._relevant_steps.of_step(step), step)
        return found + self._of_stream(step, stream, seen=seen)

    def ask_access(self, step: Step) -> list[Violation]:
        """What is wrong with a look behind a slot, or a write, which leaves the state as it is."""
        laws = self._steps if self._thorough else self._relevant_steps.of_step(step)
        return _broken(laws, step)

    def _of_stream(self, step: Step, stream: Stream, *, seen: bool) -> list[Violation]:
        laws = self._relevant_streams.of_stream(stream)
        settled = seen and self._settled
        if not laws or (settled and step.before is step.after and not stream.events):
            return []  # With nothing said, it was asked of the same state before.
        there = moved_on(stream.start, step.difference) if settled else None
        folded = fold_events(stream.events, stream.start)
        self._settled = folded.agrees_with(there) if there else is_truth(folded, stream.state)
        return _broken(laws, evolve(stream, there=there))


def shapeless(found: Collection[Violation]) -> bool:
    """Whether a tree was found to be none."""
    return any(violation.law.law_id in SHAPE for violation in found)


def _broken(laws: Collection[Law], subject: Subject) -> list[Violation]:
    return [Violation(law, text) for law in laws for text in law.check(subject)]


def _said(law: Law, subject: Subject) -> list[str]:
    return list(law.check(subject))
