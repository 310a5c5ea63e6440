"""Limits: calls and pools that the judge does not try on SGLang's caches."""

from __future__ import annotations

from kvcanon.spec.config import Limit

LIMITS = frozenset(
    {
        Limit.NODE_HANDLES,
        Limit.NO_QUOTA,
        Limit.ONE_LOAD,
        Limit.PAIRS_TOGETHER,
        Limit.STATE_WITH_INSERT,
    }
)
"""Calls for which SGLang's caches have no API."""

MOST_SLOTS = 1_500
"""Full slots of the largest pool. SGLang counts in tokens: on a CPU each free of a pool of 66,200
pages of 64 tokens takes up to a second."""
