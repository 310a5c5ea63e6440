"""Eviction: how many slots must be evicted, which nodes may be evicted, and in which order.

A refresh of an LRU order moves what it touches and nothing else: later evictions rely on the
relative order of the rest.

The pools are separate: a shortage in one pool is no reason to evict from another, and
`min(full free, swa free)` is the number of free slots of neither (sgl#26302).
"""

from __future__ import annotations

from enum import StrEnum


class EvictionPolicy(StrEnum):
    """Which full leaf is evicted first; `policy_key` defines each policy."""

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    MRU = "mru"
    FILO = "filo"
    SLRU = "slru"
    PRIORITY = "priority"


def pre_evict_need(needed: int, free: int) -> int:
    """Slots of one pool that must be evicted so that `needed` are free, given its free slots.

    Source: https://github.com/sgl-project/sglang/pull/26302

    pre: 0 <= needed <= 1 << 20 and 0 <= free <= 1 << 20
    post: __return__ >= 0
    post: free + __return__ >= needed
    post: __return__ == 0 or free + __return__ == needed
    """
    return max(0, needed - free)


def may_leave_device(on_device: bool, locked: bool, child_on_device: bool) -> bool:
    """Whether a whole node may be evicted from the device.

    Computed without branches, so that a solver can check it for a whole tree at once.

    post: not (__return__ and locked)
    post: not (__return__ and child_on_device)
    post: on_device or not __return__
    post: __return__ or locked or child_on_device or not on_device
    """
    return on_device & ((locked | child_on_device) ^ True)


def may_leave_host(on_device: bool, on_host: bool, locked: bool, has_children: bool) -> bool:
    """Whether a whole node may be evicted from the host, and so leave the tree.

    Computed without branches, so that a solver can check it for a whole tree at once.

    post: not (__return__ and locked)
    post: not (__return__ and has_children)
    post: not (__return__ and on_device)
    post: on_host or not __return__
    post: __return__ or locked or has_children or on_device or not on_host
    """
    return on_host & ((on_device | locked | has_children) ^ True)


def serves_shortage(lost: tuple[int, int, int], short: tuple[int, int, int]) -> bool:
    """Whether a victim freed slots of a pool that was short; both tuples are (full, swa, mamba).

    Source: https://github.com/sgl-project/sglang/pull/26302

    pre: all(0 <= slots <= 1 << 20 for slots in lost + short)
    post: __return__ == any(l > 0 and s > 0 for l, s in zip(lost, short))
    """
    full, swa, mamba = lost
    short_full, short_swa, short_mamba = short
    return (
        (full > 0) & (short_full > 0)
        | (swa > 0) & (short_swa > 0)
        | (mamba > 0) & (short_mamba > 0)
    )


def last_was_needed(freed: int, asked: int, largest: int) -> bool:
    """Whether a pool was short until the last victim in some order, and that victim freed from it.

    `freed` is what all victims freed together, `largest` the most that one of them freed: if any
    victim was needed last, the largest one can have been the last.

    pre: 0 <= largest <= freed <= 1 << 20 and 0 <= asked <= 1 << 20
    post: __return__ == (largest > 0 and freed - largest < asked)
    """
    return (asked > 0) & (largest > 0) & (freed - largest < asked)


def policy_key(
    policy: EvictionPolicy, hit_count: int, last_access: int, created: int, priority: int
) -> tuple[int, int]:
    """The key of a leaf under a policy; the leaf with the smallest key is evicted first.

    An operation draws one tick and touches one path, so two leaves never share `last_access` or
    `created`: there are no ties, and every replica picks the same victim.

    pre: 0 <= hit_count <= 8
    post: __return__[0] in (0, 1, hit_count, priority)
    post: abs(__return__[1]) in (abs(last_access), abs(created))
    post: policy is EvictionPolicy.PRIORITY or __return__[0] >= 0
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
    """The order in which candidates are evicted: their positions, smallest key first.

    pre: len(keys) <= 4
    post: tuple(sorted(__return__)) == tuple(range(len(keys)))
    post: all(keys[a] <= keys[b] for a, b in zip(__return__, __return__[1:]))
    """
    return tuple(sorted(range(len(keys)), key=keys.__getitem__))


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
