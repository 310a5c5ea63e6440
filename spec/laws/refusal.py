"""REFUSE: when a call is refused, and when it is served.

The grounds are in one table, `refusals.REFUSALS`: operation by error. ALLOC-6 checks that a refusal
changes nothing. A cache that refuses too much never breaks anything, and is of no use; so these
laws demand that calls are served, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.operations import ANSWERS, Refused, Reset, Unlock, UnlockWindow
from kvcanon.spec.refusals import REFUSALS, may_refuse, must_refuse
from kvcanon.spec.views import Step

_OF_RECEIPTS = (Unlock, UnlockWindow, Reset)
"""Operations that are refused only because of receipts, which not every cache shows."""


@law(
    "REFUSE-1",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step]("a call", lambda _: True),
    from_outside=visibility.ANSWERS,
)
def refusals_have_a_reason(step: Step) -> Iterator[str]:
    """A call is refused only for a reason that the table of refusals has, and with its error.

    The table (`kvcanon laws --refusals`) lists the errors of each operation, each with the reason
    for which it is given. Where several reasons hold, any of their errors may be given. REFUSE-2
    checks releases and resets.

    Why: a caller that is refused evicts, matches again or waits; after a wrong refusal it does so
    for nothing. A cache that refuses every insert caches nothing.

    Seen broken: not seen
    """
    if not isinstance(step.operation, _OF_RECEIPTS):
        yield from _refused_wrongly(step)


@law(
    "REFUSE-2",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a release, or a reset",
        lambda step: isinstance(step.operation, Unlock | UnlockWindow | Reset),
    ),
    needs=(Need.SNAPSHOT, Need.HOLDS),
    enabled_if=bounds.has_receipts,
    from_outside=visibility.ANSWERS,
)
def releases_are_refused_rightly(step: Step) -> Iterator[str]:
    """A release is refused exactly when its receipt is not open, a reset exactly when one is open.

    Why: a lock whose release is refused lasts for ever, a cache that refuses resets while idle can
    never be reset, and a reset under an open receipt takes pages from a running request.

    Seen broken: not seen
    """
    if isinstance(step.operation, _OF_RECEIPTS):
        yield from _refused_wrongly(step)
        yield from _served_wrongly(step)


@law(
    "REFUSE-3",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a refusal, except of a release or a reset",
        lambda step: (
            not situations.went_well(step)
            and not isinstance(step.operation, Unlock | UnlockWindow | Reset)
        ),
    ),
)
def what_must_be_refused_is(step: Step) -> Iterator[str]:
    """A call is refused whenever the table of refusals has a reason to refuse it.

    Why: a caller that is served wrongly works with data that was never there, or hands over slots
    that belong to somebody else.

    Seen broken: not seen
    """
    if not isinstance(step.operation, _OF_RECEIPTS):
        yield from _served_wrongly(step)


@law(
    "REFUSE-4",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step]("a call that was served", situations.went_well),
)
def answers_are_of_their_kind(step: Step) -> Iterator[str]:
    """Each operation returns its own kind of answer, or is refused.

    Why: callers cannot use an answer of another kind.

    Seen broken: not seen
    """
    expected = ANSWERS[type(step.operation)]
    if not isinstance(step.outcome, expected | Refused):
        yield (
            f"{type(step.operation).__name__} was answered with {step.outcome}; it is answered "
            f"with {expected.__name__}"
        )


def _refused_wrongly(step: Step) -> Iterator[str]:
    """Refusals for which no ground stands."""
    if not isinstance(step.outcome, Refused):
        return
    error, name = step.outcome.error, type(step.operation).__name__
    if step.asked is not None and step.asked.broke_off is not None:
        return  # ASYNC-16 checks it.
    if type(error) not in REFUSALS[type(step.operation)]:
        yield f"{name} was refused ({error}); it is never refused with {type(error).__name__}"
        return
    standing = dict(may_refuse(step.before, step.operation))
    if type(error) not in standing:
        words = REFUSALS[type(step.operation)][type(error)].words
        others = "; ".join(f"{each.__name__}: {why}" for each, why in standing.items())
        besides = f"; the grounds that stand are {others}" if others else ""
        yield f"{name} was refused ({error}), but this is not so: {words}{besides}"


def _served_wrongly(step: Step) -> Iterator[str]:
    """Calls that were served although a ground for refusal stands."""
    if isinstance(step.outcome, Refused):
        return
    for error, reason in must_refuse(step.before, step.operation):
        name = type(step.operation).__name__
        yield f"{name} was served, and must be refused with {error.__name__}: {reason}"
