"""`HashedPages` of the native core again, in plain Python, to compare it with."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from attrs import Factory, define


def key_of(block_hash: bytes, group: int) -> bytes:
    """The key of a page."""
    return block_hash + group.to_bytes(4, "big")


@define(eq=False)
class PlainPage:
    """A page that is somewhere."""

    key: bytes
    blocks: set[int] = Factory(set)
    last_block: int | None = None
    row: int | None = None
    on_host: bool = False
    used: bool = False
    prompt: object = None
    at: int = 0


@define(eq=False)
class PlainHashedPages:
    """The same calls, and the same answers."""

    rows: int
    pool: Sequence[Any] = ()
    null_block: int = -1
    pages: dict[bytes, PlainPage] = Factory(dict)
    in_row: dict[int, PlainPage] = Factory(dict)
    holds: Counter[int] = Factory(Counter)
    leaving: set[int] = Factory(set)
    free: list[int] = Factory(lambda self: list(range(self.rows))[::-1], takes_self=True)
    order: list[int] = Factory(list)
    """Rows that may be evicted, the next first."""
    jobs: dict[int, list[tuple[int | None, int, int]]] = Factory(dict)
    """The block, row and group of each page that a job copies; None for one from elsewhere."""
    told: list[tuple[bool, bytes, int, object, int]] = Factory(list)
    counted: Counter[str] = Factory(Counter)

    def watch(self, blocks: Sequence[Any], null_block: int) -> None:
        self.pool, self.null_block = blocks, null_block

    @property
    def on_host(self) -> int:
        return len(self.keys())

    @property
    def held(self) -> int:
        return sum(page.on_host and self.holds[row] > 0 for row, page in self.in_row.items())

    @property
    def takeable(self) -> int:
        return len(self.free) + len(self.order)

    @property
    def storing(self) -> int:
        return sum(map(len, self.jobs.values()))

    def keys(self) -> set[bytes]:
        return {key for key, page in self.pages.items() if page.on_host}

    def counts(self) -> dict[str, int]:
        names = ("stored_pages", "failed_stores", "late_pages", "lost_pages", "evicted_pages")
        return {name: self.counted[name] for name in names}

    def leading(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> int:
        there = self.there(hashes, group, first, end, or_device=or_device)
        return first + (there.index(False) if False in there else len(there))

    def there(
        self, hashes: list[bytes], group: int, first: int, end: int, *, or_device: bool
    ) -> list[bool]:
        return [
            page is not None
            and (
                page.on_host
                or (or_device and page.last_block is not None and self.finds(page.last_block, page))
            )
            for page in self.run(hashes, group, first, end)
        ]

    def hold(self, hashes: list[bytes], group: int, first: int, end: int) -> list[int]:
        rows = [
            page.row
            for page in self.run(hashes, group, first, end)
            if page is not None and page.on_host and page.row is not None
        ]
        for row in rows:
            self.take_hold(row)
        return rows

    def hold_all(
        self, hashes: list[bytes], group: int, first: int, end: int, job: int
    ) -> list[int] | None:
        rows: list[int] = []
        for at in range(first, end):
            page = self.pages.get(key_of(hashes[at], group))
            if page is not None and page.row is None and page.last_block is not None:
                self.begin_store(page, page.last_block, job)
            if page is None or page.row is None:
                self.let_go(rows)
                return None
            self.take_hold(page.row)
            rows.append(page.row)
        return rows

    def fetch(
        self,
        hashes: list[bytes],
        group: int,
        places: Sequence[int],
        job: int,
        prompt: object = None,
    ) -> list[int | None]:
        rows: list[int | None] = []
        for at in places:
            key = key_of(hashes[at], group)
            page = self.pages.setdefault(key, PlainPage(key))
            if page.row is None and self.take_row(page, None, job):
                page.prompt, page.at = prompt, at
                rows.append(page.row)
            else:
                self.erase_if_nowhere(page)
                rows.append(None)
        return rows

    def let_go(self, rows: Sequence[int], *, moved: bool = False) -> None:
        for row in reversed(rows):
            page = self.in_row.get(row)
            if moved and page is not None:
                self.leaving.add(row)
            if self.holds[row] == 1 and row in self.leaving and page is not None:
                self.leave_host(page)
            self.holds[row] -= 1
            if not self.holds[row]:
                (self.order if row in self.in_row else self.free).append(row)

    def drop(self, rows: Sequence[int]) -> None:
        for row in rows:
            if row in self.in_row:
                self.leave_host(self.in_row[row])

    def learn(  # noqa: PLR0917
        self,
        blocks: Sequence[int],
        hashes: list[bytes],
        group: int,
        first: int,
        end: int,
        prompt: object = None,
        *,
        loaded: bool = False,
    ) -> list[int]:
        learnt = []
        for at in range(first, min(end, len(blocks))):
            block, key = blocks[at], key_of(hashes[at], group)
            if not loaded and self.pool[block].block_hash != key:
                continue
            page = self.pages.setdefault(key, PlainPage(key))
            if block not in page.blocks:
                page.blocks.add(block)
                self.forget(block, but=page)
            page.last_block, page.prompt, page.at = block, prompt, at
            page.used = True
            learnt.append(block)
        return learnt

    def give(self, blocks: Sequence[int], late_job: int | None) -> set[int]:
        readers: set[int] = set()
        for block in blocks:
            if block == self.null_block:
                continue
            page = self.in_block(block)
            if page is not None and self.finds(block, page):
                page.used = True
            elif page is not None:
                if late_job is not None and page.row is not None:
                    self.keep(page)
                elif late_job is not None:
                    self.counted["late_pages"] += self.begin_store(page, block, late_job)
                self.forget(block)
            readers |= self.readers_of(block)
        return readers

    def store(self, blocks: Iterable[int], job: int) -> None:
        for block in blocks:
            page = self.in_block(block)
            if page is not None and page.row is not None:
                self.keep(page)
            elif page is not None and self.finds(block, page):
                self.begin_store(page, block, job)

    def store_ahead(self, head: Any, count: int, job: int) -> None:  # noqa: ANN401
        blocks: list[int] = []
        block = head.next_free_block
        while block is not None and block.next_free_block is not None and len(blocks) < count:
            blocks.append(block.block_id)
            block = block.next_free_block
        self.store(blocks, job)

    def copies(self, job: int) -> tuple[array[int], array[int], array[int]] | None:
        stores = self.jobs.get(job)
        if stores is None:
            return None
        sources = [(-1 if block is None else block, *rest) for block, *rest in stores]
        blocks, rows, groups = (array("i", each) for each in zip(*sources, strict=True))
        return blocks, rows, groups

    def end_stores(self, job: int, *, moved: bool, check_blocks: bool = False) -> None:
        for block, row, _ in self.jobs.pop(job, ()):
            fetched = block is None
            self.counted["failed_stores"] += not (moved or fetched)
            page = self.in_row.get(row)
            checked = check_blocks and block is not None
            if page is not None and moved and (not checked or self.finds(block, page)):
                page.on_host = True
                self.counted["stored_pages"] += not fetched
                self.tell(page, came=True)
            elif page is not None:
                self.leave_host(page)
            self.let_go([row])

    def jobs_before(self, blocks: Iterable[int], rows: Iterable[int]) -> set[int]:
        filling = {
            job for job, stores in self.jobs.items() for each in stores if each[1] in set(rows)
        }
        return filling.union(*map(self.readers_of, blocks))

    def clear(self) -> None:
        self.drop(range(self.rows))
        for block in {each for page in self.pages.values() for each in page.blocks}:
            self.forget(block)

    def take_events(self) -> list[tuple[bool, bytes, int, object, int]]:
        told, self.told = self.told, []
        return told

    # What follows is not called by the tier.

    def run(
        self, hashes: list[bytes], group: int, first: int, end: int
    ) -> Iterator[PlainPage | None]:
        return (self.pages.get(key_of(hashes[at], group)) for at in range(first, end))

    def finds(self, block: int | None, page: PlainPage) -> bool:
        return block is not None and bool(self.pool[block].block_hash == page.key)

    def in_block(self, block: int) -> PlainPage | None:
        return next((page for page in self.pages.values() if block in page.blocks), None)

    def readers_of(self, block: int) -> set[int]:
        return {
            job for job, stores in self.jobs.items() if any(each[0] == block for each in stores)
        }

    def forget(self, block: int, but: PlainPage | None = None) -> None:
        for page in list(self.pages.values()):
            if page is not but and block in page.blocks:
                page.blocks.remove(block)
                if page.last_block == block:
                    page.last_block = None
                self.erase_if_nowhere(page)

    def take_hold(self, row: int) -> None:
        self.holds[row] += 1
        if row in self.order:
            self.order.remove(row)

    def keep(self, page: PlainPage) -> None:
        if not page.used or page.row is None:
            return
        page.used = False
        self.leaving.discard(page.row)
        if page.row in self.order:
            self.order.remove(page.row)
            self.order.append(page.row)

    def begin_store(self, page: PlainPage, block: int, job: int) -> bool:
        taken = self.take_row(page, block, job)
        self.counted["lost_pages"] += not taken
        return taken

    def take_row(self, page: PlainPage, block: int | None, job: int) -> bool:
        if not self.free and not self.order:
            return False
        if not self.free:
            self.counted["evicted_pages"] += 1
            self.leave_host(self.in_row[self.order[0]])
        row = self.free.pop()
        self.holds[row] = 1
        self.in_row[row], page.row, page.used = page, row, False
        self.jobs.setdefault(job, []).append((block, row, int.from_bytes(page.key[-4:], "big")))
        return True

    def leave_host(self, page: PlainPage) -> None:
        row = page.row
        assert row is not None
        if page.on_host:
            self.tell(page, came=False)
        page.on_host, page.row = False, None
        del self.in_row[row]
        self.leaving.discard(row)
        if row in self.order:
            self.order.remove(row)
            self.free.append(row)
        self.erase_if_nowhere(page)

    def erase_if_nowhere(self, page: PlainPage) -> None:
        if not page.blocks and page.row is None:
            del self.pages[page.key]

    def tell(self, page: PlainPage, *, came: bool) -> None:
        group = int.from_bytes(page.key[-4:], "big")
        self.told.append((came, page.key[:-4], group, page.prompt, page.at))
