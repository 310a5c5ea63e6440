"""Ownership: whether every slot of a pool has one owner.

Counting the slots is not enough: a pool with one slot in two places and another slot in none has
the right number of them.
"""

from __future__ import annotations

from collections.abc import Sequence


def owned_once(owned: Sequence[int], capacity: int) -> bool:
    """Whether no slot is owned twice, and all are slots of the pool.

    If there are also as many as the pool has, every slot is owned: none is lost.

    pre: len(owned) <= 4 and 0 <= capacity <= 4
    post: __return__ == all(0 <= s < capacity and s not in owned[:i] for i, s in enumerate(owned))
    """
    distinct = set(owned)
    return len(distinct) == len(owned) and (
        not owned or (min(distinct) >= 0 and max(distinct) < capacity)
    )
