"""Faults about bytes and names: laws STORE-1 to STORE-6, and those of crashes, writers, removal."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from kvcanon.lab.stores.fault import breaks
from kvcanon.reference.stores.file_store import HEADER_BYTES, FileStore
from kvcanon.reference.stores.memory_store import MemoryStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity, identity_digest, page_digest
from kvcanon.spec.types import Namespace


class _Unproved(FileStore):
    """A store that reads what is in a file, whatever it is."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        try:
            content = self.file_of(key).read_bytes()[HEADER_BYTES:]
        except OSError:
            return None
        if not content or len(content) > len(buffer):
            return None
        buffer[: len(content)] = content
        return len(content)


@breaks("STORE-1")
class BufferDecides(FileStore):
    """A get gives as many bytes as its buffer holds, of a larger page."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        whole = bytearray(1 << 20)
        length = super().get_one(key, memoryview(whole))
        if length is None:
            return None
        least = min(length, len(buffer))
        buffer[:least] = whole[:least]
        return least


@breaks("STORE-1")
class AnswersInReverse(MemoryStore):
    """A get of four or more pages gives them in the reverse order."""

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        keys = [key for key, _ in pages]
        turned = keys[::-1] if len(keys) > 3 else keys
        buffers = [buffer for _, buffer in pages]
        return super().get(list(zip(turned, buffers, strict=True)))


@breaks("STORE-1")
class LastByteMissing(MemoryStore):
    """A get leaves out the last byte of a page."""

    def fill(self, buffer: memoryview, content: bytes | None) -> int | None:
        return super().fill(buffer, content[:-1] if content else None)


@breaks("STORE-2")
class NoChecksum(_Unproved):
    """A page is not verified when it is read."""


@breaks("STORE-2")
class ChecksumOfBeginning(FileStore):
    """The checksum is that of the first half of a page."""

    def header_of(self, key: PageKey, content: bytes) -> bytes:
        whole = super().header_of(key, content)
        return whole[:-32] + hashlib.sha256(content[: len(content) // 2]).digest()


@breaks("STORE-2")
class LengthOfFile(FileStore):
    """The header does not say how long the page is, and its checksum is of what is in the file."""

    def header_of(self, key: PageKey, content: bytes) -> bytes:
        return super().header_of(key, b"")


@breaks("STORE-3")
class FailedPutStays(_Unproved):
    """A put that failed half-way leaves its file under the name of the page."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        try:
            with self.file_of(key).open("wb", buffering=0) as file:
                file.write(self.header_of(key, content))
                return file.write(content) == len(content)
        except OSError:
            return False


@breaks("STORE-3")
class RemovedBeforeWritten(FileStore):
    """A put removes the old page before it writes the new one."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        self.file_of(key).unlink(missing_ok=True)
        return super().put_one(key, content)


@breaks("STORE-4")
class ThereIsThere(FileStore):
    """A put of a page that has a file answers yes and writes nothing; a get removes none."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        return self.file_of(key).exists() or super().put_one(key, content)

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        path = self.file_of(key)
        before = path.read_bytes() if path.exists() else None
        length = super().get_one(key, buffer)
        if before is not None and not path.exists():
            path.write_bytes(before)
        return length


@breaks("STORE-4")
class BadForEver(FileStore):
    """A page that was found damaged once is a miss for ever."""

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        mark = self.file_of(key).with_suffix(".bad")
        had = self.file_of(key).exists()
        length = super().get_one(key, buffer)
        if had and not self.file_of(key).exists():
            mark.touch()
        return None if mark.exists() else length


class _Blind(FileStore):
    """A store whose names leave out a field of the identity."""

    blind_to: str

    @classmethod
    def seen(cls, identity: StoreIdentity) -> StoreIdentity:
        return evolve(identity, **{cls.blind_to: getattr(StoreIdentity(), cls.blind_to)})

    def __attrs_post_init__(self) -> None:
        self.identity = self.seen(self.identity)
        super().__attrs_post_init__()

    @classmethod
    def place(cls, folder: Path, identity: StoreIdentity, key: PageKey) -> Path:
        return super().place(folder, cls.seen(identity), key)


@breaks("STORE-5")
class BlindToWeights(_Blind):
    """The weights are not in the names of pages."""

    blind_to = "weights"


@breaks("STORE-5")
class BlindToConfig(_Blind):
    """The configuration of RoPE is not in the names of pages."""

    blind_to = "config"


@breaks("STORE-5")
class BlindToDtype(_Blind):
    """The KV dtype is not in the names of pages."""

    blind_to = "kv_dtype"


