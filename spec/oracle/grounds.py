"""Grounds: data that may be present only where other data, its ground, is present too.

The ground of window data is the node's full data; of a node's data, its parent's data; of a host
copy, the parent's host copy; of a lock, the lock on the parent. The root is ground for everything.

Both functions compute without branches, so that a solver can check them for a whole tree at once.
"""

from __future__ import annotations


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
