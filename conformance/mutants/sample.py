"""A sample: the mutants that are judged where there is no time for all."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from kvcanon.conformance.mutants.place import MutantPlace


def draw_sample(places: Iterable[MutantPlace], sample: int | None, seed: int) -> list[MutantPlace]:
    """`sample` places in the order that the seed draws them; all, if it is None.

    A place is drawn by its id alone, so that an edit of one function changes little of the sample.
    """

    def rank(place: MutantPlace) -> bytes:
        return sha256(f"{seed}:{place.place_id}".encode()).digest()

    return sorted(places, key=rank)[:sample]
