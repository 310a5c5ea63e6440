"""Caches that have no name to import, such as closures of a test: this process lends them one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kvcanon.conformance.check.campaign import forget_searches
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import LOADED


@contextmanager
def local_caches(*adapters: Adapter) -> Iterator[None]:
    """Let a check in this process load adapters by their own names. Raises: UsageError.

    A cache with the same name is not found meanwhile.
    """
    names = [adapter.name for adapter in adapters]
    if len(set(names)) < len(names):
        raise UsageError(f"two caches are named {names[0]!r}; give their adapters different names")
    earlier = dict(LOADED)
    LOADED.update(zip(names, adapters, strict=True))
    try:
        yield
    finally:
        LOADED.clear()
        LOADED.update(earlier)
        forget_searches()
