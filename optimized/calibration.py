"""Calibration: measures, on scratch pools, up to which size transfers are faster without the ring.

A kernel that accesses host memory directly starts at once, but is slower than a copy engine and
keeps multiprocessors busy. At which size the copy engine wins depends on the machine.

The measured time includes the enqueueing, which is most of it for a few pages. Transfers go through
the lane that is calibrated, so that only the scratch pools are allocated and freed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from time import perf_counter

import numpy as np
from attrs import evolve, frozen

from kvcanon.optimized.copy_plan import MIB
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.mover import Mover
from kvcanon.optimized.page_transfer import Move
from kvcanon.optimized.pools import Pools
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, Counts, WritePolicy

LARGEST_BYTES = 8 * MIB
"""Above this the copy engine has always won."""

REPEATS = 5


@frozen
class Race:
    """How long a transfer of one size took, without the ring and through it."""

    size_bytes: int
    direct_seconds: float
    staged_seconds: float


def calibrated_direct_bytes(mover: Mover) -> int:
    """The largest size at which skipping the ring is faster, for these pages on this machine."""
    return largest_won(races(mover.pools.layouts[FULL], mover))


def races(layout: PageLayout, mover: Mover) -> tuple[Race, ...]:
    """Time transfers with and without the ring, the largest first, on scratch pools."""
    pages = max(1, LARGEST_BYTES // layout.page_bytes)
    pages = min(pages, mover.lane.uploads.numbers // 2)
    slots = Counts(full=pages)
    config = CacheConfig(
        device_slots=slots, host_slots=slots, write_policy=WritePolicy.WRITE_THROUGH
    )
    scratch = Pools(config, {FULL: layout}, mover.gpu.device)
    # Pieces may have any size here, so that the ring is really used when it is timed.
    limits = evolve(mover.limits, least_piece_bytes=1)
    trial = Mover(scratch, mover.direction, limits, mover.gpu, lane=mover.lane)
    trial.warm_up()
    found = []
    while pages:
        size_bytes = pages * layout.page_bytes
        found.append(
            Race(
                size_bytes,
                seconds(trial, pages, direct_bytes=size_bytes),
                seconds(trial, pages, direct_bytes=0),
            )
        )
        pages //= 2
    scratch.close()
    return tuple(found)


def largest_won(races: Sequence[Race]) -> int:
    """The largest size up to which skipping the ring was always faster."""
    won = 0
    for race in sorted(races, key=lambda race: race.size_bytes):
        if race.direct_seconds > race.staged_seconds:
            break
        won = race.size_bytes
    return won


def seconds(mover: Mover, pages: int, direct_bytes: int) -> float:
    """Time a transfer of this many pages, whose slots are reversed on one side."""
    slots = np.arange(pages, dtype=np.int32)
    moves = (Move(FULL, slots[::-1].copy(), slots),)
    mover.direct_bytes = direct_bytes
    took = []
    # The first time is slower: it fills caches.
    for _ in range(REPEATS + 1):
        start = perf_counter()
        submitted = mover.gpu.runtime.event()
        submitted.record(mover.gpu.runtime.current_stream())
        mover.enqueue(mover.plan(moves), submitted, lambda _event: None).synchronize()
        took.append(perf_counter() - start)
    return median(took[1:])
