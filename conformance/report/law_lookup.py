"""Finds a law by its id, in upper or lower case."""

from __future__ import annotations

from difflib import get_close_matches

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS, RETIRED, Law


def find_law(law_id: str) -> Law:
    """The law with this id. Raises: UsageError."""
    wanted = law_id.upper()
    if wanted in LAWS:
        return LAWS[wanted]
    if wanted in RETIRED:
        raise UsageError(f"{wanted} is retired. {RETIRED[wanted]}")
    first_of_each_area = [each for each in LAWS if each.endswith("-1")]
    near = get_close_matches(wanted, LAWS, n=4) or first_of_each_area
    raise UsageError(f"no law {law_id}; near it are {', '.join(near)}")
