"""Slot ownership: ALLOC-1 and ALLOC-8, kept by every way in which a slot changes hands.

The owners are the free list, requests, the tree, and copies that were cancelled.

A slot that moves must leave one owner as well as reach the other: both in one place, for the same
slots. All known bugs of this kind did only one of the two.
"""

from __future__ import annotations

from kvcanon.lab.prove.trees import Flags, all_of, either, no, within, without
from kvcanon.reference.state import Pool
from kvcanon.spec.oracle.grounds import owned_once

Owners = tuple[Flags, Flags, Flags, Flags]


def handing_over_keeps_one_owner(
    source: Flags, target: Flags, third: Flags, fourth: Flags, moved: Flags
) -> Owners:
    """Slots go from one owner to another: of the four, any is the source, and any other the target.

    pre: 1 <= len(source) == len(target) == len(third) == len(fourth) == len(moved) <= 5
    pre: one_owner(source, target, third, fourth)
    pre: within(moved, source)
    post: one_owner(*__return__)
    terms: 64
    """
    return without(source, moved), either(target, moved), third, fourth


def pool_gives_each_free_slot_once(
    capacity: int, untouched: int, returned: tuple[int, ...], count: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What the plain cache's pool gives out was free, and is free no longer; the rest stays free.

    pre: len(returned) <= 3 and 0 <= untouched <= capacity <= 5
    pre: owned_once(returned, untouched)
    pre: 0 <= count <= capacity - untouched + len(returned)
    post: len(__return__[0]) == count
    post: are_free(capacity, untouched, returned, __return__[0] + __return__[1])
    """
    pool = Pool(capacity, untouched, list(returned))
    taken = pool.take(count)
    return taken, free_slots(capacity, pool.untouched, tuple(pool.returned))


def pool_takes_back_what_it_gave(
    capacity: int, untouched: int, returned: tuple[int, ...], count: int
) -> tuple[int, ...]:
    """Slots that are taken and given back are free as before.

    pre: len(returned) <= 3 and 0 <= untouched <= capacity <= 5
    pre: owned_once(returned, untouched)
    pre: 0 <= count <= capacity - untouched + len(returned)
    post: are_free(capacity, untouched, returned, __return__)
    """
    pool = Pool(capacity, untouched, list(returned))
    pool.give_back(pool.take(count))
    return free_slots(capacity, pool.untouched, tuple(pool.returned))


def one_owner(ours: Flags, theirs: Flags, third: Flags, fourth: Flags) -> bool:
    """Whether each slot has one of four owners, and no other."""
    return all_of(
        [
            (a ^ b ^ c ^ d) & no((a & b) | (c & d) | ((a | b) & (c | d)))
            for a, b, c, d in zip(ours, theirs, third, fourth, strict=True)
        ]
    )


def free_slots(capacity: int, untouched: int, returned: tuple[int, ...]) -> tuple[int, ...]:
    """The free slots of a pool that has used so many and got some back."""
    return (*returned, *range(untouched, capacity))


def are_free(
    capacity: int, untouched: int, returned: tuple[int, ...], slots: tuple[int, ...]
) -> bool:
    """Whether these are all the free slots of a pool, each once."""
    return sorted(slots) == sorted(free_slots(capacity, untouched, returned))
