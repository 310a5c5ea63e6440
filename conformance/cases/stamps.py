"""Stamps: bytes that stand for the KV of a page, so that a test can tell wrong data from right.

A stamp depends on the page, all tokens before it and the namespace; not on the slot or the request.
A page that is computed again gets the same bytes, as from a model.
"""

from __future__ import annotations

from hashlib import shake_128

from kvcanon.spec.cache import Cache
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Component, Key, Slots


def stamp(component: Component, page_name: bytes, size: int) -> bytes:
    """Return the bytes of one component's data for the page with this hash."""
    return shake_128(component.encode() + b"\0" + page_name).digest(size)


def write_stamps(cache: Cache, key: Key, slots: Slots) -> None:
    """Write the stamps of the last pages of a key into the slots allocated for them."""
    names = page_hashes(namespace_seed(key.namespace), key.pages)
    for component, some in slots:
        for slot, name in zip(reversed(some), reversed(names), strict=False):
            cache.write(component, slot, stamp(component, name, cache.config.slot_bytes))
