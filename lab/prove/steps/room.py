"""Full-only pre-evict: LOAD-1 and EVICT-2, kept by an eviction that asks each pool for itself.

A victim is written as the slots that it frees: full, swa and mamba. Evictions go component by
component, as in the plain cache: first victims for full slots, then for window slots, then for
mamba states. Nodes that are locked or gone are not among the candidates.

A leaf that frees window slots, too, was not evicted for a shortage of window slots. The reason is
the pool for which it was chosen.
"""

from __future__ import annotations

from kvcanon.lab.prove.trees import all_of, any_of
from kvcanon.spec.oracle.eviction import last_was_needed, pre_evict_need, serves_shortage

Given = tuple[int, int, int]
FULL, SWA, MAMBA = 0, 1, 2
POOLS = (FULL, SWA, MAMBA)


def load_evicts_full_data_for_a_reason(
    needed: Given, free: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """A load evicts a node with full slots only for a pool that is short and gets slots from it.

    pre: at_most(1 << 20, needed + free + first + second + third + last)
    post: for_a_reason(shortage(needed, free), __return__)
    """
    return evicted(shortage(needed, free), first, second, third, last)


def load_evicts_no_more_than_needed(
    needed: Given, free: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """A load evicts nothing once there are enough free slots.

    pre: at_most(1 << 20, needed + free + first + second + third + last)
    post: len(__return__) == 0 or some_last_was_needed(shortage(needed, free), __return__)
    """
    return evicted(shortage(needed, free), first, second, third, last)


def shortage(needed: Given, free: Given) -> Given:
    """How many slots each pool is short of, whatever the others have."""
    full, swa, mamba = (pre_evict_need(n, f) for n, f in zip(needed, free, strict=True))
    return full, swa, mamba


def evicted(
    short: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """The victims: of two candidates for full slots, one for window slots, one for mamba states."""
    gone: list[Given] = []
    for pool, victim in ((FULL, first), (FULL, second), (SWA, third), (MAMBA, last)):
        freed = sum([given[pool] for given in gone])
        if victim[pool] > 0 and pre_evict_need(short[pool], freed) > 0:
            gone.append(victim)
    return tuple(gone)


def for_a_reason(short: Given, gone: tuple[Given, ...]) -> bool:
    """Whether LOAD-1 holds: each victim that freed full slots served a shortage."""
    return all_of([serves_shortage(given, short) | (given[FULL] == 0) for given in gone])


def some_last_was_needed(short: Given, gone: tuple[Given, ...]) -> bool:
    """Whether EVICT-2 holds: for some component, the last victim was still needed."""
    return any_of(
        [
            last_was_needed(sum([given[pool] for given in gone]), short[pool], largest[pool])
            for largest in gone
            for pool in POOLS
        ]
    )


def at_most(most: int, slots: tuple[int, ...]) -> bool:
    """Whether all counts are within a bound."""
    return all_of([(count >= 0) & (count <= most) for count in slots])
