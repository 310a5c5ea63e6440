"""The small scopes: a few of each thing that a cache may have, exhausted in a minute or two.

They are the smallest scopes that exercise everything of one kind. The smallest scopes that show a
bug are in `founding`.
"""

from __future__ import annotations

from kvcanon.conformance.explore.scope import Scope
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

FULL = Scope(
    "full",
    "full data alone: 4 slots, 4 prompts of 3 pages, 2 locks and a request",
    CacheConfig(device_slots=Counts(4)),
    fans=(2, 2, 1),
    receipts=2,
    requests=1,
)
FULL_SWA = Scope(
    "full_swa",
    "full and window data: 4 and 3 slots, 2 prompts of 3 pages, a lock and a request",
    CacheConfig(window_tokens=1, device_slots=Counts(4, 3)),
    fans=(2, 1, 1),
    receipts=1,
    requests=1,
)
WRITE_THROUGH = Scope(
    "write_through",
    "a host tier with write-through: 2 slots on the device and 3 on the host, 2 prompts of 2 pages",
    CacheConfig(device_slots=Counts(2), host_slots=Counts(3), write_policy="write_through"),
    fans=(2, 1),
)
WRITE_BACK = Scope(
    "write_back",
    "a host tier with write-back: 3 slots on the device and 2 on the host, 2 prompts of 2 pages",
    CacheConfig(device_slots=Counts(3), host_slots=Counts(2), write_policy="write_back"),
    fans=(2, 1),
)
MAMBA = Scope(
    "mamba",
    "recurrent states: 4 full slots and 3 of states, 4 prompts of 2 pages, a lock and a request",
    CacheConfig(mamba=True, device_slots=Counts(4, 0, 3)),
    fans=(2, 2),
    requests=1,
)
NAMESPACES = Scope(
    "namespaces",
    "two namespaces: 4 slots, 2 prompts of 2 pages in each, 2 locks and a request",
    CacheConfig(device_slots=Counts(4)),
    fans=(2, 1),
    namespaces=(1, 2),
    receipts=2,
    requests=1,
)

SMALL = (FULL, FULL_SWA, WRITE_THROUGH, WRITE_BACK, MAMBA, NAMESPACES)
