"""Finds a law by its id, in upper or lower case."""

from __future__ import annotations

from difflib import get_close_matches

import kvcanon.spec.laws  # noqa: F401  # Importing the laws registers them.
from kvcanon.conformance.errors import UsageError
from kvcanon.spec.law import LAWS, Law


def find_law(law_id: str) -> Law:
    """The law with this id. Raises: UsageError."""
    wanted = law_id.upper()
    if wanted in LAWS:
        return LAWS[wanted]
    near = get_close_matches(wanted, LAWS, n=4)
    hint = (
        f"near it are {', '.join(near)}"
        if near
        else f"`kvcanon laws` lists them, `kvcanon laws --about {law_id!r}` searches them"
    )
    raise UsageError(f"no law {law_id}; {hint}")
