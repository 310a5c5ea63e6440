"""The law checker: checks the laws of one step after another, and counts which were exercised.

A step changes few nodes, and is one kind of operation. So if the laws of states held before the
step, they are checked only on the nodes that it touched, as far as that is enough. Of the other
laws, only those that such a step can break are checked. A thorough checker checks every law on
everything; both must find the same violations.
"""

from __future__ import annotations

from collections.abc import Collection

from kvcanon.conformance.judge.by_states.evidence import Evidence, Shared
from kvcanon.conformance.judge.by_states.relevance import Agenda, Relevance
from kvcanon.spec.law import (
    SHAPE,
    Kind,
    Law,
    Need,
    Stream,
    Violation,
    judge,
    judge_next,
    violations_of,
)
from kvcanon.spec.laws.expected_events import is_truth, moved_on
from kvcanon.spec.laws.placed import as_host_insert
from kvcanon.spec.laws.unasked import without_unasked
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step


class LawChecker:
    """Checks laws of steps, and remembers which laws held in the state after the last step."""

    def __init__(self, laws: Collection[Law], *, events: bool, thorough: bool = False) -> None:
        """Without `events` no law of events counts as exercised."""
        of_states = [law for law in laws if law.kind is Kind.STATE and law.law_id not in SHAPE]
        self._states = tuple(of_states)
        """Laws of states without those of the tree's shape, which `judge` checks first."""
        exercisable = [law for law in laws if events or Need.EVENTS not in law.needs]
        self._relevance = Relevance(laws, exercisable)
        self._evidence = Evidence(exercisable)
        self._thorough = thorough
        self._last: Snapshot | None = None
        """The last state in which the laws of the tree's shape held; None before the first."""
        self._sound = False
        """Whether all laws of states held in `_last`."""
        self._settled = False
        """Whether the events up to `_last` added up to exactly its pages, each page once."""

    @property
    def laws_exercised(self) -> dict[str, int]:
        """How often each law was exercised: its premise met in a step without violation."""
        return self._evidence.laws_exercised

    def check(self, step: Step, stream: Stream) -> list[Violation]:
        """Check a step and its events. If the tree's shape is broken, only that is returned."""
        found, seen = self._of_states(step), step.before is self._last
        self._last = None if found and breaks_shape(found) else step.after
        self._sound = not (found or self._thorough)
        if self._last is None:
            return found
        asked = without_unasked(step)
        views = self._views(asked)
        of_stream = self._of_streams(stream)
        for view, agenda in views:
            found += violations_of(agenda.laws, view)
        found += self._of_stream(of_stream, step, stream, seen=seen)
        if not found:
            met = [each for view, agenda in views for each in met_by(agenda, view)]
            self._evidence.see([*met, *met_by(of_stream, stream)], step.difference)
        return found

    def check_access(self, step: Step) -> list[Violation]:
        """Check a read or a write of a slot's bytes, which changes no state."""
        return violations_of(self._agenda_of(step).laws, step)

    def _views(self, step: Step) -> list[tuple[Step, Agenda]]:
        """The steps to judge, with what to check: of a prefetch that places pages, two."""
        placed = as_host_insert(step)
        if placed is None:
            return [(step, self._agenda_of(step))]
        return [
            (step, self._agenda_of(step).about(stores=True)),
            (placed, self._agenda_of(placed).about(stores=False)),
        ]

    def _agenda_of(self, step: Step) -> Agenda:
        known = self._relevance
        return known.steps if self._thorough else known.of_step(step)

    def _of_streams(self, stream: Stream) -> Agenda:
        known = self._relevance
        return known.streams if self._thorough else known.of_stream(stream)

    def _of_states(self, step: Step) -> list[Violation]:
        seen = step.before is self._last
        if seen and self._sound:
            return judge_next(step.difference, self._states)
        found = judge(step.after, self._states)
        if not seen and not breaks_shape(found):
            # The shape of a state that was seen before was checked then.
            found += judge(step.before, ())
        return found

    def _of_stream(
        self, agenda: Agenda, step: Step, stream: Stream, *, seen: bool
    ) -> list[Violation]:
        if self._thorough:
            return violations_of(agenda.laws, stream)
        settled = seen and self._settled
        if not agenda.laws or (settled and step.before is step.after and not stream.events):
            return []  # The same state without new events was checked before.
        there = moved_on(stream.start, step.difference) if settled else None
        if there is not None:
            stream = stream.beside(there)
            self._settled = stream.folded.agrees_with(there)
        else:
            self._settled = is_truth(stream.folded, stream.state)
        return violations_of(agenda.laws, stream)


def breaks_shape(found: Collection[Violation]) -> bool:
    """Whether a law of the tree's shape is broken; other laws then cannot walk the tree."""
    return any(violation.law.law_id in SHAPE for violation in found)


def met_by(agenda: Agenda, subject: Step | Stream) -> list[Shared]:
    """The premises that a subject meets."""
    return [*agenda.met, *[each for each in agenda.premises if each.premise.is_met(subject)]]
