"""Cutting: how a stretch of pages and what belongs to it is parted in two.

What readers get wrong: a cut is not a change. Joined again, the two parts are what was there
before; only what belongs to the *end* of the stretch (a recurrent state) stays with the lower part
whole.
"""

from __future__ import annotations

from typing import TypeVar

Item = TypeVar("Item")


def split(items: tuple[Item, ...], at: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The upper and the lower part of a stretch that is cut before position `at`.

    pre: len(items) <= 8
    pre: 0 <= at <= len(items)
    post: __return__[0] + __return__[1] == items
    post: len(__return__[0]) == at
    """
    return items[:at], items[at:]
