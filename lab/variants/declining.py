"""Declining: variations that refuse calls early, or for another reason.

The plain cache evicts first and then checks whether that freed enough. A cache may also check
first, and so keep more. Both are lawful, as no page is promised to stay.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.registry import variation
from kvcanon.lab.variants.wrapped_rules import wrap
from kvcanon.reference import backup, cache, evict, host, insert, load
from kvcanon.reference.state import State
from kvcanon.spec.errors import SlotNotHeld
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import CPU, GPU, Component, Counts, Key, Slots

Evict = Callable[[State, Counts], Counts]
MakeRoom = Callable[[State, Counts], bool]


@variation
def impossible_loads_declined_first(overrides: Overrides) -> None:
    """A load that would not fit even if everything unlocked were evicted evicts nothing."""

    def wrapper(usual: Evict) -> Evict:
        def evict_what_helps(state: State, short: Counts) -> Counts:
            components = state.config.components
            helps = all(short[each] <= _unlocked_slots(state, each) for each in components)
            return usual(state, short) if helps else Counts()

        return evict_what_helps

    wrap(overrides, load, evict.evict, wrapper)


@variation
def slots_are_checked_first(overrides: Overrides) -> None:
    """If an insert has several faults, a slot that is not held is reported first."""

    def wrapper(usual: Callable[..., Inserted]) -> Callable[..., Inserted]:
        def check_and_insert(
            state: State, key: Key, start_pages: int, given: Slots, **others: int
        ) -> Inserted:
            for component, some in given:
                pool = state.pools.get((component, GPU))
                for slot in some:
                    if pool is not None and slot not in pool.held:
                        raise SlotNotHeld(f"{component} on GPU", slot)
            return usual(state, key, start_pages, given, **others)

        return check_and_insert

    wrap(overrides, cache, insert.insert, wrapper)


def _unlocked_slots(state: State, component: Component) -> int:
    """Return how many device slots of a component evictions could free."""
    nodes = state.owners[component, GPU]
    return sum(
        len(node.data[component].device or ())
        for node in nodes
        if not node.data[component].lock_refs
    )


@variation
def impossible_backups_declined_first(overrides: Overrides) -> None:
    """A backup that is larger than the whole host pool evicts nothing from it."""

    def wrapper(usual: MakeRoom) -> MakeRoom:
        def make_room_that_can_be(state: State, needed: Counts) -> bool:
            config = state.config
            fits = all(needed[each] <= config.capacity(each, CPU) for each in config.components)
            return fits and usual(state, needed)

        return make_room_that_can_be

    wrap(overrides, backup, host.ensure_host_slots, wrapper)
