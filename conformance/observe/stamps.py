"""Stamps: bytes that stand for the data of a page, so that wrong data can be told from right.

A stamp is of the page and all tokens before it, in its namespace; not of the slot, nor of the
request. A page that is computed again gets the same bytes, as from a model.
"""

from __future__ import annotations

from hashlib import shake_128

from kvcanon.spec.cache import Cache
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import Component, Key, Slots


def stamp(component: Component, page_name: bytes, size: int) -> bytes:
    """The bytes of one component's data for the page (or the state at its end) of this name."""
    return shake_128(component.encode() + b"\0" + page_name).digest(size)


def write_stamps(cache: Cache, key: Key, slots: Slots) -> None:
    """Write the data of the last pages of a key into the slots that were allocated for them."""
    names = page_hashes(namespace_seed(key.namespace), key.pages)
    for component, some in slots:
        for slot, name in zip(reversed(some), reversed(names), strict=False):
            cache.write(component, slot, stamp(component, name, cache.config.slot_bytes))
