"""Limits: what SGLang's caches are not asked for, since they have no call for it."""

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
