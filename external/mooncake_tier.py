"""Pages in Mooncake Store, each an object: `MooncakeTier`.

The client moves bytes from and to memory that it knows without a copy: `register` the host pool.
Small pages, and pages elsewhere, go through memory where each lies behind its header: over TCP a
further piece of an object costs more than the copy.

A get of the client blocks for 30 s when a provider of memory has stopped, and no time-out can be
set. So a call may still read and write its pages long after its caller has given it up.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import accumulate
from typing import Protocol

from attrs import define, evolve, field

from kvcanon.disk.identity import DiskIdentity
from kvcanon.disk.parts import PageGet, PagePut, address_of, copy_from, total_bytes
from kvcanon.external.failing import ExternalFailed
from kvcanon.external.figures import ExternalFigures
from kvcanon.external.records import HEADER_BYTES, header_of, is_proved, key_of, place
from kvcanon.external.registered_memory import Bytes, RegisteredMemory, Registrar

NO_ROOM = -200
TOO_LARGE = -600
"""The object is larger than was asked for."""
NOT_MOVED = -800
"""The memory of the object cannot be reached, or it is smaller than was asked for. This code and
those below it say nothing about the object."""
MOST_COPIED_BYTES = 512 << 10
"""A piece more costs about as much as copying this, over TCP."""
PUT_BYTES, GET_BYTES = 16 << 20, 8 << 20
"""About how many bytes of copied pages one call moves. What was got is proved and copied while the
processor has it, and a put is the faster the more it moves."""
_LOG = logging.getLogger(__name__)


class MooncakeClient(Registrar, Protocol):
    """What is called of a `mooncake.store.MooncakeDistributedStore`.

    An answer is 0 or a length where that went well, and a code below 0 else.
    """

    def batch_put_from_multi_buffers(
        self, keys: list[str], pointers: list[list[int]], sizes: list[list[int]], /
    ) -> list[int]:
        """Put objects, each from several pieces of registered memory."""

    def batch_get_into_multi_buffers(
        self, keys: list[str], pointers: list[list[int]], sizes: list[list[int]], /
    ) -> list[int]:
        """Get objects, each into several pieces of registered memory."""

    def batch_put_from(
        self, keys: list[str], pointers: list[int], sizes: list[int], /
    ) -> list[int]:
        """Put objects, each from one piece of registered memory."""

    def batch_get_into(
        self, keys: list[str], pointers: list[int], sizes: list[int], /
    ) -> list[int]:
        """Get objects, each into one piece of registered memory, which may be larger."""

    def get_size(self, key: str, /) -> int:
        """The length of an object."""

    def batch_is_exist(self, keys: list[str], /) -> list[int]:
        """1 for each object that is there."""

    def batch_remove(self, keys: list[str], force: bool, /) -> list[int]:
        """Remove objects; with force also those that a lease protects."""


class _Miss(Enum):
    """Why a page was not read."""

    ABSENT = "absent"
    DAMAGED = "damaged"
    FAILED = "failed"
    """For a reason that is not the page's own."""


