"""A law that should be kept, and need not: the plain cache breaks it at every insert."""

from __future__ import annotations

from collections.abc import Iterator

import kvcanon.spec.laws  # noqa: F401  # The book comes first.
from kvcanon.spec.law import LAWS, Kind, Law, LawClass, Level, Premise, law
from kvcanon.spec.laws.premises import INSERT
from kvcanon.spec.operations import Inserted
from kvcanon.spec.views import Step

SHOULD_ID = "THRIFT-1"


def thrifty(step: Step) -> Iterator[str]:
    """An insert adopts no slot.

    Why: nothing is cheaper.

    Seen broken: in every cache.
    """
    if isinstance(step.outcome, Inserted) and step.outcome.adopted.full:
        yield f"{step.outcome.adopted.full} full slots were adopted"


def made(premise: Premise[Step] = INSERT) -> Law:
    """The law, which is not left in the book."""
    law(SHOULD_ID, Kind.STEP, LawClass.SERVING, premise=premise, level=Level.SHOULD)(thrifty)
    return LAWS.pop(SHOULD_ID)
