"""Checks of arguments: refuses calls that SGLang's scheduler never makes.

SGLang does not check slots that no request holds, keys that end inside a node (SGLang's handles are
nodes), or locks where no match can end. A bad answer to such a call would not be a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from kvcanon.conformance.engines.sglang.peer_types import SGLangNode
from kvcanon.conformance.engines.sglang.snapshot import MatchedNode, Tree
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots, PrefixNotCached, SlotNotHeld
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot, Slots

Held = Mapping[Component, Collection[Slot]]


def require_counts(config: CacheConfig, counts: Counts) -> None:
    """Check the counts of an allocation. Raises: BadArgument."""
    if evicted_counts(config, counts) != counts:
        raise BadArgument("counts", f"{counts} name a component that this cache has not")


def evicted_counts(config: CacheConfig, counts: Counts) -> Counts:
    """The counts to evict, of the cache's own components. Raises: BadArgument."""
    for component in Component:
        if counts[component] < 0:
            raise BadArgument(str(component), f"{counts[component]} slots; ask for 0 or more")
    return Counts(**{component.value: counts[component] for component in config.components})


def require_room(tree: Tree, counts: Counts) -> None:
    """Check that enough slots are free before any is taken. Raises: BadArgument, OutOfSlots."""
    if counts.swa > counts.full:
        raise BadArgument("swa", f"{counts.swa} slots asked for {counts.full} pages")
    for component in tree.kinds:
        free = len(tree.pools[component, GPU].free_slots())
        if free < counts[component]:
            raise OutOfSlots(f"{component} on GPU", counts[component], free)


def require_held(held: Held, slots: Slots) -> None:
    """Check that requests hold these slots, each given once. Raises: BadArgument, SlotNotHeld."""
    for component, some in slots:
        if some and component not in held:
            raise BadArgument(str(component), "is no component of this cache")
        if len(set(some)) < len(some):
            raise BadArgument(str(component), "names a slot twice")
        for slot in some:
            if slot not in held[component]:
                raise SlotNotHeld(f"{component} on GPU", slot)


def windows_alone(
    leads: Mapping[Slot, Slot], slots: Slots, all_leads: Callable[[], Mapping[Slot, Slot]]
) -> tuple[Slot, ...]:
    """The full slots whose window slots are freed without them.

    `leads` are those of the given full slots; those of all are looked up if they are needed.

    Raises: BadArgument: full slots without their window slots, for which SGLang has no call.
    """
    with_full = {leads[slot] for slot in slots.full if slot in leads}
    if not with_full.issubset(slots.swa):
        raise BadArgument("slots.full", "are given back without the window slots they lead to")
    alone = [slot for slot in slots.swa if slot not in with_full]
    full_of = {swa: full for full, swa in all_leads().items()} if alone else {}
    return tuple(full_of[slot] for slot in alone)


def require_handed_over(
    config: CacheConfig, leads: Mapping[Slot, Slot], key: Key, start_pages: int, slots: Slots
) -> None:
    """Check that slots fit a key. Raises: BadArgument."""
    if not 0 <= start_pages <= len(key):
        raise BadArgument("start_pages", f"is {start_pages}; the key has {len(key)} pages")
    if len(slots.full) != len(key) - start_pages or len(slots.swa) > len(slots.full):
        raise BadArgument("slots", f"do not fit pages {start_pages}..{len(key)} of the key")
    if MAMBA in config.components and len(slots.mamba) != 1:
        raise BadArgument("slots.mamba", "must be the one state at the end of the key")
    reach = [leads.get(slot) for slot in slots.full]
    unpaired = len(slots.full) - len(slots.swa)
    if SWA in config.components and reach != [*[None] * unpaired, *slots.swa]:
        raise BadArgument("slots.swa", "are not those that the full slots lead to")


def require_start(tree: Tree, stops: list[MatchedNode], start_pages: int) -> None:
    """Check that the start of a request is cached. Raises: PrefixNotCached, BadArgument."""
    resident = resident_pages(tree, stops)
    if resident < start_pages:
        raise PrefixNotCached(start_pages, resident)
    if start_pages and start_pages not in [stop.end_pages for stop in stops]:
        raise BadArgument("start_pages", "is inside a node; SGLang's requests own whole nodes")


def node_at(tree: Tree, key: Key, stops: list[MatchedNode]) -> SGLangNode:
    """The node that a key ends at. Raises: PrefixNotCached, BadArgument."""
    present = sum(stop.shared_pages for stop in stops)
    if present < len(key):
        raise PrefixNotCached(len(key), present)
    if not stops:
        return tree.root
    if stops[-1].end_pages != len(key):
        raise BadArgument("key", "ends inside a node, which SGLang has no handle for; match it")
    return stops[-1].node


def usable_pages(tree: Tree, config: CacheConfig, stops: list[MatchedNode], *, host: bool) -> int:
    """How many pages of a path are usable from the device alone, or also from the host."""

    def has(stop: MatchedNode, component: Component) -> bool:
        if component not in config.components:
            return True
        on_device = bool(tree.slots(stop.node, component, GPU))
        return on_device or (host and bool(tree.slots(stop.node, component, CPU)))

    lengths = tuple(stop.shared_pages * config.page_size for stop in stops)
    table = [tuple(has(stop, component) for stop in stops) for component in (FULL, SWA, MAMBA)]
    usable = usable_prefix(lengths, table[0], table[1], table[2], config.window_tokens or 1)
    return usable // config.page_size


def resident_pages(tree: Tree, stops: list[MatchedNode]) -> int:
    """How many leading pages of a path have full data on the device."""
    pages = 0
    for stop in stops:
        if not tree.slots(stop.node, FULL, GPU):
            break
        pages += stop.shared_pages
    return pages
