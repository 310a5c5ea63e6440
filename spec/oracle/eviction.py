"""Eviction: how much must go, and who goes first.

What readers get wrong: the pools are separate. A shortage in one is no reason to empty another, and
`min(full free, swa free)` is the free room of neither (sgl#26302).
"""

from __future__ import annotations

from kvcanon.spec.types import EvictionPolicy


def pre_evict_need(needed: int, free: int) -> int:
    """Slots of one pool that must be evicted before `needed` fit, given that pool's own free slots.

    Source: https://github.com/sgl-project/sglang/pull/26302

    pre: 0 <= needed <= 1 << 20 and 0 <= free <= 1 << 20
    post: __return__ >= 0
    post: free + __return__ >= needed
    post: __return__ == 0 or free + __return__ == needed
    """
    return max(0, needed - free)


def policy_key(
    policy: EvictionPolicy, hit_count: int, last_access: int, created: int, priority: int
) -> tuple[int, int]:
    """The rank of a leaf under a policy; the smallest leaves first.

    Ticks are drawn once an operation, and an operation touches one path, so that two leaves never
    share `last_access`, nor `created`: ties cannot occur, and every replica picks the same victim.

    pre: 0 <= hit_count <= 8
    post: policy is not EvictionPolicy.LRU or __return__ == (0, last_access)
    post: policy is not EvictionPolicy.SLRU or __return__ == (int(hit_count > 1), last_access)
    post: policy is not EvictionPolicy.FILO or __return__ == (0, -created)
    """
    recency_first = {
        EvictionPolicy.LRU: (0, last_access),
        EvictionPolicy.LFU: (hit_count, last_access),
        EvictionPolicy.FIFO: (0, created),
        EvictionPolicy.MRU: (0, -last_access),
        EvictionPolicy.FILO: (0, -created),
        EvictionPolicy.SLRU: (int(hit_count >= 2), last_access),
        EvictionPolicy.PRIORITY: (priority, last_access),
    }
    return recency_first[policy]


def victim_order(keys: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
    """The order in which candidates leave: their positions, smallest key first.

    pre: len(keys) <= 4
    post: tuple(sorted(__return__)) == tuple(range(len(keys)))
    post: all(keys[a] <= keys[b] for a, b in zip(__return__, __return__[1:]))
    """
    return tuple(sorted(range(len(keys)), key=keys.__getitem__))
