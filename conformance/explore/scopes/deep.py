"""The deep scopes: the small ones with one slot or prompt more of everything, for a night.

A night's run need not exhaust a scope. It reports what it visited, and the next run resumes there.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.small import (
    FULL,
    FULL_SWA,
    MAMBA,
    NAMESPACES,
    WRITE_BACK,
    WRITE_THROUGH,
)
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

DEEP: tuple[Scope, ...] = (
    evolve(
        FULL,
        name="full_deep",
        words="full data alone: 6 slots, 6 prompts of 2 pages, 2 locks and a request",
        config=CacheConfig(device_slots=Counts(6)),
        fans=(3, 2),
    ),
    evolve(
        FULL_SWA,
        name="full_swa_deep",
        words="full and window data: 5 and 4 slots, 4 prompts of 3 pages, some without windows",
        config=CacheConfig(window_tokens=1, device_slots=Counts(5, 4)),
        fans=(2, 2, 1),
        bare_pages=(0, 1),
    ),
    evolve(
        WRITE_THROUGH,
        name="write_through_deep",
        words="write-through: 3 slots on either side, pages from storage, bytes that move early",
        config=evolve(WRITE_THROUGH.config, device_slots=Counts(3)),
        fetches=True,
        early_bytes=True,
    ),
    evolve(
        WRITE_BACK,
        name="write_back_deep",
        words="write-back: 3 slots on either side, 4 prompts of 2 pages, some from storage",
        config=evolve(WRITE_BACK.config, host_slots=Counts(3)),
        fans=(2, 2),
        fetches=True,
    ),
    evolve(
        MAMBA,
        name="mamba_deep",
        words="recurrent states: 5 full slots and 4 of states, 4 prompts of 2 pages, 2 locks",
        config=evolve(MAMBA.config, device_slots=Counts(5, 0, 4)),
        receipts=2,
    ),
    evolve(
        NAMESPACES,
        name="namespaces_deep",
        words="two namespaces: 5 slots, 4 prompts of 2 pages in each, 2 locks and a request",
        config=CacheConfig(device_slots=Counts(5)),
        fans=(2, 2),
    ),
    evolve(
        WRITE_THROUGH,
        name="full_swa_write_through_deep",
        words="window data on both sides under write-through: 3 and 2 slots, 2 prompts of 2 pages",
        config=evolve(
            WRITE_THROUGH.config,
            window_tokens=1,
            device_slots=Counts(3, 2),
            host_slots=Counts(3, 2),
        ),
    ),
    evolve(
        WRITE_BACK,
        name="full_swa_write_back_deep",
        words="window data on both sides under write-back: 3 and 2 slots, 2 prompts of 2 pages",
        config=evolve(
            WRITE_BACK.config,
            window_tokens=1,
            device_slots=Counts(3, 2),
            host_slots=Counts(2, 1),
        ),
    ),
)