@breaks("STORE-5")
class BlindToLayout(_Blind):
    """The layout is not in the names of pages."""

    blind_to = "layout"


@breaks("STORE-5")
class BlindToRank(_Blind):
    """The rank is not in the names of pages."""

    blind_to = "rank"


@breaks("STORE-5")
class BlindToRanks(_Blind):
    """The number of ranks is not in the names of pages."""

    blind_to = "ranks"


@breaks("STORE-5")
class BlindToPageSize(MemoryStore):
    """A page is named by its last token, whatever the page size is."""

    def name_of(self, key: PageKey) -> bytes:
        named = evolve(self.identity, page_size=0)
        return identity_digest(named) + page_digest(evolve(key, pool=""), 1)


class _NamedBy(FileStore):
    """A store that names pages in a way of its own."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        raise NotImplementedError


@breaks("STORE-6")
class NoNamespace(_NamedBy):
    """The namespace is not in the name of a page."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        return page_digest(evolve(key, namespace=Namespace()), identity.page_size)


@breaks("STORE-6")
class NoLora(_NamedBy):
    """The LoRA is taken for a salt."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        space = key.namespace
        mixed = Namespace(space.extra_key, space.cache_salt or space.lora)
        return page_digest(evolve(key, namespace=mixed), identity.page_size)


@breaks("STORE-6")
class JoinedNamespace(_NamedBy):
    """The fields of the namespace are joined without lengths."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        space = key.namespace
        joined = "".join(each or "" for each in (space.extra_key, space.cache_salt))
        named = Namespace(joined or None, None, space.lora)
        return page_digest(evolve(key, namespace=named), identity.page_size)


@breaks("STORE-6")
class NoPool(_NamedBy):
    """The pool is not in the name of a page."""

    @staticmethod
    def name_of(identity: StoreIdentity, key: PageKey) -> bytes:
        return page_digest(evolve(key, pool=""), identity.page_size)


@breaks("STORE-24")
class InPlace(_Unproved):
    """A page is written to its file in place, in two parts."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        half = len(content) // 2
        try:
            with self.file_of(key).open("wb", buffering=0) as file:
                whole = file.write(self.header_of(key, content)) == HEADER_BYTES
                whole &= file.write(content[:half]) == half
                whole &= file.write(content[half:]) == len(content) - half
        except OSError:
            whole = False
        if not whole:
            self.file_of(key).unlink(missing_ok=True)
        return whole


@breaks("STORE-24")
class RoomFirst(_Unproved):
    """A file gets its name and its length before its bytes."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        path = self.file_of(key)
        try:
            with path.open("wb", buffering=0) as file:
                file.truncate(HEADER_BYTES + len(content))
                file.write(self.header_of(key, content))
                file.write(content)
        except OSError:
            path.unlink(missing_ok=True)
            return False
        return True


@breaks("STORE-25")
class SharedUnfinishedFile(FileStore):
    """Two writers write to one unfinished file, in two parts."""

    def put_one(self, key: PageKey, content: bytes) -> bool:
        unfinished = self.file_of(key).with_suffix(f".{os.getppid()}.tmp")
        half = len(content) // 2
        try:
            with unfinished.open("wb", buffering=0) as file:
                for part in (self.header_of(key, content), content[:half], content[half:]):
                    if file.write(part) != len(part):
                        return False
            unfinished.replace(self.file_of(key))
        except OSError:
            return False
        return True


@breaks("STORE-25")
class TwoPartsInPlace(InPlace):
    """Two writers write to one file in place."""


@breaks("STORE-26")
class RemovesTheFirst(FileStore):
    """A removal of several pages removes the first of them."""

    def remove(self, keys: Sequence[PageKey]) -> None:
        super().remove(keys[:1])


@breaks("STORE-26")
class RemovedUntilRestart(FileStore):
    """A removal only hides a page from the process that removed it."""

    hidden: set[Path]

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        self.hidden = set()

    def remove(self, keys: Sequence[PageKey]) -> None:
        self.hidden |= {self.file_of(key) for key in keys}

    def put_one(self, key: PageKey, content: bytes) -> bool:
        self.hidden.discard(self.file_of(key))
        return super().put_one(key, content)

    def get_one(self, key: PageKey, buffer: memoryview) -> int | None:
        return None if self.file_of(key) in self.hidden else super().get_one(key, buffer)

    def has(self, key: PageKey) -> bool:
        return self.file_of(key) not in self.hidden and super().has(key)
