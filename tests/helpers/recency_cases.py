"""States that the tests of REC laws share.

The path of `KEY` is four nodes of one page each; node 9 is another prompt.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import evolve

from kvcanon.spec.config import CacheConfig, Profile
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    Insert,
    Inserted,
    Match,
    Matched,
    Operation,
    Outcome,
)
from kvcanon.spec.snapshot import ComponentState, Pool, Snapshot
from kvcanon.spec.types import (
    CPU,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    NodeId,
    Slot,
    Slots,
    WritePolicy,
    make_key,
)
from states import ROOT, node, on, state_of
from telling import ask, step

POOLS = Counts(full=32, swa=32, mamba=8)


def config(
    window_tokens: int | None = 2,
    *,
    page_size: int = 1,
    mamba: bool = False,
    write: WritePolicy = WritePolicy.WRITE_THROUGH,
    evict: EvictionPolicy = EvictionPolicy.LRU,
) -> CacheConfig:
    """A cache with a host tier."""
    return CacheConfig(
        page_size=page_size,
        window_tokens=window_tokens,
        mamba=mamba,
        device_slots=POOLS,
        host_slots=POOLS,
        write_policy=write,
        eviction_policy=evict,
    )


def ordered(state: Snapshot, *order: NodeId, component: Component = SWA) -> Snapshot:
    """A state with these LRU orders, on both media."""
    named: Mapping[Pool, tuple[NodeId, ...]] = {(component, m): order for m in (GPU, CPU)}
    return evolve(state, recency={**state.recency, **named})


KEY = make_key([1, 2, 3, 4], 1)


def prompt(
    *used: NodeId,
    at: int = 20,
    components: tuple[Component, ...] = (SWA,),
    config: CacheConfig | None = None,
    profile: Profile | None = None,
) -> Snapshot:
    """All nodes, on the device and on the host, those in `used` last accessed at one tick."""
    chosen = config if config is not None else CONFIG
    nodes = []
    for node_id, parent_id, token in ((1, 0, 1), (2, 1, 2), (3, 2, 3), (4, 3, 4), (9, 0, 7)):
        data = on([node_id], [node_id])
        nodes.append(
            node(
                node_id,
                parent_id,
                [token] * chosen.page_size,
                full=data,
                swa=data if SWA in components else None,
                mamba=data if MAMBA in components else None,
                page_size=chosen.page_size,
                last_access=at if node_id in used else node_id,
            )
        )
    state = state_of(chosen, *nodes)
    return state if profile is None else evolve(state, profile=profile)


CONFIG = config()

BEFORE = ordered(prompt(), 1, 2, 3, 4, 9)


def match(prefix_pages: int = 4) -> tuple[Operation, Outcome]:
    """A match of `KEY` with a prefix hit of this many pages."""
    return Match(KEY), Matched(prefix_pages, prefix_pages, Slots())


def insert() -> tuple[Operation, Outcome]:
    """An insert of `KEY`."""
    return Insert(KEY, 4, Slots()), Inserted(4, Counts(), Counts())


USES = {"match": match(), "insert": insert()}


def use(
    law_id: str, before: Snapshot, after: Snapshot, how: tuple[Operation, Outcome] = USES["match"]
) -> list[str]:
    """What a law reports of a match or an insert."""
    operation, outcome = how
    return ask(law_id, step(before, operation, after, outcome))


def leaves(
    *there: NodeId,
    medium: Medium = GPU,
    chosen: CacheConfig = CONFIG,
    locked: tuple[NodeId, ...] = (),
    below: int | None = None,
) -> Snapshot:
    """Leaves on a medium; a higher id means more recent use and fewer hits.

    With `below`, leaf 1 has a child on the host alone, with that many lock refs.
    """
    nodes = [
        node(
            node_id,
            ROOT,
            [node_id],
            full=slot_on(medium, node_id, lock_refs=int(node_id in locked)),
            hit_count=4 - node_id,
            last_access=10 + node_id,
        )
        for node_id in there
    ]
    if below is not None:
        nodes.append(node(7, 1, [7], full=on(None, [7], lock_refs=below)))
    return state_of(chosen, *nodes)


def slot_on(medium: Medium, slot: Slot, *, lock_refs: int = 0) -> ComponentState:
    """One slot on a medium."""
    device, host = ([slot], None) if medium is GPU else (None, [slot])
    return on(device, host, lock_refs=lock_refs)


def evict(before: Snapshot, after: Snapshot, operation: Operation | None = None) -> list[str]:
    """What the law reports of an eviction of full slots, or another."""
    asked = operation or Evict(Counts(full=1))
    return ask("REC-3", step(before, asked, after, Evicted(Counts())))
