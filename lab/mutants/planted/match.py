"""Faults of matches: the length of the prefix hit, and the slots returned.

A prefix hit that is too short is a fault too: cached pages are computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from attrs import evolve

from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, insert, match, tree
from kvcanon.reference.state import Data, Edge, Node, State
from kvcanon.spec.operations import Matched
from kvcanon.spec.oracle.prefix import shared_pages, usable_prefix
from kvcanon.spec.types import FULL, MAMBA, SWA, Key, Namespace, Page, Slots, TransferId

Bools = tuple[bool, ...]


@mutant("MATCH-1", "A1 sgl#17061")
@instead(usable_prefix, match)
def match_ignores_tombstones(
    lengths: tuple[int, ...], full: Bools, swa: Bools, state: Bools, window: int
) -> int:
    """A match finds a prefix although window data before its end is gone."""
    return usable_prefix(lengths, full, (True,) * len(swa), state, window)


@mutant("MATCH-1", "D10 vllm#48959")
@instead(usable_prefix, match)
def match_window_is_one_short(
    lengths: tuple[int, ...], full: Bools, swa: Bools, state: Bools, window: int
) -> int:
    """A match accepts a window that lacks one token."""
    return usable_prefix(lengths, full, swa, state, max(1, window - 1))


@mutant("MATCH-1", "D3 vllm#43559")
@instead(usable_prefix, match)
def match_ends_where_no_state_is(
    lengths: tuple[int, ...], full: Bools, swa: Bools, state: Bools, window: int
) -> int:
    """A match finds a prefix beyond the last mamba state on its path."""
    return usable_prefix(lengths, full, swa, (True,) * len(state), window)


@mutant("MATCH-1", "B6 sgl#24943")
@around(tree.walk, match)
def part_of_a_host_node_is_thrown_away(
    walk: Original[list[tree.PathNode]], state: State, key: Key
) -> list[tree.PathNode]:
    """A prefix that ends inside a node on the host is found only up to that node."""
    stops = walk(state, key)
    inside = stops and stops[-1].shared_pages < len(stops[-1].node.pages)
    return stops[:-1] if inside and stops[-1].node.data[FULL].host is not None else stops


@mutant("MATCH-1", "A29 sgl#10846")
def bigrams_are_compared_as_tokens(patch: Overrides) -> None:
    """Bigrams are compared by their first token only."""

    def firsts(pages: tuple[Page, ...]) -> tuple[Page, ...]:
        return tuple(
            tuple(unit if isinstance(unit, int) else unit[0] for unit in page) for page in pages
        )

    patch.setattr(
        tree, "shared_pages", lambda ours, theirs: shared_pages(firsts(ours), firsts(theirs))
    )


@mutant("MATCH-1")
@around(match._usable_pages)
def match_ends_at_its_first_state(
    usable_pages: Original[int],
    state: State,
    stops: list[tree.PathNode],
    present: Callable[[Data], bool],
) -> int:
    """A match ends at the first mamba state that it can use on its path, not at the deepest."""
    some = [stops[:end] for end in range(1, len(stops) + 1)] if state.config.mamba else [stops]
    ends = (usable_pages(state, each, present) for each in some)
    return next((end for end in ends if end), 0)


@mutant("MATCH-1", "sgl#37584")
@around(match.match, cache)
def branch_is_said_to_be_the_prefix(usual: Original[Matched], state: State, key: Key) -> Matched:
    """A match says that its key leaves the tree where its usable prefix ends."""
    found = usual(state, key)
    return evolve(found, branch_pages=found.prefix_pages)


@mutant("MATCH-8")
@around(insert._attach_states)
def states_before_the_end_are_freed(
    attach: Original[None], state: State, end: Node, incoming: insert._Incoming, tick: int
) -> None:
    """An insert keeps the last of the mamba states that it is handed, and frees the others."""
    _keep_states(state, incoming, incoming.state_pages[-1:])
    attach(state, end, incoming, tick)


@mutant("MATCH-8")
@around(insert._attach_states)
def no_node_is_cut_for_a_state(
    attach: Original[None], state: State, end: Node, incoming: insert._Incoming, tick: int
) -> None:
    """An insert frees a mamba state whose page is inside a node."""
    _keep_states(state, incoming, [node.end for node in tree.upwards(end)])
    attach(state, end, incoming, tick)


def _keep_states(state: State, incoming: insert._Incoming, pages: Collection[int]) -> None:
    """Free the incoming states that are not at the end of one of these pages."""
    pairs = list(zip(incoming.state_pages, incoming.slots.mamba, strict=True))
    kept = [(page, slot) for page, slot in pairs if page in pages]
    freed = tuple([slot for page, slot in pairs if page not in pages])
    if freed:
        insert._free(state, MAMBA, freed, incoming)
    incoming.state_pages = tuple([page for page, _ in kept])
    incoming.slots = evolve(incoming.slots, mamba=tuple([slot for _, slot in kept]))


@mutant("MATCH-2", "D5 vllm#45704")
def load_in_flight_counts_as_there(patch: Overrides) -> None:
    """A match returns slots of a load-back in flight, before their bytes are there."""
    patch.setattr(match, "on_device", lambda data: data.device is not None)


@mutant("MATCH-2", "B8 sgl#25085")
@around(match._usable_pages)
def device_prefix_stands_on_host_data(
    usable_pages: Original[int],
    state: State,
    stops: list[tree.PathNode],
    present: Callable[[Data], bool],
) -> int:
    """The device prefix counts window data and states on the host as if on the device."""
    usable = usable_pages(state, stops, match._anywhere)
    if present is match.on_device:
        return min(usable, insert._present_pages(stops))
    return usable


@mutant("MATCH-3", "D21 trt#13124")
@around(match._device_slots)
def window_slots_are_numbered_as_full_ones(
    device_slots: Original[Slots], path: list[Node]
) -> Slots:
    """A match returns the numbers of full slots as its window slots."""
    some = device_slots(path)
    return Slots(some.full, some.full[len(some.full) - len(some.swa) :], some.mamba)


@mutant("MATCH-3", "B23 sgl#30339")
def window_is_not_handed_out(patch: Overrides) -> None:
    """A match returns full slots, and no window slots."""
    device_slots = match._device_slots
    patch.setattr(match, "_device_slots", lambda path: evolve(device_slots(path), swa=()))


@mutant("MATCH-3", "D23 openvino.genai#3722")
def pages_are_compared_by_a_weak_hash(patch: Overrides) -> None:
    """Two pages with the same weak hash count as the same page."""

    def weak(page: Page) -> int:
        return sum(unit if isinstance(unit, int) else sum(unit) for unit in page)

    def colliding(ours: tuple[Page, ...], theirs: tuple[Page, ...]) -> int:
        pairs = zip(ours, theirs, strict=False)
        equal = [weak(our_page) == weak(their_page) for our_page, their_page in pairs]
        return [*equal, False].index(False)

    patch.setattr(tree, "shared_pages", colliding)


def _merge_at_the_root(patch: Overrides, seen: Callable[[Namespace], Namespace]) -> None:
    """Let the root tell only those namespaces apart that are seen as different."""

    def merged(parent: Node, namespace: Namespace, page: Page) -> Edge:
        return (seen(namespace), page) if parent.parent is None else page

    patch.setattr(tree, "edge", merged)


@mutant("MATCH-1", "B22 sgl#24638")
def extra_key_and_adapter_are_joined(patch: Overrides) -> None:
    """Namespaces are joined without a separator: ("a", "bc") and ("ab", "c") are the same."""
    _merge_at_the_root(
        patch,
        lambda seen: evolve(seen, extra_key=(seen.extra_key or "") + (seen.lora or ""), lora=None),
    )


@mutant("MATCH-1", "D2 vllm#44701")
def adapter_and_salt_share_one_field(patch: Overrides) -> None:
    """A LoRA adapter and a salt with the same name are the same namespace."""
    _merge_at_the_root(
        patch, lambda seen: evolve(seen, lora=seen.lora or seen.cache_salt, cache_salt=None)
    )


@mutant("MATCH-1", "B20 sgl#26747")
def salt_is_ignored(patch: Overrides) -> None:
    """The salt is not part of the namespace: tenants find each other's pages."""
    _merge_at_the_root(patch, lambda seen: evolve(seen, cache_salt=None))


