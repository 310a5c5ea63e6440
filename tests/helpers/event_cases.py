"""States and events that the tests of EVENT laws share."""

from __future__ import annotations

from attrs import evolve

from kvcanon.spec.config import CANON, CacheConfig, Profile, StoreMoment
from kvcanon.spec.operations import (
    Insert,
)
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import (
    Counts,
    Slots,
    WritePolicy,
    make_key,
)
from states import node, on, state_of

POOLS = Counts(full=16, swa=16, mamba=4)

CONFIG = CacheConfig(page_size=2, device_slots=POOLS)

THROUGH = evolve(CONFIG, host_slots=POOLS, write_policy=WritePolicy.WRITE_THROUGH)

BACK = evolve(CONFIG, host_slots=POOLS, write_policy=WritePolicy.WRITE_BACK)

MUTE = evolve(CONFIG, events=False)

ENQUEUED = Profile(load_back_announced=StoreMoment.ENQUEUED)

KEY = make_key([1, 2, 3, 4, 5, 6], 2)

UPPER, LOWER = (1, 2, 3, 4), (5, 6)


def state(
    config: CacheConfig = CONFIG,
    *,
    upper: tuple[object, object] | None = ((0, 1), None),
    lower: tuple[object, object] | None = ((2,), None),
    profile: Profile = CANON,
    **pending: int,
) -> Snapshot:
    """Node 1 (two pages) and node 2 below it (one page), each with device and host slots."""
    nodes = []
    if upper is not None:
        nodes.append(node(1, 0, UPPER, full=on(*upper), page_size=2))  # type: ignore[arg-type]
    if lower is not None:
        nodes.append(node(2, 1, LOWER, full=on(*lower, **pending), page_size=2))  # type: ignore[arg-type]
    return evolve(state_of(config, *nodes), profile=profile)


EMPTY = state(upper=None, lower=None)

INSERT = Insert(KEY, 0, Slots(full=(0, 1, 2)))
