"""The names of pages in a database that takes any bytes as a key."""

from __future__ import annotations

from kvcanon.spec.stores.pages import PageKey, StoreIdentity, identity_digest, page_digest


def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
    """A name of 64 bytes."""
    return identity_digest(identity) + page_digest(key, identity.page_size)
