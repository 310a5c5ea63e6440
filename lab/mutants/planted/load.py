"""Faults of load-backs: what they evict, hold and refuse.

A load-back is more than an insert: the eviction that frees its slots may evict its own path.
"""

from __future__ import annotations

from itertools import cycle

from kvcanon.lab.mutants.planted.calls import Calls
from kvcanon.lab.mutants.planted.entry import mutant
from kvcanon.lab.variants.override import Overrides
from kvcanon.reference import (
    cache,
    evict,
    load,
    lock,
    slots,
    transfer,
    tree,
)
from kvcanon.reference.state import Hold, Node, State, Transfer
from kvcanon.spec.operations import LoadDecision, LoadedBack
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import (
    CPU,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    shortage,
)


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
def load_evicts_its_own_path(patch: Overrides) -> None:
    """A load-back does not lock its path while it evicts, and evicts more than it needs."""

    def unheld(state: State, counts: Counts) -> Counts:
        held = next(reversed(state.holds.values()))
        lock._count(held, -1)
        freed = evict.evict(state, Counts(counts.full and counts.full + held.node.end, counts.swa))
        lock._count(held, 1)
        return freed

    patch.setattr(load, "evict", unheld)


@mutant("LOAD-5", "B1 sgl#27444")
def load_gives_up_the_host_copy(patch: Overrides) -> None:
    """A load-back frees the host slots that it reads when it is enqueued."""
    enqueue = transfer.enqueue

    def moving(
        state: State, direction: Direction, parts: list[tuple[Node, Component]], held: Hold
    ) -> Transfer:
        enqueued = enqueue(state, direction, parts, held)
        for node, component in parts:
            slots.drop(state, node, component, CPU)
        return enqueued

    patch.setattr(load, "enqueue", moving)


@mutant("LOAD-3", "B9 sgl#30986")
def failed_load_keeps_its_lock(patch: Overrides) -> None:
    """A load-back that does not fit never releases the lock that it took."""
    patch.setattr(load, "release_hold", lambda *_: None)


@mutant("LOAD-4", "B7 sgl#25088")
def load_starts_one_node_too_low(patch: Overrides) -> None:
    """A load-back leaves out the first of the parts that it has to load."""
    parts_of = load._parts

    def lower(state: State, end: Node) -> list[tuple[Node, Component]]:
        parts = parts_of(state, end)
        return parts[1:] if len(parts) > 1 else parts

    patch.setattr(load, "_parts", lower)


@mutant("LOAD-4", "B19 sgl#27291")
def load_leaves_the_window_behind(patch: Overrides) -> None:
    """A load-back brings full data, and not the window data that its end needs."""
    parts_of = load._parts

    def windowless(state: State, end: Node) -> list[tuple[Node, Component]]:
        parts = parts_of(state, end)
        return [part for part in parts if part[1] is not SWA] or parts

    patch.setattr(load, "_parts", windowless)


@mutant("LOAD-4", "B25 sgl#30057")
def load_leaves_the_state_behind(patch: Overrides) -> None:
    """A load-back brings pages without the mamba state at their end."""
    parts_of = load._parts

    def stateless(state: State, end: Node) -> list[tuple[Node, Component]]:
        parts = parts_of(state, end)
        return [part for part in parts if part[1] is not MAMBA] or parts

    patch.setattr(load, "_parts", stateless)


@mutant("LOAD-6")
def quota_is_no_quota_at_its_limit(patch: Overrides) -> None:
    """A load-back of exactly as many pages as the quota allows is refused."""
    decide = load._decide

    def strict(state: State, needed: Counts, quota_pages: int | None) -> LoadDecision | None:
        lower = None if quota_pages is None else max(0, quota_pages - 1)
        return decide(state, needed, lower)

    patch.setattr(load, "_decide", strict)


@mutant("LOAD-6")
def what_is_worth_a_copy_is_counted_in_full_pages(patch: Overrides) -> None:
    """A load-back of window data alone counts as below the threshold of full pages."""
    decide = load._decide

    def full_only(state: State, needed: Counts, quota_pages: int | None) -> LoadDecision | None:
        if needed and needed.full == 0:
            return LoadDecision.BELOW_THRESHOLD
        return decide(state, needed, quota_pages)

    patch.setattr(load, "_decide", full_only)


@mutant("LOAD-7")
def load_counts_as_a_hit(patch: Overrides) -> None:
    """A load-back counts a hit at the nodes that it loads."""

    def counting(state: State, key: Key, quota_pages: int | None) -> LoadedBack:
        loaded = load.load_back(state, key, quota_pages)
        if loaded.transfer_id is not None:
            for node, _ in state.transfers[loaded.transfer_id].parts:
                node.hit_count += 1
        return loaded

    patch.setattr(cache, "load_back", counting)


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
