"""A store of files, one for each page and pool, which proves what it reads.

A file begins with a header: the digest of its own name, the length of the page and a checksum. A
page is written to a file with a name of its own, forced to the disk and then renamed, so that a
name always stands for a whole file. What does not prove to be the page is a miss, and is removed.

The name of a file is a digest of identity and page: the same in every process, for ever.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path

from attrs import define, evolve, field

from kvcanon.spec.stores.pages import PageKey, StoreIdentity, identity_digest, page_digest

DIGEST_BYTES = 32
LENGTH_BYTES = 8
HEADER_BYTES = 2 * DIGEST_BYTES + LENGTH_BYTES
_NUMBERS = count()
"""Numbers for unfinished files: with the id of the process no two writers share one."""


@define(eq=False)
class FileStore:
    """A `PageStore` in a folder, which any number of processes may open."""

    folder: Path
    identity: StoreIdentity
    home: Path = field(init=False)
    """The folder of the identity."""

    @classmethod
    def place(cls, folder: Path, identity: StoreIdentity, key: PageKey) -> Path:
        """The file of a page in a folder."""
        return folder / cls.home_name(identity) / f"{cls.name_of(identity, key).hex()}.page"

    def __attrs_post_init__(self) -> None:
        self.home = self.folder / self.home_name(self.identity)
        if self.home.exists() and not self.home.is_dir():
            self.home.unlink()
        self.home.mkdir(parents=True, exist_ok=True)
        for unfinished in self.home.glob("*.tmp"):
            if not _is_running(unfinished.name.split(".")[1]):
                unfinished.unlink(missing_ok=True)

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Write pages, each to a file that then takes its name."""
        done = [self.put_one(key, content) for key, content in pages]
        _force(self.home)
        return done

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Read pages; one that is damaged is removed."""
        return [self.get_one(key, buffer) for key, buffer in pages]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Whether the file of each page is there, with the length that its header says."""
        return [self.has(key) for key in keys]

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many pages from the first on have a file in every pool."""
        for at, key in enumerate(keys):
            if not all(self.has(evolve(key, pool=pool)) for pool in self.identity.pools):
                return at
        return len(keys)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """Remove the files of pages."""
        for key in keys:
            self.file_of(key).unlink(missing_ok=True)
        _force(self.home)

    def close(self) -> None:
        """No file stays open."""

    @staticmethod
    def home_name(identity: StoreIdentity) -> str:
        """The name of the folder of an identity."""
        return identity_digest(identity).hex()

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        """The name of a page."""
        return page_digest(key, identity.page_size)

    def file_of(self, key: PageKey) -> Path:
        """The file of a page."""
        return self.place(self.folder, self.identity, key)

    def header_of(self, key: PageKey, content: bytes) -> bytes:
        """The header of the file of a page."""
        name = hashlib.sha256(
            identity_digest(self.identity) + self.name_of(self.identity, key)
        ).digest()
        length = len(content).to_bytes(LENGTH_BYTES, "little")
        return name + length + hashlib.sha256(content).digest()

    def put_one(self, key: PageKey, content: bytes) -> bool:
        """Write one page. False if the disk does not take it."""
        unfinished = self.unfinished(key)
        try:
            with unfinished.open("wb") as file:
                file.write(self.header_of(key, content))
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.file_of(key))
        except OSError:
            unfinished.unlink(missing_ok=True)
            return False
        return True

    def unfinished(self, key: PageKey) -> Path:
        """A name for the file of a page that is being written."""
        file = self.file_of(key)
        return file.with_name(f"{file.stem}.{os.getpid()}.{next(_NUMBERS)}.tmp")

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        """Read one page into its buffer; None if it is not there, or is not what was put."""
        try:
            data = self.file_of(key).read_bytes()
        except OSError:
            return None
        content = data[HEADER_BYTES:]
        if data[:HEADER_BYTES] != self.header_of(key, content):
            self.file_of(key).unlink(missing_ok=True)
            return None
        if len(content) > len(buffer):
            return None
        buffer[: len(content)] = content
        return len(content)

    def has(self, key: PageKey) -> bool:
        """Whether the file of a page is there, as long as its header says."""
        try:
            with self.file_of(key).open("rb") as file:
                header = file.read(HEADER_BYTES)
                size = os.fstat(file.fileno()).st_size
        except OSError:
            return False
        length = int.from_bytes(header[DIGEST_BYTES : DIGEST_BYTES + LENGTH_BYTES], "little")
        return size == HEADER_BYTES + length and len(header) == HEADER_BYTES


def _force(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _is_running(process: str) -> bool:
    """Whether there is a process with this id."""
    try:
        os.kill(int(process), 0)
    except (OSError, ValueError):
        return False
    return True
