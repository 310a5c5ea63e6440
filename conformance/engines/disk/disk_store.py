"""kvcanon's disk tier as a store of pages, with names and identities as the canon makes them.

Segments are small, and so is the slab then: damage and full disks meet pages, not empty room.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from attrs import asdict, define, evolve

from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer, folder_ground
from kvcanon.disk import DiskIdentity, DiskStore, PageGet, PagePut
from kvcanon.disk.folders import FACTS, LOCK
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity, page_digest, parent_of

logging.getLogger("kvcanon.disk").setLevel(logging.CRITICAL)  # It says what damage it finds.

SEGMENT_BYTES = 9 * 4096
"""A label and eight blocks: two slots of a page of 12 KiB."""
SLACK_BYTES = 160 << 10
"""The journal twice, and a segment for each size of slots that is not full."""

OFFER = StoreOffer(
    frozenset(
        {
            Ability.DURABLE,
            Ability.EVICTS,
            Ability.REMOVES,
            Ability.RUNS,
            Ability.POOLS,
            Ability.FILES,
            Ability.NAMESPACES,
        }
    ),
    slack_bytes=SLACK_BYTES,
)


@define(eq=False)
class DiskPages:
    """A `PageStore` around a `DiskStore`. A page with all its pools has one name."""

    store: DiskStore
    identity: StoreIdentity

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Put pages, each with the name of its parent."""
        return self.store.put(
            [
                PagePut(
                    self.name_of(key),
                    (memoryview(content),),
                    self.parent_of(key),
                    self.pool_of(key),
                )
                for key, content in pages
            ]
        )

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Get pages into their buffers."""
        return self.store.get(
            [PageGet(self.name_of(key), (buffer,), self.pool_of(key)) for key, buffer in pages]
        )

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Ask for each page."""
        return self.store.exists([(self.name_of(key), self.pool_of(key)) for key in keys])

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """Count the pages that are there in all pools."""
        return self.store.leading_run([self.name_of(key) for key in keys])

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Remove pages."""
        self.store.remove([(self.name_of(key), self.pool_of(key)) for key in keys])

    def close(self) -> None:
        """Close the store."""
        self.store.close()

    def name_of(self, key: PageKey) -> bytes:
        """The name of a page in all pools."""
        return page_digest(evolve(key, pool=""), self.identity.page_size)

    def parent_of(self, key: PageKey) -> bytes | None:
        """The name of the page before it."""
        parent = parent_of(key, self.identity.page_size)
        return None if parent is None else self.name_of(parent)

    def pool_of(self, key: PageKey) -> int:
        """The number of a pool."""
        return self.identity.pools.index(key.pool)


def disk_identity(identity: StoreIdentity) -> DiskIdentity:
    """The identity as facts, and the place among the ranks."""
    facts = {name: repr(value) for name, value in asdict(identity).items()}
    place = f"rank{identity.rank}of{identity.ranks}"
    return DiskIdentity({name: facts[name] for name in facts if name != "rank"}, place)


def disk_adapter(name: str, store_class: type[DiskStore] = DiskStore) -> StoreAdapter:
    """The adapter of the disk tier, or of one that is derived from it."""

    def opened(folder: Path, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
        store = store_class.open(
            folder,
            disk_identity(identity),
            capacity_bytes,
            pools=len(identity.pools),
            segment_bytes=SEGMENT_BYTES,
        )
        return DiskPages(store, identity)

    return StoreAdapter(name, folder_ground(opened, kept=(LOCK, FACTS)), OFFER)


DISK = disk_adapter("disk")
