"""What a store has to be judged: a way to open it, what it can do, and the ground it stands on.

The *ground* of a store is what outlives an open one: a folder, or a server. The judge makes one
ground for a check, empties it before each case, and asks it for the faults that it can bring about.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeAlias

from attrs import define, field, frozen

from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity


class StoreGround(Protocol):
    """What outlives an open store. What a store does not offer is never called."""

    def open(self, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
        """Open the store. With `EVICTS` it keeps to the capacity, if one is given."""

    def empty(self) -> None:
        """Forget all pages. No store is open."""

    def used_bytes(self) -> int | None:
        """The bytes that all pages take; None if they are not known."""

    def files_of(self, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
        """The files that hold a page, for `FILES`; those of all pages if they share them."""

    def stall(self) -> None:
        """Stop the server or the medium, for `STALLS`: calls get no answer."""

    def resume(self) -> None:
        """Let it go on."""


@frozen
class StoreOffer:
    """What a store offers: what it cannot do is not tried, and the report says so."""

    abilities: frozenset[Ability] = frozenset()
    deadline_seconds: float | None = None
    """No call takes longer, also while the server is stopped."""
    recovers_seconds: float = 0.5
    """How long after its server has come back the store is used again, at the latest."""
    least_capacity_bytes: int = 65_536
    """The smallest capacity that is drawn, for `EVICTS`."""
    slack_bytes: int = 0
    """What is added to a capacity that is drawn, since the store needs it for itself."""
    identity_fields: tuple[str, ...] = (
        "weights",
        "config",
        "kv_dtype",
        "layout",
        "page_size",
        "rank",
        "ranks",
    )
    """The fields of the identity that are drawn. Leave out what the store has no notion of."""
    page_bytes: tuple[int, ...] = (64, 2048, 12_288)
    """Sizes of a page of keys and values, at two bytes a value."""


MakeGround: TypeAlias = Callable[[Path], AbstractContextManager[StoreGround]]
"""Makes the ground of a store; the folder is the judge's, and is there for it alone."""


@frozen
class StoreAdapter:
    """A store that can be judged."""

    name: str
    ground: MakeGround
    offer: StoreOffer = StoreOffer()


@define
class FolderGround:
    """A ground that is a folder of files. `open_store` gets the folder and the identity."""

    folder: Path
    open_store: Callable[[Path, StoreIdentity, int | None], PageStore]
    page_files: Callable[[Path, StoreIdentity, PageKey], Sequence[Path]] | None = None
    """The files of a page; None if pages share all files."""
    kept: tuple[str, ...] = field(default=())
    """Files that are not damaged: locks, for example."""

    def open(self, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:
        """Open the store in the folder."""
        return self.open_store(self.folder, identity, capacity_bytes)

    def empty(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def used_bytes(self) -> int:
        """The sizes of all files."""
        return sum(path.stat().st_size for path in self._files())

    def files_of(self, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:
        """The files of a page that are there."""
        if self.page_files is not None:
            return [path for path in self.page_files(self.folder, identity, key) if path.is_file()]
        return [path for path in self._files() if path.name not in self.kept]

    def stall(self) -> None:
        """A folder does not stall."""

    def resume(self) -> None:
        """A folder does not stall."""

    def _files(self) -> list[Path]:
        return sorted(
            Path(folder) / name for folder, _, names in os.walk(self.folder) for name in names
        )


def folder_ground(
    open_store: Callable[[Path, StoreIdentity, int | None], PageStore],
    page_files: Callable[[Path, StoreIdentity, PageKey], Sequence[Path]] | None = None,
    kept: tuple[str, ...] = (),
) -> MakeGround:
    """The `ground` of an adapter whose store is a folder of files."""

    @contextmanager
    def ground(folder: Path) -> Iterator[StoreGround]:
        yield FolderGround(folder / "store", open_store, page_files, kept)

    return ground
