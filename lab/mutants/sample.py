"""A sample: the mutants to judge if there is no time for all."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from kvcanon.lab.mutants.place import MutantPlace


def draw_sample(places: Iterable[MutantPlace], sample: int | None, seed: int) -> list[MutantPlace]:
    """Draw `sample` places, in an order that depends on the seed; all if it is None.

    Only its id decides whether a place is drawn, so editing one function changes little of the
    sample.
    """

    def rank(place: MutantPlace) -> bytes:
        return sha256(f"{seed}:{place.place_id}".encode()).digest()

    return sorted(places, key=rank)[:sample]
