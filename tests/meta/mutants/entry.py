"""One planted fault of the plain cache, and the list of all of them.

What readers get wrong: that a mutant breaks its law only. A slot that leaks is also a wrong
count, and others may speak too, or first. What must not be is that its own law never speaks.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from kvcanon.conformance.variants.override import Plant


@frozen
class Mutant:
    """A fault and the law that it breaks."""

    name: str
    law_id: str
    plant: Plant
    upstream: str
    """The historical bug that it is modelled on, as "A5 sgl#38482": its row in the survey of such
    bugs, where it has one, and its link; or "none"."""
    founding: bool = False
    """Whether it is one of the bugs for which the canon was begun."""


MUTANTS: list[Mutant] = []


def mutant(
    law_id: str, upstream: str = "none", *, founding: bool = False
) -> Callable[[Plant], Plant]:
    """Enter a fault into the list."""

    def enter(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(plant.__name__, law_id, plant, upstream, founding))
        return plant

    return enter
