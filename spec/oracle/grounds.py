"""Grounds: what stands on what, of one node and the node above it.

Window data stands on full data, a node's data on its parent's, a host copy on the parent's host
copy, a lock on the lock above. Each law of that kind is this one question, asked all over the tree.

Both answers are reckoned without branches, so that a solver can ask them of a whole tree at once.

What readers get wrong: the root is no node that data could be missing from. It is ground for all.
"""

from __future__ import annotations


def has_ground(there: bool, ground: bool) -> bool:
    """Whether something may be there, given whether what it stands on is there.

    post: __return__ == (ground or not there)
    """
    return (there & ground) == there


def lock_has_ground(lock_refs: int, ground_refs: int) -> bool:
    """Whether something may be locked so often, given how often what it stands on is locked.

    pre: 0 <= lock_refs <= 1 << 20 and 0 <= ground_refs <= 1 << 20
    post: __return__ == (lock_refs in range(ground_refs + 1))
    """
    return lock_refs <= ground_refs
