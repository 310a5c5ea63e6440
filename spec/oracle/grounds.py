"""Grounds: data that may be present only where other data, its ground, is present too; and owners.

The ground of window data is the node's full data; of a node's data, its parent's data; of a host
copy, the parent's host copy; of a lock, the lock on the parent. The root is ground for everything.

The functions of grounds compute without branches, so that a solver can check a whole tree at once.

Every slot has one owner. Counting the slots is not enough to know: a pool with one slot in two
places and another slot in none has the right number of them.
"""

from __future__ import annotations

from collections.abc import Sequence


def has_ground(there: bool, ground: bool) -> bool:
    """Whether data may be as it is: absent, or present on a ground that is present.

    post: __return__ == (ground or not there)
    """
    return (there & ground) == there


def lock_has_ground(lock_refs: int, ground_refs: int) -> bool:
    """Whether a lock count is at most the lock count of its ground.

    pre: 0 <= lock_refs <= 1 << 20 and 0 <= ground_refs <= 1 << 20
    post: __return__ == (lock_refs in range(ground_refs + 1))
    """
    return lock_refs <= ground_refs


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
