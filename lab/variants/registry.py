"""The list of variations: each is a function that replaces rules of the plain cache.

What a variation declares stands beside the field of `Profile` that permits it; a variation that no
field names is free to every cache.
"""

from __future__ import annotations

import inspect
from typing import Any

from attrs import evolve, frozen

from kvcanon.lab.variants.override import Plant
from kvcanon.spec.config import Profile, choices


@frozen
class Variation:
    """One thing that a sound cache may do differently."""

    plant: Plant
    chosen: bool = True
    """Whether it is part of the variant, which has larger nodes; others would undo these."""

    @property
    def name(self) -> str:
        """Its name, that of its function."""
        return self.plant.__name__

    @property
    def summary(self) -> str:
        """One sentence that says what a cache with it does."""
        return " ".join((inspect.getdoc(self.plant) or "").split("\n\n")[0].split())

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a profile that it departs in."""
        return tuple(name for name, each in choices().items() if self.name in each.variations)

    def declared(self, profile: Profile) -> Profile:
        """The profile with what it declares."""
        changes: dict[str, Any] = {
            name: choices()[name].variations[self.name] for name in self.fields
        }
        return evolve(profile, **changes)


VARIATIONS: dict[str, Variation] = {}
"""All variations by name."""


def variation(plant: Plant) -> Plant:
    """Decorator that adds a variation to the list, and to the variant."""
    VARIATIONS[plant.__name__] = Variation(plant)
    return plant


def lone_variation(plant: Plant) -> Plant:
    """Decorator that adds a variation which is no part of the variant."""
    VARIATIONS[plant.__name__] = Variation(plant, chosen=False)
    return plant