@define(eq=False)
class MooncakeTier:
    """Pages under the keys of one identity. Any thread may call it; `over` makes one."""

    client: MooncakeClient
    fingerprint: bytes
    memory: RegisteredMemory
    most_copied_bytes: int = MOST_COPIED_BYTES
    """Pages up to this size are copied; with 0 none that lie in registered memory, as over RDMA."""
    figures: ExternalFigures = field(factory=ExternalFigures)

    @classmethod
    def over(
        cls,
        client: MooncakeClient,
        identity: DiskIdentity,
        *,
        most_copied_bytes: int = MOST_COPIED_BYTES,
    ) -> MooncakeTier:
        """The pages of an identity, by a client that was set up; its owner closes it, after this.

        `client` is a `mooncake.store.MooncakeDistributedStore`.
        """
        return cls(client, identity.fingerprint, RegisteredMemory(client), most_copied_bytes)

    def register(self, memory: Bytes) -> None:
        """Let pages in this memory move without a copy. Raises: ExternalFailed.

        It has to stay where it is until `close`.
        """
        self.memory.add(memory)

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        """Store pages; says for each whether it is there. Raises: ExternalFailed.

        An object that is there is kept, and none of its bytes are sent. So is one that another call
        has begun to put: the client says that all is well, and it is looked whether it is.
        """
        codes = [0] * len(pages)
        in_place, copied = self._ways(pages)
        for group in _groups(pages, copied, PUT_BYTES):
            put = self._put_copies([pages[at] for at in group])
            for at, code in zip(group, put, strict=True):
                codes[at] = code
        put = self._put_in_place([pages[at] for at in in_place])
        for at, code in zip(in_place, put, strict=True):
            codes[at] = code
        there = self._are_there([page.name for page in pages])
        done = [code == 0 and is_there for code, is_there in zip(codes, there, strict=True)]
        failed = [code for code in codes if code not in (0, NO_ROOM)]
        if failed and not any(done):
            raise ExternalFailed(f"Mooncake put nothing: code {failed[0]}")
        self.figures.written_pages += sum(done)
        self.figures.refused_pages += done.count(False)
        return done

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        """Read pages into their parts; says for each how many bytes it has, or None for a miss.

        The parts of a page that is a miss may have been written to. Raises: ExternalFailed, if no
        page could be read, and not for lack of pages.
        """
        misses: list[_Miss | None] = [_Miss.FAILED] * len(pages)
        in_place, copied = self._ways(pages)
        for group in (in_place, *_groups(pages, copied, GET_BYTES)):
            own = [pages[at] for at in group]
            got = self._get_in_place(own) if group is in_place else self._get_copies(own)
            for at, miss in zip(group, got, strict=True):
                misses[at] = miss
            if _Miss.FAILED in got:
                break  # The client may have waited for long, and would again.
        if _Miss.FAILED in misses and None not in misses:
            raise ExternalFailed("Mooncake got nothing: the memory of its pages is out of reach")
        damaged = [
            page.name for page, miss in zip(pages, misses, strict=True) if miss is _Miss.DAMAGED
        ]
        if damaged:
            first = self._key(damaged[0])
            _LOG.warning("%d objects are damaged, and removed: %s", len(damaged), first)
            self.remove(damaged)
        self.figures.damaged_pages += len(damaged)
        self.figures.read_pages += misses.count(None)
        self.figures.missed_pages += len(misses) - misses.count(None)
        return [
            total_bytes(page.parts) if miss is None else None
            for page, miss in zip(pages, misses, strict=True)
        ]

    def leading_run(self, names: Sequence[bytes]) -> int:
        """How many pages are there before the first that is not."""
        there = self._are_there(names)
        return there.index(False) if False in there else len(there)

    def remove(self, names: Sequence[bytes]) -> None:
        """Remove pages, also those that a lease protects: who reads them finds out."""
        if names:
            self.client.batch_remove([self._key(name) for name in names], True)

    def statistics(self) -> ExternalFigures:
        """What it has done since it was made."""
        return evolve(self.figures)

    def close(self) -> None:
        """Let the client forget the memory. What was stored stays."""
        self.memory.close()

    # Inside.

    def _are_there(self, names: Sequence[bytes]) -> list[bool]:
        if not names:
            return []
        keys = [self._key(name) for name in names]
        return [each == 1 for each in self.client.batch_is_exist(keys)]

    def _ways(self, pages: Sequence[PagePut | PageGet]) -> tuple[list[int], list[int]]:
        """Which pages move in place, and which are copied."""
        in_place: list[int] = []
        copied: list[int] = []
        for at, page in enumerate(pages):
            is_large = total_bytes(page.parts) > self.most_copied_bytes
            (in_place if is_large and self.memory.has(page.parts) else copied).append(at)
        return in_place, copied

    def _put_in_place(self, pages: Sequence[PagePut]) -> Sequence[int]:
        """Put pages from registered memory; a code for each."""
        if not pages:
            return ()
        with self.memory.piece(len(pages) * HEADER_BYTES) as headers:
            headers.data[:] = b"".join(map(self._header, pages))
            keys = [self._key(page.name) for page in pages]
            return self.client.batch_put_from_multi_buffers(keys, *_places(headers, pages))

    def _put_copies(self, pages: Sequence[PagePut]) -> Sequence[int]:
        """Put pages from memory where each lies behind its header; a code for each."""
        sizes = [HEADER_BYTES + total_bytes(page.parts) for page in pages]
        with self.memory.piece(sum(sizes)) as block:
            values, addresses = _values(block, sizes)
            for page, value in zip(pages, values, strict=True):
                copy_from(page.parts, value[HEADER_BYTES:])
                # Of the copy, which the processor has now.
                value[:HEADER_BYTES] = header_of(
                    self.fingerprint, page.name, (value[HEADER_BYTES:],)
                )
            keys = [self._key(page.name) for page in pages]
            return self.client.batch_put_from(keys, addresses, sizes)

    def _get_in_place(self, pages: Sequence[PageGet]) -> list[_Miss | None]:
        """Get pages into registered memory; for each why it is a miss, if it is one."""
        if not pages:
            return []
        keys = [self._key(page.name) for page in pages]
        with self.memory.piece(len(pages) * HEADER_BYTES) as headers:
            codes = self.client.batch_get_into_multi_buffers(keys, *_places(headers, pages))
            rows, _ = _values(headers, [HEADER_BYTES] * len(pages))
            return [
                self._miss(page, code)
                or _damage(is_proved(bytes(row), self.fingerprint, page.name, page.parts))
                for page, row, code in zip(pages, rows, codes, strict=True)
            ]

    def _get_copies(self, pages: Sequence[PageGet]) -> list[_Miss | None]:
        """Get pages behind their headers, and copy them; for each why it is a miss, if it is."""
        sizes = [HEADER_BYTES + total_bytes(page.parts) for page in pages]
        keys = [self._key(page.name) for page in pages]
        with self.memory.piece(sum(sizes)) as block:
            values, addresses = _values(block, sizes)
            codes = self.client.batch_get_into(keys, addresses, sizes)
            return [
                self._miss(page, code)
                or _damage(place(value, self.fingerprint, page.name, page.parts))
                for page, value, code in zip(pages, values, codes, strict=True)
            ]

    def _miss(self, page: PageGet, code: int) -> _Miss | None:
        """Why a page was not read, where the client says this code; None if it was."""
        size = HEADER_BYTES + total_bytes(page.parts)
        if code == size:
            return None
        if code == NOT_MOVED:
            code = self.client.get_size(self._key(page.name))
            if code == size:
                return _Miss.FAILED
        if code >= 0 or code == TOO_LARGE:
            return _Miss.DAMAGED
        return _Miss.FAILED if code <= NOT_MOVED else _Miss.ABSENT

    def _header(self, page: PagePut) -> bytes:
        return header_of(self.fingerprint, page.name, page.parts)

    def _key(self, name: bytes) -> str:
        return key_of(self.fingerprint, name)


