"""REFUSE: when a call is refused, and when it is served.

The grounds are in one table, `refusals.REFUSALS`: operation by error. That a refusal changes
nothing is ALLOC-6. A cache that refuses too much is never wrong about anything, and never of use;
so serving is demanded like everything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, Need, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.operations import ANSWERS, Refused, Reset, Unlock, UnlockWindow
from kvcanon.spec.refusals import REFUSALS, may_refuse, must_refuse
from kvcanon.spec.views import Step

_OF_RECEIPTS = (Unlock, UnlockWindow, Reset)
"""What is refused for receipts alone, which not every cache shows."""


@law(
    "REFUSE-1",
    Kind.STEP,
    premise=Premise[Step]("a call", lambda _: True),
    from_outside=visibility.ANSWERS,
)
def refused_with_a_ground(step: Step) -> Iterator[str]:
    """A call is served unless a ground for refusal stands, and it is refused with that ground.

    The table of grounds says for each operation with which errors it may be refused, and when.
    Where several stand, any of them may be given. Of releases and resets REFUSE-2 asks that.

    Why: whoever is refused evicts, matches again or waits, for nothing and for ever. A cache that
    refuses every insert is never wrong, and nothing is ever cached.

    Seen broken: not seen
    """
    if not isinstance(step.operation, _OF_RECEIPTS):
        yield from _refused_wrongly(step)


@law(
    "REFUSE-2",
    Kind.STEP,
    premise=Premise[Step](
        "a release, or a reset",
        lambda step: isinstance(step.operation, Unlock | UnlockWindow | Reset),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=bounds.has_receipts,
    from_outside=visibility.ANSWERS,
)
def receipts_are_refused_truly(step: Step) -> Iterator[str]:
    """A release is refused exactly when its receipt is not open, a reset exactly when one is.

    Why: a lock whose release is refused is never given back; a cache that is never idle can never
    be reset; and a reset under an open receipt takes pages from under a request.

    Seen broken: not seen
    """
    if isinstance(step.operation, _OF_RECEIPTS):
        yield from _refused_wrongly(step)
        yield from _served_wrongly(step)


@law(
    "REFUSE-3",
    Kind.STEP,
    premise=Premise[Step](
        "a refusal, for other than a receipt",
        lambda step: (
            not situations.went_well(step)
            and not isinstance(step.operation, Unlock | UnlockWindow | Reset)
        ),
    ),
)
def grounds_are_heeded(step: Step) -> Iterator[str]:
    """A call is not served while a ground for its refusal stands.

    Why: who asks for what is not there and is not told works with what was never given, or hands
    over what belongs to somebody else.

    Seen broken: not seen
    """
    if not isinstance(step.operation, _OF_RECEIPTS):
        yield from _served_wrongly(step)


@law("REFUSE-4", Kind.STEP, premise=Premise[Step]("a call that was served", situations.went_well))
def answers_are_of_their_kind(step: Step) -> Iterator[str]:
    """Each operation is answered with its own kind of answer, or refused.

    Why: an answer of another kind tells nothing of what was asked, and nobody can rely on it.

    Seen broken: not seen
    """
    expected = ANSWERS[type(step.operation)]
    if not isinstance(step.outcome, expected | Refused):
        yield (
            f"{type(step.operation).__name__} was answered with {step.outcome}; it is answered "
            f"with {expected.__name__}"
        )


def _refused_wrongly(step: Step) -> Iterator[str]:
    """A refusal for which no ground stands."""
    if not isinstance(step.outcome, Refused):
        return
    error, name = step.outcome.error, type(step.operation).__name__
    if type(error) not in REFUSALS[type(step.operation)]:
        yield f"{name} was refused ({error}); it is never refused with {type(error).__name__}"
        return
    standing = dict(may_refuse(step.before, step.operation))
    if type(error) not in standing:
        words = REFUSALS[type(step.operation)][type(error)].words
        others = "; ".join(f"{each.__name__}: {why}" for each, why in standing.items())
        besides = f"; what stands against it is {others}" if others else ""
        yield f"{name} was refused ({error}), but this is not so: {words}{besides}"


def _served_wrongly(step: Step) -> Iterator[str]:
    """A call that was served although a ground for refusal stands."""
    if isinstance(step.outcome, Refused):
        return
    for error, reason in must_refuse(step.before, step.operation):
        name = type(step.operation).__name__
        yield f"{name} was served, and must be refused with {error.__name__}: {reason}"
