"""Faults of load-backs: what they evict, hold and refuse.

A load-back is more than an insert: the eviction that frees its slots may evict its own path.
"""

from __future__ import annotations

from itertools import cycle

from kvcanon.lab.mutants.planted.calls import Calls
from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.lab.variants.wrapped_rules import Original, around, instead
from kvcanon.reference import cache, evict, load, lock, slots, transfer, tree
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Component, Counts, Key, shortage


@mutant("LOAD-1", "A4 sgl#26302", founding=True)
def short_of_either_is_short_of_full(patch: Overrides) -> None:
    """A load-back takes the lower of two free counts for the free full slots."""
    turns = cycle((True, False))

    def confused(needed: Counts, free: Counts) -> Counts:
        """The first of the two questions of a load, what to evict, gets a wrong answer."""
        rightly = shortage(needed, free)
        if not next(turns) or not free.swa:
            return rightly
        return Counts(max(0, needed.full - min(free.full, free.swa)), rightly.swa, rightly.mamba)

    patch.setattr(load, "shortage", confused)


@mutant("LOAD-2", "D7 vllm#39702")
@instead(evict.evict, load)
def load_evicts_its_own_path(state: State, counts: Counts) -> Counts:
    """A load-back does not lock its path while it evicts, and evicts more than it needs."""
    held = next(reversed(state.holds.values()))
    lock._count(held, -1)
    freed = evict.evict(state, Counts(counts.full and counts.full + held.node.end, counts.swa))
    lock._count(held, 1)
    return freed


@mutant("LOAD-5", "B1 sgl#27444")
@around(transfer.enqueue, load)
def load_gives_up_the_host_copy(
    enqueue: Original[Transfer],
    state: State,
    direction: Direction,
    parts: list[tuple[Node, Component]],
    held: Hold,
) -> Transfer:
    """A load-back frees the host slots that it reads when it is enqueued."""
    enqueued = enqueue(state, direction, parts, held)
    for node, component in parts:
        slots.drop(state, node, component, CPU)
    return enqueued


@mutant("LOAD-3", "B9 sgl#30986")
def failed_load_keeps_its_lock(patch: Overrides) -> None:
    """A load-back that does not fit never releases the lock that it took."""
    patch.setattr(load, "release_hold", lambda *_: None)


@mutant("LOAD-4", "B7 sgl#25088")
@around(load._parts)
def load_starts_one_node_too_low(
    parts_of: Original[list[tuple[Node, Component]]], state: State, end: Node
) -> list[tuple[Node, Component]]:
    """A load-back leaves out the first of the parts that it has to load."""
    parts = parts_of(state, end)
    return parts[1:] if len(parts) > 1 else parts


@mutant("LOAD-4", "B19 sgl#27291")
@around(load._parts)
def load_leaves_the_window_behind(
    parts_of: Original[list[tuple[Node, Component]]], state: State, end: Node
) -> list[tuple[Node, Component]]:
    """A load-back brings full data, and not the window data that its end needs."""
    parts = parts_of(state, end)
    return [part for part in parts if part[1] is not SWA] or parts


@mutant("LOAD-4", "B25 sgl#30057")
@around(load._parts)
def load_leaves_the_state_behind(
    parts_of: Original[list[tuple[Node, Component]]], state: State, end: Node
) -> list[tuple[Node, Component]]:
    """A load-back brings pages without the mamba state at their end."""
    parts = parts_of(state, end)
    return [part for part in parts if part[1] is not MAMBA] or parts


@mutant("LOAD-6")
@around(load._decide)
def quota_is_no_quota_at_its_limit(
    decide: Original[LoadDecision | None], state: State, needed: Counts, quota_pages: int | None
) -> LoadDecision | None:
    """A load-back of exactly as many pages as the quota allows is refused."""
    lower = None if quota_pages is None else max(0, quota_pages - 1)
    return decide(state, needed, lower)


@mutant("LOAD-6")
@around(load._decide)
def what_is_worth_a_copy_is_counted_in_full_pages(
    decide: Original[LoadDecision | None], state: State, needed: Counts, quota_pages: int | None
) -> LoadDecision | None:
    """A load-back of window data alone counts as below the threshold of full pages."""
    if needed and needed.full == 0:
        return LoadDecision.BELOW_THRESHOLD
    return decide(state, needed, quota_pages)


@mutant("LOAD-7")
@instead(load.load_back, cache)
def load_counts_as_a_hit(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
    """A load-back counts a hit at the nodes that it loads."""
    loaded = load.load_back(state, key, quota_pages)
    if loaded.transfer_id is not None:
        for node, _ in state.transfers[loaded.transfer_id].parts:
            node.hit_count += 1
    return loaded


@mutant("LOAD-4")
def windows_come_from_far_away(patch: Overrides) -> None:
    """If slots are free, a load-back loads all window data of its path, beyond the last window."""
    all_of_it, begin, held_from = Calls(), load._begin, lock.held_window_start

    def from_the_first(state: State, component: Component, end_pages: int) -> int:
        return 0 if all_of_it and component is SWA else begin(state, component, end_pages)

    def held_from_the_first(state: State, end: Node) -> int | None:
        return 0 if all_of_it and SWA in end.data else held_from(state, end)

    def generous(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
        path = tree.walk(state, key)
        wanted = [n for n, _ in path if SWA in n.data and load._on_host_only(n, SWA)]
        room = slots.free_slot_counts(state, GPU).swa
        fits = bool(wanted) and sum(len(node.pages) for node in wanted) <= room
        call = all_of_it.during(load.load_back) if fits else load.load_back
        return call(state, key, quota_pages)

    patch.setattr(load, "_begin", from_the_first)
    patch.setattr(load, "held_window_start", held_from_the_first)
    patch.setattr(cache, "load_back", generous)
