"""Caches for a replay, which need every method of the protocol in spec/cache.py.

`check` accepts a cache that lacks methods, and judges those that it has. A replay does not.
"""

from __future__ import annotations

from typing import cast

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig

PROTOCOL = tuple(name for name in vars(Cache) if not name.startswith("_"))
"""The methods that a cache must have."""


def make_cache(name: str, config: CacheConfig) -> Cache:
    """Make an empty cache by its name. Raises: UsageError."""
    adapter = load_adapter(name)
    try:
        made = adapter.make(config)
    except Exception as error:
        raise UsageError(f"{name} made no cache: {describe_exception(error)}") from error
    missing = [method for method in PROTOCOL if not hasattr(made, method)]
    if missing:
        kind = type(made).__name__
        raise UsageError(
            f"{name} made no cache: its {kind} lacks {', '.join(missing)} of spec/cache.py"
        )
    return cast("Cache", made)
