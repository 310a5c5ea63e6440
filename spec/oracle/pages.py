"""Page arithmetic: from tokens to pages and back, and where a node's pages are split.

There are two roundings: a key is cut *down* to the pages that it fills, and the slots for a window
are rounded *up* to the pages that cover it. A split changes no data: the two parts joined are the
original. A mamba state belongs to the *end* of a node and stays whole with the lower part.
"""

from __future__ import annotations

from typing import TypeVar


def whole_pages(length_tokens: int, page_size: int) -> int:
    """The whole pages that a number of tokens fills; the rest at the end is not cached.

    pre: 0 <= length_tokens <= 1 << 20
    pre: 1 <= page_size <= 1 << 10
    post: __return__ * page_size <= length_tokens < (__return__ + 1) * page_size
    """
    return length_tokens // page_size


def pages_covering(length_tokens: int, page_size: int) -> int:
    """The fewest pages that hold a number of tokens.

    pre: 0 <= length_tokens <= 1 << 20
    pre: 1 <= page_size <= 1 << 10
    post: length_tokens <= __return__ * page_size
    post: __return__ == 0 or (__return__ - 1) * page_size < length_tokens
    """
    return -(-length_tokens // page_size)


Item = TypeVar("Item")


def split(items: tuple[Item, ...], at: int) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The upper and the lower part of `items` when it is cut before position `at`.

    pre: len(items) <= 8
    pre: 0 <= at <= len(items)
    post: __return__[0] + __return__[1] == items
    post: len(__return__[0]) == at
    """
    return items[:at], items[at:]
