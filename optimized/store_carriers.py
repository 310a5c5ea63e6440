"""What moves pages between host memory and a store: one that proves them, or any store of pages.

A carrier moves the pages of one batch, and answers how many leading pages went well. Worker threads
call it, which may wait for the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from attrs import define, frozen

from kvcanon.optimized.page_orders import PageOrder
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey
from kvcanon.spec.tier import SEAL_BYTES, seal, unseal

if TYPE_CHECKING:
    from kvcanon.disk import PageGet, PagePut


@frozen(eq=False)
class PageBatch:
    """Consecutive pages of an order, and their memory."""

    order: PageOrder
    begin: int
    """The first page, counted in the order."""
    memory: Sequence[memoryview]
    """The bytes of each page."""

    def __len__(self) -> int:
        """The number of pages."""
        return len(self.memory)

    @property
    def hashes(self) -> list[bytes]:
        """The hash of each page."""
        run = self.order.run
        return [run.hash(page) for page in range(self.begin, self.begin + len(self))]

    def give_back(self) -> None:
        """Nothing reads or writes the memory any more."""
        self.order.give_back(self.begin, self.begin + len(self))


class PageCarrier(Protocol):
    """Moves batches of pages. Whatever it raises counts as no page moved, and as a failed store."""

    @property
    def damaged_pages(self) -> int:
        """How many pages were read that did not prove to be theirs."""
        return 0

    def write(self, batch: PageBatch) -> int:
        """Write the pages to the store; the answer counts the leading ones that are stored."""

    def read(self, batch: PageBatch) -> int:
        """Read the pages into their memory; the answer counts the leading ones that are there."""


class ProvedStore(Protocol):
    """A store that proves its pages: `kvcanon.disk.DiskStore`, or one of `kvcanon.external`."""

    def put(self, pages: Sequence[PagePut]) -> Sequence[bool]:
        """Store pages by name; says for each whether it is stored."""

    def get(self, pages: Sequence[PageGet]) -> Sequence[int | None]:
        """Read pages; says for each how many bytes it has, or None if it is not proved."""

    def statistics(self) -> StoreFigures:
        """What it has done."""


class StoreFigures(Protocol):
    """What a carrier reads of a store's statistics."""

    @property
    def damaged_pages(self) -> int:
        """Pages that did not prove to be what was put."""


@frozen(eq=False)
class ProvedCarrier:
    """Moves pages to and from a store that proves them, in the memory where they are.

    A page has its hash as name, and no seal. The store is opened with the identity of what the
    cache keeps: model, weights, dtype, layout and rank.
    """

    store: ProvedStore

    @property
    def damaged_pages(self) -> int:
        """How many pages were read that did not prove to be theirs."""
        return self.store.statistics().damaged_pages

    def write(self, batch: PageBatch) -> int:
        """Put the pages, each with the name of the page before it."""
        # Pages in stores need xxhash, which a cache without one does not.
        from kvcanon.disk import PagePut  # noqa: PLC0415

        names, run = batch.hashes, batch.order.run
        before = run.hash(batch.begin - 1) if batch.begin else run.parent_hash
        pages = zip(names, batch.memory, [before, *names], strict=False)
        return _leading(
            self.store.put([PagePut(name, (memory,), parent) for name, memory, parent in pages])
        )

    def read(self, batch: PageBatch) -> int:
        """Get the pages into their memory."""
        from kvcanon.disk import PageGet  # noqa: PLC0415  # As above.

        pages = zip(batch.hashes, batch.memory, strict=True)
        lengths = self.store.get([PageGet(name, (memory,)) for name, memory in pages])
        return _leading([length == batch.order.page_bytes for length in lengths])


@define(eq=False)
class SealedCarrier:
    """Moves pages to and from any `kvcanon.spec.stores.PageStore`, as sealed records."""

    store: PageStore
    damaged_pages: int = 0
    """How many pages were read that did not prove to be theirs."""

    def write(self, batch: PageBatch) -> int:
        """Put the record of each page."""
        pages = zip(self._keys(batch), batch.hashes, batch.memory, strict=True)
        return _leading(
            self.store.put([(key, seal(name, bytes(memory))) for key, name, memory in pages])
        )

    def read(self, batch: PageBatch) -> int:
        """Get the record of each page, and accept those that prove to be their page."""
        size = batch.order.page_bytes
        records = [bytearray(SEAL_BYTES + size) for _ in batch.memory]
        keys = self._keys(batch)
        lengths = self.store.get(
            [(key, memoryview(record)) for key, record in zip(keys, records, strict=True)]
        )
        found = zip(batch.hashes, batch.memory, records, lengths, strict=True)
        for page, (name, memory, record, length) in enumerate(found):
            data = None if length is None else unseal(name, bytes(record[:length]), size)
            if data is None:
                self.damaged_pages += length is not None
                return page
            memory[:] = data
        return len(batch)

    def _keys(self, batch: PageBatch) -> list[PageKey]:
        """The names of the pages; of bigrams, all tokens in a row."""
        order = batch.order
        pages = order.run.start_pages + len(order)
        page_words, tokens = len(order.words) // pages, order.words.tolist()
        first = order.run.start_pages + batch.begin + 1
        ends = range(first, first + len(batch))
        return [PageKey(tuple(tokens[: end * page_words]), order.namespace) for end in ends]


def _leading(answers: Sequence[bool]) -> int:
    """How many answers come before the first that is False."""
    return next((at for at, each in enumerate(answers) if not each), len(answers))
