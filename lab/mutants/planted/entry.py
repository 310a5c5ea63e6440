"""A mutant of the plain cache, and the list of all mutants.

A mutant may break other laws besides its own, even earlier: a leaked slot is also a wrong count.
But its own law must be broken in some case.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen

from kvcanon.lab.variants.override import Plant


@frozen
class Mutant:
    """A planted fault, and the law that it breaks."""

    name: str
    law_id: str
    plant: Plant
    upstream: str
    """The historical bug that it is modelled on, as "A5 sgl#38482": the bug's row in the survey of
    bugs, if it has one, and its link; or "none"."""
    founding: bool = False
    """Whether it is one of the founding bugs of the canon."""
    stores: bool = False
    """Whether it shows only with a store below the host tier."""


MUTANTS: list[Mutant] = []
STORE_MUTANTS: list[Mutant] = []
"""Those that show only with a store below the host tier, which not every cache has."""


def mutant(
    law_id: str, upstream: str = "none", *, founding: bool = False, stores: bool = False
) -> Callable[[Plant], Plant]:
    """Decorator that adds a mutant to `MUTANTS`, or to `STORE_MUTANTS`."""

    def enter(plant: Plant) -> Plant:
        into = STORE_MUTANTS if stores else MUTANTS
        into.append(Mutant(plant.__name__, law_id, plant, upstream, founding, stores))
        return plant

    return enter
