"""A cache for a replay, which needs all that the protocol has.

What readers get wrong: `check` judges a cache that lacks operations by those that it has. A replay
is an engine at work, and nothing is filled in for it.
"""

from __future__ import annotations

from typing import cast

from kvcanon.conformance.adapters.naming import adapter_named
from kvcanon.conformance.faults import Fault, what_was_raised
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig

PROTOCOL = tuple(name for name in vars(Cache) if not name.startswith("_"))
"""What a cache must have."""


def make_cache(name: str, config: CacheConfig) -> Cache:
    """An empty cache of this name. Raises: Fault."""
    adapter = adapter_named(name)
    try:
        made = adapter.make(config)
    except Exception as error:
        raise Fault(f"{name} made no cache: {what_was_raised(error)}") from error
    missing = [method for method in PROTOCOL if not hasattr(made, method)]
    if missing:
        kind = type(made).__name__
        raise Fault(f"{name} made no cache: its {kind} lacks {', '.join(missing)} of spec/cache.py")
    return cast("Cache", made)
