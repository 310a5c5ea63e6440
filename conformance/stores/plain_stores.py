"""Adapters for the two plain stores of `reference.stores`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, field

from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround, StoreOffer, folder_ground
from kvcanon.reference.stores.file_store import FileStore
from kvcanon.reference.stores.memory_store import (
    DEADLINE_SECONDS,
    PAUSE_SECONDS,
    MemoryServer,
    MemoryStore,
)
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

FILE_ABILITIES = frozenset(
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
MEMORY_OFFER = StoreOffer(
    frozenset(
        {
            Ability.EVICTS,
            Ability.REMOVES,
            Ability.RUNS,
            Ability.POOLS,
            Ability.STALLS,
            Ability.NAMESPACES,
        }
    ),
    deadline_seconds=DEADLINE_SECONDS,
    recovers_seconds=PAUSE_SECONDS + 0.1,
    least_capacity_bytes=1,
)


@define
class MemoryGround:
    """A server in this process, of any class."""

    store_class: type[MemoryStore] = MemoryStore
    server_class: type[MemoryServer] = MemoryServer
    server: MemoryServer = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.server = self.server_class()

    def open(self, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
        """A client of the server, which takes over the capacity."""
        self.server.capacity_bytes = capacity_bytes
        return self.store_class(self.server, identity)

    def empty(self) -> None:
        """Start another server."""
        self.server.running.set()
        self.server = self.server_class()

    def used_bytes(self) -> int:
        """The bytes of all pages."""
        return sum(entry.size() for entry in self.server.pages.values())

    def files_of(self, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:  # noqa: ARG002
        """Return no files: the pages are in memory."""
        return ()

    def stall(self) -> None:
        """Stop the server."""
        self.server.running.clear()

    def resume(self) -> None:
        """Let it go on."""
        self.server.running.set()


def memory_adapter(
    name: str,
    store_class: type[MemoryStore] = MemoryStore,
    server_class: type[MemoryServer] = MemoryServer,
) -> StoreAdapter:
    """The adapter of a store in memory, or of one that is derived from it."""

    @contextmanager
    def ground(folder: Path) -> Iterator[StoreGround]:  # noqa: ARG001  # It needs none.
        yield MemoryGround(store_class, server_class)

    return StoreAdapter(name, ground, MEMORY_OFFER)


def file_adapter(name: str, store_class: type[FileStore] = FileStore) -> StoreAdapter:
    """The adapter of a store of files, or of one that is derived from it."""

    def opened(folder: Path, identity: StoreIdentity, _: int | None) -> PageStore:
        return store_class(folder, identity)

    def page_files(folder: Path, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
        return [store_class.place(folder, identity, key)]

    return StoreAdapter(name, folder_ground(opened, page_files), StoreOffer(FILE_ABILITIES))


MEMORY = memory_adapter("memory")
FILES = file_adapter("files")
