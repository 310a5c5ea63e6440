"""Limits: calls that the judge does not make, since SGLang's caches have no API for them."""

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
