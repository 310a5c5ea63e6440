"""Ways to keep pages on a disk, which `kvcanon lab bench store` writes and reads side by side.

Each stores a round of pages in batches, and reads them back after the page cache was told to
forget them. `raw` is the floor: adjacent slots of one file that was allocated before, written and
read past the page cache by four threads, with nothing to find them by and nothing to prove them.
"""

from __future__ import annotations

import mmap
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from attrs import define, field

from kvcanon.disk import DiskIdentity, DiskStore, PageGet, PagePut
from kvcanon.disk.parts import checksum_of

THREADS = 4
BATCH = 128
"""Pages that are handed over at a time, as SGLang does."""


class PageKeeper(Protocol):
    """A way to keep pages. Page `number` has the name `names[number]`."""

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Write a batch; it is on the disk afterwards, where the way promises that."""

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Read a batch into memory."""

    def forget(self) -> None:
        """Let the page cache forget all files."""

    def close(self) -> None:
        """Close all."""


def name_of(number: int) -> bytes:
    """The name of a page."""
    return number.to_bytes(32, "big")


def _forget(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fdatasync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(file)


@define(eq=False)
class RawFile:
    """A file of adjacent pages, past the page cache."""

    folder: Path
    page_bytes: int
    pages: int
    file: int = field(init=False)
    threads: ThreadPoolExecutor = field(factory=lambda: ThreadPoolExecutor(THREADS))

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        flags = os.O_RDWR | os.O_CREAT
        try:
            self.file = os.open(self.folder / "raw", flags | os.O_DIRECT)
        except OSError:
            self.file = os.open(self.folder / "raw", flags)
        os.posix_fallocate(self.file, 0, self.page_bytes * self.pages)

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Write pages, and force them once."""
        self._each(first, pages, os.pwritev)
        os.fdatasync(self.file)

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Read pages."""
        self._each(first, pages, os.preadv)

    def _each(
        self,
        first: int,
        pages: Sequence[memoryview],
        move: Callable[[int, list[memoryview], int], int],
    ) -> None:
        def one(at: int) -> None:
            if move(self.file, [pages[at]], (first + at) * self.page_bytes) != self.page_bytes:
                raise OSError("a page was not moved whole")

        list(self.threads.map(one, range(len(pages))))

    def forget(self) -> None:
        """Nothing is in the page cache."""

    def close(self) -> None:
        """Close the file."""
        self.threads.shutdown()
        os.close(self.file)


@define(eq=False)
class ProvedFile(RawFile):
    """The same with a checksum of each page: what proving alone costs."""

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Write pages, after their checksums were made."""
        for page in pages:
            checksum_of([page])
        super().write(first, pages)

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Read pages, and make their checksums."""
        super().read(first, pages)
        for page in pages:
            checksum_of([page])


@define(eq=False)
class DiskTier:
    """kvcanon's disk tier."""

    folder: Path
    page_bytes: int
    pages: int
    store: DiskStore = field(init=False)

    def __attrs_post_init__(self) -> None:
        capacity = 2 * self.page_bytes * self.pages + (256 << 20)
        self.store = DiskStore.open(self.folder, DiskIdentity({"bench": "store"}), capacity)

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Put pages."""
        done = self.store.put(
            [PagePut(name_of(first + at), (page,)) for at, page in enumerate(pages)]
        )
        if not all(done):
            raise OSError("the store refused a page")

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Get pages."""
        got = self.store.get(
            [PageGet(name_of(first + at), (page,)) for at, page in enumerate(pages)]
        )
        if got != [self.page_bytes] * len(pages):
            raise OSError("the store missed a page")

    def forget(self) -> None:
        """Nothing is in the page cache, where the file system lets it be passed."""
        if not self.store.parts.slab.direct:
            _forget(self.store.parts.slab.path)

    def close(self) -> None:
        """Close the store."""
        self.store.close()


@define(eq=False)
class FileAPage:
    """A file for each page, as SGLang's `file` store: through the page cache, in one thread."""

    folder: Path
    page_bytes: int
    pages: int

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def path(self, number: int) -> Path:
        """The file of a page."""
        return self.folder / f"{name_of(number).hex()}.bin"

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Write each page to a file that then takes its name; nothing is forced to the disk."""
        for at, page in enumerate(pages):
            path = self.path(first + at)
            unfinished = path.with_suffix(".tmp")
            unfinished.write_bytes(page)
            unfinished.replace(path)

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Read each file."""
        for at, page in enumerate(pages):
            with self.path(first + at).open("rb", buffering=0) as file:
                file.readinto(page)

    def forget(self) -> None:
        """Forget each file."""
        for path in self.folder.iterdir():
            _forget(path)

    def close(self) -> None:
        """No file is open."""


@define(eq=False)
class DurableFileAPage(FileAPage):
    """The same, with each file and the folder forced to the disk before a batch is done."""

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Write each page to a file, force it, and let it take its name."""
        for at, page in enumerate(pages):
            path = self.path(first + at)
            unfinished = path.with_suffix(".tmp")
            with unfinished.open("wb", buffering=0) as file:
                file.write(page)
                os.fdatasync(file.fileno())
            unfinished.replace(path)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


@define(eq=False)
class Lmdb:
    """LMDB, one transaction a batch, forced to the disk."""

    folder: Path
    page_bytes: int
    pages: int
    database: Any = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        size = 2 * self.page_bytes * self.pages + (256 << 20)
        self.database = import_module("lmdb").open(str(self.folder), map_size=size)

    def write(self, first: int, pages: Sequence[memoryview]) -> None:
        """Put pages in one transaction."""
        with self.database.begin(write=True) as transaction:
            for at, page in enumerate(pages):
                transaction.put(name_of(first + at), page)

    def read(self, first: int, pages: Sequence[memoryview]) -> None:
        """Copy values out of the map."""
        with self.database.begin(buffers=True) as transaction:
            for at, page in enumerate(pages):
                page[:] = transaction.get(name_of(first + at))

    def forget(self) -> None:
        """Forget the file."""
        _forget(self.folder / "data.mdb")

    def close(self) -> None:
        """Close the map."""
        self.database.close()


MakeKeeper = Callable[[Path, int, int], PageKeeper]
"""Makes a way, in a folder, for so many bytes a page and so many pages."""
RAW = "raw"
CONTESTANTS: dict[str, MakeKeeper] = {
    RAW: RawFile,
    "raw with checksums": ProvedFile,
    "disk": DiskTier,
    "SGLang's way": FileAPage,
    "file a page, forced": DurableFileAPage,
    **({"lmdb": Lmdb} if find_spec("lmdb") else {}),
}
"""In the order in which each round begins; the next round begins with the next."""


def aligned_pages(page_bytes: int, count: int) -> list[memoryview]:
    """Memory for pages as an engine's host pool has it, filled so that no disk can compress it."""
    memory = mmap.mmap(-1, page_bytes * count)
    view = memoryview(memory)
    for at in range(0, len(view), 1 << 20):
        view[at : at + (1 << 20)] = os.urandom(min(1 << 20, len(view) - at))
    return [view[at : at + page_bytes] for at in range(0, len(view), page_bytes)]


def removed(folder: Path) -> None:
    """Remove what a contestant wrote."""
    shutil.rmtree(folder, ignore_errors=True)
