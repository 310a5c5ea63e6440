"""Adapters of stores by name: built-in ones, or any as `package.module:ADAPTER`."""

from __future__ import annotations

from difflib import get_close_matches

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.cache_names import object_named
from kvcanon.conformance.stores.adapter import StoreAdapter

STORES = {
    "memory": "kvcanon.conformance.stores.plain_stores:MEMORY",
    "files": "kvcanon.conformance.stores.plain_stores:FILES",
    "disk": "kvcanon.conformance.engines.disk.disk_store:DISK",
    "sglang-file": "kvcanon.conformance.engines.sglang.file_store:FILE",
    "vllm-fs": "kvcanon.conformance.engines.vllm.fs_tier:FS",
    "lmdb": "kvcanon.conformance.engines.key_value.lmdb_store:LMDB",
    "redis": "kvcanon.conformance.engines.key_value.redis_store:REDIS",
    "lmcache-disk": "kvcanon.conformance.engines.lmcache.local_disk:DISK",
    "mooncake": "kvcanon.conformance.engines.mooncake.object_store:MOONCAKE",
}
"""Short names; each is imported on use only, since not everyone has its libraries."""


def load_store(name: str) -> StoreAdapter:
    """The adapter of this name. Raises: UsageError."""
    if name not in STORES and ":" not in name:
        near = ", ".join(get_close_matches(name, STORES, n=3))
        known = f"near it is {near}" if near else f"name {', '.join(STORES)}"
        raise UsageError(f"no store {name!r}; {known}, or one as package.module:ADAPTER")
    found = object_named(STORES.get(name, name))
    if not isinstance(found, StoreAdapter):
        what = f"a {type(found).__name__}"
        raise UsageError(f"{name} is {what}; name a StoreAdapter (docs/stores.md has one)")
    return found
