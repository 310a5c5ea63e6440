"""The law checker: checks the laws of one step after another.

A step changes few nodes, and is one kind of operation. So if the laws of states held before the
step, they are checked only on the nodes that it touched, as far as that is enough. Of the other
laws, only those that such a step can break are checked. A thorough checker checks every law on
everything; both must find the same violations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from attrs import evolve

from kvcanon.conformance.judge.by_states.relevance import Relevant
from kvcanon.spec.difference import Difference
from kvcanon.spec.law import SHAPE, Kind, Law, Stream, Subject, Violation, judge, judge_next
from kvcanon.spec.laws.expected_events import is_truth, moved_on
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step


class LawChecker:
    """Checks laws of steps, and remembers which laws held in the state after the last step."""

    def __init__(self, laws: Collection[Law], *, thorough: bool = False) -> None:
        of_kind = {kind: tuple(law for law in laws if law.kind is kind) for kind in Kind}
        self._states = tuple(law for law in of_kind[Kind.STATE] if law.law_id not in SHAPE)
        """Laws of states without those of the tree's shape, which `judge` checks first."""
        self._steps, self._streams = of_kind[Kind.STEP], of_kind[Kind.STREAM]
        self._relevant_steps = Relevant(self._steps, problems_of)
        self._relevant_streams = Relevant(self._streams, problems_of)
        self._thorough = thorough
        self._last: Snapshot | None = None
        """The last state in which the laws of the tree's shape held; None before the first."""
        self._sound = False
        """Whether all laws of states held in `_last`."""
        self._settled = False
        """Whether the events up to `_last` added up to exactly its pages, each page once."""

    def compare(self, before: Snapshot, after: Snapshot) -> Difference:
        """Compare two states; equal states become one object, so that results can be reused."""
        difference = Difference(before, after)
        if self._thorough or not difference.is_none:
            return difference
        return Difference(before, before)

    def check(self, step: Step, stream: Stream) -> list[Violation]:
        """Check a step and its events. If the tree's shape is broken, only that is returned."""
        seen = step.before is self._last
        if seen and self._sound:
            found = judge_next(step.difference, self._states)
        else:
            found = judge(step.after, self._states)
        self._last, self._sound = None, not (found or self._thorough)
        if not seen and not breaks_shape(found):
            # The shape of a state that was seen before was checked then.
            found += judge(step.before, ())
        if breaks_shape(found):
            return found
        self._last = step.after
        if self._thorough:
            return [
                *found,
                *violations_of(self._steps, step),
                *violations_of(self._streams, stream),
            ]
        found += violations_of(self._relevant_steps.of_step(step), step)
        return found + self._of_stream(step, stream, seen=seen)

    def check_access(self, step: Step) -> list[Violation]:
        """Check a read or a write of a slot's bytes, which changes no state."""
        laws = self._steps if self._thorough else self._relevant_steps.of_step(step)
        return violations_of(laws, step)

    def _of_stream(self, step: Step, stream: Stream, *, seen: bool) -> list[Violation]:
        laws = self._relevant_streams.of_stream(stream)
        settled = seen and self._settled
        if not laws or (settled and step.before is step.after and not stream.events):
            return []  # The same state without new events was checked before.
        there = moved_on(stream.start, step.difference) if settled else None
        stream = evolve(stream, there=there)
        if there is not None:
            self._settled = stream.folded.agrees_with(there)
        else:
            self._settled = is_truth(stream.folded, stream.state)
        return violations_of(laws, stream)


def breaks_shape(found: Collection[Violation]) -> bool:
    """Whether a law of the tree's shape is broken; other laws then cannot walk the tree."""
    return any(violation.law.law_id in SHAPE for violation in found)


def violations_of(laws: Iterable[Law], subject: Subject) -> list[Violation]:
    """Check laws of a state, a step or a stream; all laws are of that kind."""
    return [Violation(law, text) for law in laws for text in law.check(subject)]


def problems_of(law: Law, subject: Subject) -> list[str]:
    """Check one law, and return the text of each violation."""
    return list(law.check(subject))
