"""Full-only pre-evict: LOAD-1 and EVICT-2, kept by an eviction that asks each pool for itself.

A victim is what it gives back: full, swa and mamba slots. Evictions go component by component, as
in the plain cache: first victims for full slots, then others for window slots, then for states.
Who has been skipped, for a lock or because it is gone, is not among the candidates.

What readers get wrong: that a leaf gives window slots, too, does not make a shortage of window
slots a reason to evict it. The reason is the pool for which it was chosen.
"""

from __future__ import annotations

from kvcanon.conformance.verify.prove.trees import all_of, any_of
from kvcanon.spec.oracle.eviction import last_was_needed, pre_evict_need, serves_shortage

Given = tuple[int, int, int]
FULL, SWA, MAMBA = 0, 1, 2
POOLS = (FULL, SWA, MAMBA)


def load_evicts_full_data_for_a_reason(
    needed: Given, free: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """Nobody gives full slots to a load but for a pool that lacks something, and gets it of them.

    pre: at_most(1 << 20, needed + free + first + second + third + last)
    post: for_a_reason(shortage(needed, free), __return__)
    """
    return evicted(shortage(needed, free), first, second, third, last)


def load_evicts_no_more_than_needed(
    needed: Given, free: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """Nothing leaves for a load once there is room, and nothing at all where there was room.

    pre: at_most(1 << 20, needed + free + first + second + third + last)
    post: len(__return__) == 0 or some_last_was_needed(shortage(needed, free), __return__)
    """
    return evicted(shortage(needed, free), first, second, third, last)


def shortage(needed: Given, free: Given) -> Given:
    """What each pool lacks, whatever the others have."""
    full, swa, mamba = (pre_evict_need(n, f) for n, f in zip(needed, free, strict=True))
    return full, swa, mamba


def evicted(
    short: Given, first: Given, second: Given, third: Given, last: Given
) -> tuple[Given, ...]:
    """Who leaves: two candidates for full slots, one for window slots, and one for states."""
    gone: list[Given] = []
    for pool, victim in ((FULL, first), (FULL, second), (SWA, third), (MAMBA, last)):
        freed = sum([given[pool] for given in gone])
        if victim[pool] > 0 and pre_evict_need(short[pool], freed) > 0:
            gone.append(victim)
    return tuple(gone)


def for_a_reason(short: Given, gone: tuple[Given, ...]) -> bool:
    """Whether LOAD-1 holds of victims: who gave full slots served a shortage."""
    return all_of([serves_shortage(given, short) | (given[FULL] == 0) for given in gone])


def some_last_was_needed(short: Given, gone: tuple[Given, ...]) -> bool:
    """Whether EVICT-2 holds of victims: of some component, the last was still needed."""
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
