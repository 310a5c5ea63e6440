"""The wide scopes: each adds one thing that the small scopes leave out.

Windows of two pages, pages of two tokens, bigrams, two requests at one time, other eviction
policies, prefetches from storage, bytes that move early, window data and mamba states with a host
tier.

Only the group is wide. Each scope is narrow, and no scope combines the additions of two others.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.scopes.small import FULL, FULL_SWA, WRITE_BACK, WRITE_THROUGH
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

_WIDE_WINDOW = Scope(
    "wide_window",
    "a window of 2 pages: 5 full and 4 window slots, 2 prompts of 4 pages, a lock",
    CacheConfig(window_tokens=2, device_slots=Counts(5, 4)),
    fans=(1, 2, 1, 1),
)
_WINDOWS_WRITE_THROUGH = evolve(
    WRITE_THROUGH,
    name="windows_write_through",
    words="windows on both sides under write-through: 2 full and 2 window slots on either, 2 "
    "prompts of 2 pages",
    config=evolve(
        WRITE_THROUGH.config, window_tokens=1, device_slots=Counts(2, 2), host_slots=Counts(2, 2)
    ),
)
_STATES_WRITE_THROUGH = evolve(
    WRITE_THROUGH,
    name="states_write_through",
    words="states on both sides under write-through: 2 full slots and 2 of states on either, 2 "
    "prompts of 2 pages",
    config=evolve(
        WRITE_THROUGH.config, mamba=True, device_slots=Counts(2, 0, 2), host_slots=Counts(2, 0, 2)
    ),
)

WIDE: tuple[Scope, ...] = (
    Scope(
        "requests",
        "two requests at once: 5 slots, 2 prompts of 3 pages, a lock",
        CacheConfig(device_slots=Counts(5)),
        fans=(2, 1, 1),
        requests=2,
    ),
    _WIDE_WINDOW,
    evolve(
        _WIDE_WINDOW,
        name="wide_page",
        words="pages of 2 tokens and a window of 3: 5 full and 4 window slots, 2 prompts of 4 "
        "pages, a lock",
        config=CacheConfig(page_size=2, window_tokens=3, device_slots=Counts(5, 4)),
    ),
    Scope(
        "bare_pages",
        "pages that come without window data, or are there already: 4 full and 3 window slots, 2 "
        "prompts of 3 pages, a lock",
        CacheConfig(window_tokens=1, device_slots=Counts(4, 3)),
        fans=(2, 1, 1),
        bare_pages=(0, 1, 2),
        from_first=True,
    ),
    Scope(
        "windows_and_states",
        "windows beside recurrent states: 4 full and 3 window slots and 2 of states, 2 prompts of "
        "2 pages, a lock and a request",
        CacheConfig(window_tokens=1, mamba=True, device_slots=Counts(4, 3, 2)),
        fans=(2, 1),
        requests=1,
    ),
    evolve(
        FULL_SWA,
        name="bigrams",
        words="keys of bigrams: 4 full and 3 window slots, 2 prompts of 3 pages, a lock",
        config=CacheConfig(bigram=True, window_tokens=1, device_slots=Counts(4, 3)),
        requests=0,
    ),
    *(
        evolve(
            FULL,
            name=policy,
            words=f"{policy}: 4 slots, 4 prompts of 3 pages, a lock and a request",
            config=CacheConfig(device_slots=Counts(4), eviction_policy=policy),
            receipts=1,
        )
        for policy in ("fifo", "filo", "mru", "slru")
    ),
    evolve(
        WRITE_THROUGH,
        name="write_through_wide",
        words="write-through: 2 slots on the device and 3 on the host, 4 prompts of 2 pages, a "
        "lock",
        fans=(2, 2),
    ),
    evolve(
        WRITE_BACK,
        name="write_back_wide",
        words="write-back: 3 slots on either side, 2 prompts of 2 pages, a lock",
        config=evolve(WRITE_BACK.config, host_slots=Counts(3)),
    ),
    evolve(
        WRITE_THROUGH,
        name="selective",
        words="write-through after the second hit: 3 slots on either side, 2 prompts of 2 pages",
        config=CacheConfig(
            device_slots=Counts(3), host_slots=Counts(3), write_policy="write_through_selective"
        ),
        receipts=0,
    ),
    evolve(
        WRITE_THROUGH,
        name="early_bytes",
        words="write-through, bytes that move before a copy is acknowledged: 2 slots on the device "
        "and 3 on the host, 2 prompts of 2 pages, a lock",
        early_bytes=True,
    ),
    evolve(
        WRITE_BACK,
        name="storage",
        words="pages from storage under write-back: 2 slots on the device and 3 on the host, 2 "
        "prompts of 2 pages",
        config=CacheConfig(device_slots=Counts(2), host_slots=Counts(3), write_policy="write_back"),
        fetches=True,
        receipts=0,
    ),
    _WINDOWS_WRITE_THROUGH,
    evolve(
        _WINDOWS_WRITE_THROUGH,
        name="windows_write_back",
        words="windows on both sides under write-back: 2 full and 2 window slots on either, 2 "
        "prompts of 2 pages",
        config=evolve(_WINDOWS_WRITE_THROUGH.config, write_policy="write_back"),
    ),
    _STATES_WRITE_THROUGH,
    evolve(
        _STATES_WRITE_THROUGH,
        name="states_write_back",
        words="states on both sides under write-back: 2 full slots and 2 of states on either, 2 "
        "prompts of 2 pages",
        config=evolve(_STATES_WRITE_THROUGH.config, write_policy="write_back"),
    ),
)