@mutant("MATCH-5", "D13 lmc#4133")
@instead(match.match, cache)
def lookup_pins_what_it_finds(state: State, key: Key) -> Matched:
    """A match locks the path that it walked, and nobody releases the lock."""
    matched = match.match(state, key)
    for node, _ in tree.walk(state, key):
        node.data[FULL].lock_refs += 1
    return matched


@mutant("ASK-5", "A18 sgl#29351")
@around(insert._fill_leaf)
def leaf_without_window_is_refused(
    fill_leaf: Original[Node], state: State, leaf: Node, incoming: insert._Incoming, tick: int
) -> Node:
    """A new leaf without window data is dropped, though its full data is good."""
    if SWA not in leaf.data or incoming.swa_from < leaf.end or leaf.parent is None:
        return fill_leaf(state, leaf, incoming, tick)
    insert._free(state, FULL, incoming.full(leaf.start, leaf.end), incoming)
    tree.remove_leaf(state, leaf)
    return leaf.parent


@mutant("MATCH-6", "A19 sgl#29860")
@around(insert._fill_leaf)
def window_inside_a_page_is_no_window(
    fill_leaf: Original[Node], state: State, leaf: Node, incoming: insert._Incoming, tick: int
) -> Node:
    """If the window is shorter than a page, the last page's window slot is freed."""
    if state.config.page_size <= (state.config.window_tokens or state.config.page_size):
        return fill_leaf(state, leaf, incoming, tick)
    begin = max(leaf.start, incoming.swa_from)
    insert._free(state, SWA, incoming.swa(begin, leaf.end), incoming)
    incoming.swa_from = leaf.end
    return fill_leaf(state, leaf, incoming, tick)


@mutant("MATCH-7")
@instead(Matched, match)
def loads_in_flight_are_not_named(
    prefix_pages: int, device_pages: int, some: Slots, pending: tuple[TransferId, ...], branch: int
) -> Matched:
    """A match leaves out the first of the load-backs that its prefix waits for."""
    return Matched(prefix_pages, device_pages, some, pending[1:], branch)
