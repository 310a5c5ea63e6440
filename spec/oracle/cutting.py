"""Cutting: how a node's pages, and what belongs to each page, are split into two nodes.

A cut changes no data: the two parts joined are the original. A mamba state belongs to the *end* of
a node and stays whole with the lower part.
"""

from __future__ import annotations

from typing import TypeVar

Item = TypeVar("Item")


def split(items: tuple[Item, ...], at: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The upper and the lower part of `items` when it is cut before position `at`.

    pre: len(items) <= 8
    pre: 0 <= at <= len(items)
    post: __return__[0] + __return__[1] == items
    post: len(__return__[0]) == at
    """
    return items[:at], items[at:]
