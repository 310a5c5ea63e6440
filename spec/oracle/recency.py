"""Recency: an LRU order, from the least to the most recently used.

A refresh moves what it touches and nothing else: later evictions rely on the relative order of the
rest.
"""

from __future__ import annotations


def refresh(order: tuple[int, ...], touched: tuple[int, ...]) -> tuple[int, ...]:
    """The LRU order after `touched` were used, the last of them most recently.

    pre: len(order) <= 5 and len(touched) <= 3
    pre: len(set(order)) == len(order) and len(set(touched)) == len(touched)
    post: set(__return__) == set(order) | set(touched)
    post: __return__[len(__return__) - len(touched):] == touched
    post: tuple(i for i in order if i not in touched) == __return__[:len(__return__) - len(touched)]
    """
    moved = frozenset(touched)
    return tuple(i for i in order if i not in moved) + touched
