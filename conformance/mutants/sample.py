"""A sample: the mutants that are judged where there is no time for all."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from kvcanon.conformance.mutants.place import MutantPlace


def drawn(places: Iterable[MutantPlace], sample: int | None, seed: int) -> list[MutantPlace]:
    """So many places, in the order in which the seed draws them; all if no number is given.

    A place is drawn by its id alone, so that an edit elsewhere changes the sample hardly.
    """

    def rank(place: MutantPlace) -> bytes:
        return sha256(f"{seed}:{place.place_id}".encode()).digest()

    return sorted(places, key=rank)[:sample]
