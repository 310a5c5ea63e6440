"""The scopes with a store below the host tier, and as little as can be above it.

The store is late, fails in the middle of an order, and loses or changes any page at any time. The
cache is reset with it, as by a restart, and without it, for new weights.
"""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.explore.scope import Scope
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DISK, EXTERNAL, Counts

_WRITE_THROUGH = Scope(
    "store_write_through",
    "a store below a host tier with write-through: 2 slots on the device and 2 on the host, a "
    "prompt of 2 pages, one order at a time",
    CacheConfig(device_slots=Counts(2), host_slots=Counts(2), write_policy="write_through"),
    fans=(1, 1),
    receipts=0,
    in_flight=1,
    store=DISK,
)
_WRITE_BACK = evolve(
    _WRITE_THROUGH,
    name="store_write_back",
    words="a store below a host tier with write-back: 2 slots on either, a prompt of 2 pages, one "
    "order at a time",
    config=evolve(_WRITE_THROUGH.config, write_policy="write_back"),
    store=EXTERNAL,
)

STORED = (_WRITE_THROUGH, _WRITE_BACK)