def _damage(is_page: bool) -> _Miss | None:
    return None if is_page else _Miss.DAMAGED


def _groups(
    pages: Sequence[PagePut | PageGet], which: Sequence[int], most_bytes: int
) -> Iterator[list[int]]:
    """Some of the pages, in order, in groups of so many bytes of pages, or of one page."""
    group: list[int] = []
    size = 0
    for at in which:
        more = total_bytes(pages[at].parts)
        if group and size + more > most_bytes:
            yield group
            group, size = [], 0
        group.append(at)
        size += more
    if group:
        yield group


def _values(block: Bytes, sizes: Sequence[int]) -> tuple[list[memoryview], list[int]]:
    """Pieces of a block, one after another, and their addresses."""
    whole, address = block.data, address_of(block.data)
    ends = list(accumulate(sizes))
    begins = [0, *ends[:-1]]
    return (
        [whole[begin:end] for begin, end in zip(begins, ends, strict=True)],
        [address + begin for begin in begins],
    )


def _places(
    headers: Bytes, pages: Sequence[PagePut | PageGet]
) -> tuple[list[list[int]], list[list[int]]]:
    """Where the header and the parts of each page are, and how long they are."""
    _, rows = _values(headers, [HEADER_BYTES] * len(pages))
    pointers = [[row, *map(address_of, page.parts)] for row, page in zip(rows, pages, strict=True)]
    return pointers, [[HEADER_BYTES, *map(len, page.parts)] for page in pages]
