"""LMDB as a store of pages: one transaction a batch, forced to the disk at its end.

LMDB proves nothing about values, so that damage to its file is served, or ends the process. The
files are judged all the same: that is what a disk tier over it would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from attrs import define, evolve, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.engines.key_value.page_names import name_of
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreOffer, folder_ground
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

NAMES = InstalledNames("lmdb", "LMDB", "", {"open": "lmdb", "Error": "lmdb"})
NAMES.version()

MAP_BYTES = 64 << 20
"""The size of the file, all of which LMDB maps into memory; puts fail beyond it."""


@define(eq=False)
class LmdbPages:
    """A `PageStore` around an LMDB environment."""

    folder: Path
    identity: StoreIdentity
    database: EngineObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.database = NAMES["open"](str(self.folder), map_size=MAP_BYTES)

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Put all pages in one transaction: all of them are stored, or none."""
        try:
            with self.database.begin(write=True) as transaction:
                for key, content in pages:
                    transaction.put(self.name_of(key), content)
        except NAMES["Error"]:
            return [False] * len(pages)
        return [True] * len(pages)

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Copy values into buffers."""
        with self.database.begin(buffers=True) as transaction:
            return [_fill(buffer, transaction.get(self.name_of(key))) for key, buffer in pages]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Whether each key has a value."""
        with self.database.begin(buffers=True) as transaction:
            return [transaction.get(self.name_of(key)) is not None for key in keys]

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many pages from the first on have a value in every pool."""
        for at, key in enumerate(keys):
            if not all(self.exists([evolve(key, pool=pool) for pool in self.identity.pools])):
                return at
        return len(keys)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Delete keys."""
        with self.database.begin(write=True) as transaction:
            for key in keys:
                transaction.delete(self.name_of(key))

    def close(self) -> None:
        """Close the environment."""
        self.database.close()

    def name_of(self, key: PageKey) -> bytes:
        """The key of a page."""
        return name_of(self.identity, key)


def _fill(buffer: memoryview, value: memoryview | None) -> int | None:
    if value is None or len(value) > len(buffer):
        return None
    buffer[: len(value)] = value
    return len(value)


def _opened(folder: Path, identity: StoreIdentity, _: int | None) -> PageStore:
    return LmdbPages(folder, identity)


LMDB = StoreAdapter(
    f"lmdb {NAMES.version()}",
    folder_ground(_opened, kept=("lock.mdb",)),
    StoreOffer(
        frozenset(
            {
                Ability.DURABLE,
                Ability.SHARED,
                Ability.REMOVES,
                Ability.RUNS,
                Ability.POOLS,
                Ability.FILES,
                Ability.NAMESPACES,
            }
        )
    ),
)
