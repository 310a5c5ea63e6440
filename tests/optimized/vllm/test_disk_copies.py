"""Pages between host rows and a rank's disk: moved, missed, late, failing, given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from attrs import define, field

from kvcanon.disk import DiskIdentity, DiskUnusable, PageGet, PagePut
from kvcanon.optimized.vllm.disk_copies import (
    DEADLINE_SECONDS,
    MOST_LATE,
    DiskCopies,
    DiskNotes,
    HostPages,
)
from kvcanon.optimized.vllm.disk_news import DiskJob, DiskPage
from kvcanon.optimized.vllm.rank_disk import open_disk

ROWS = 6
PAGE_BYTES = (5000, 300)
"""Of two groups, neither of them whole blocks of a disk."""
CAPACITY_BYTES = 8 << 20
IDENTITY = DiskIdentity({"model": "m"}, "tp0of1-dp0")
PATIENCE_SECONDS = 20.0


def host() -> HostPages:
    """Rows with other bytes in each."""
    rows = np.add.outer(np.arange(ROWS), np.arange(max(PAGE_BYTES))).astype(np.uint8)
    return HostPages(rows, PAGE_BYTES)


def page(number: int, group: int = 0) -> DiskPage:
    """The name of a page."""
    return bytes([number]) * 32, group


def write(number: int, rows: Sequence[int], pages: Sequence[DiskPage]) -> DiskJob:
    """A job that writes."""
    return DiskJob(number, rows, pages, to_disk=True, parents=[None] * len(rows))


def read(number: int, rows: Sequence[int], pages: Sequence[DiskPage]) -> DiskJob:
    """A job that reads."""
    return DiskJob(number, rows, pages, to_disk=False)


def until(asked: Callable[[], object]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not asked():
        assert time.monotonic() < ends, "nothing came of it"
        time.sleep(0.001)


def ended(copies: DiskCopies, count: int = 1) -> dict[int, bool]:
    """The next jobs that end, by number."""
    found: dict[int, bool] = {}

    def enough() -> bool:
        found.update({job.number: moved for job, moved in copies.ended()})
        return len(found) >= count

    until(enough)
    return found


@define(eq=False)
class GatedStore:
    """A store in memory that answers when the test says so, or fails."""

    there: dict[DiskPage, bytes] = field(factory=dict)
    gate: threading.Event = field(factory=threading.Event)
    error: Exception | None = None
    refuses: bool = False
    """Whether it has no room."""
    is_full: bool = False
    """Whether the disk itself refuses calls."""
    calls: int = 0
    failed_calls: int = 0
    is_closed: bool = False
    _permits: threading.Semaphore = field(factory=lambda: threading.Semaphore(0))

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        self._answer()
        takes = not (self.refuses or self.is_full)
        self.failed_calls += self.is_full
        if takes:
            self.there |= {(each.name, each.pool): b"".join(each.parts) for each in pages}
        return [takes] * len(pages)

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        self._answer()
        answers: list[int | None] = []
        for each in pages:
            data = self.there.get((each.name, each.pool))
            answers.append(None if data is None else len(data))
            if data is not None:
                each.parts[0][:] = data
        return answers

    def pages(self) -> list[DiskPage]:
        return list(self.there)

    def statistics(self) -> GatedStore:
        return self

    def close(self) -> None:
        self.is_closed = True

    def answer_one(self) -> None:
        """Let the call go on that waits, and stop the next one."""
        self._permits.release()

    def _answer(self) -> None:
        self.calls += 1
        until(lambda: self.gate.is_set() or self._permits.acquire(blocking=False))
        if self.error is not None:
            raise self.error


@define(eq=False)
class Gated:
    """Copies over a gated store, and the clock that they look at."""

    store: GatedStore = field(factory=GatedStore)
    host: HostPages = field(factory=host)
    now: float = 0.0
    copies: DiskCopies = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.copies = DiskCopies(self.store, self.host, DiskNotes(), clock=lambda: self.now)
        self.copies.news()


@pytest.fixture
def gated() -> Iterator[Gated]:
    """A closed gate, which opens at the end."""
    made = Gated()
    yield made
    made.store.gate.set()
    made.copies.close()


def test_pages_of_all_groups_come_back_in_another_process(tmp_path: Path) -> None:
    """Byte by byte, whatever their sizes; and the first news are all that is there."""
    rows = host()
    copies = open_disk(tmp_path, CAPACITY_BYTES, IDENTITY, rows)
    first = copies.news()
    assert first is not None
    assert (first.pages, first.is_usable) == ({}, True)
    pages = [page(1), page(2, 1), page(1, 1)]
    copies.begin(write(1, [0, 1, 2], pages))
    assert ended(copies) == {1: True}
    news = copies.news()
    assert news is not None
    assert news.pages == dict.fromkeys(pages, True)
    copies.close()
    later = HostPages(np.zeros_like(rows.rows), PAGE_BYTES)
    copies = open_disk(tmp_path, CAPACITY_BYTES, IDENTITY, later)
    news = copies.news()
    assert news is not None
    assert news.pages == dict.fromkeys(pages, True)
    copies.begin(read(2, [5, 4, 3], pages))
    assert ended(copies) == {2: True}
    for row, of, group in ((5, 0, 0), (4, 1, 1), (3, 2, 1)):
        size = PAGE_BYTES[group]
        assert (later.rows[row, :size] == rows.rows[of, :size]).all()
        assert not later.rows[row, size:].any()
    copies.close()


def test_a_job_moves_in_batches(tmp_path: Path) -> None:
    """Each with the memory of few pages."""
    rows = host()
    store = GatedStore()
    store.gate.set()
    copies = DiskCopies(store, rows, DiskNotes(), batch_bytes=2 * rows.stride_bytes)
    copies.begin(write(1, range(5), [page(number) for number in range(5)]))
    assert ended(copies) == {1: True}
    assert store.calls == 3
    assert [len(each) for each in store.there.values()] == [PAGE_BYTES[0]] * 5
    copies.close()
    assert store.is_closed


def test_a_damaged_page_is_a_failed_read(tmp_path: Path) -> None:
    """Its rows stay as they were, and the news are that it is gone."""
    rows = host()
    copies = open_disk(tmp_path, CAPACITY_BYTES, IDENTITY, rows)
    copies.begin(write(1, [0, 1], [page(1), page(2)]))
    ended(copies)
    copies.news()
    (slab,) = tmp_path.glob("*/slab")
    data = slab.read_bytes()
    at = data.index(rows.rows[1, : PAGE_BYTES[0]].tobytes())
    with slab.open("r+b") as opened:
        opened.seek(at + 100)
        opened.write(bytes([data[at + 100] ^ 1]))
    before = rows.rows.copy()
    copies.begin(read(2, [4, 5], [page(1), page(2)]))
    assert ended(copies) == {2: False}
    assert (rows.rows == before).all()
    news = copies.news()
    assert news is not None
    assert news.pages == {page(2): False}
    assert news.is_usable
    copies.begin(read(3, [4], [page(1)]))
    assert ended(copies) == {3: True}
    copies.close()


def test_a_page_that_the_store_has_not_is_news(gated: Gated) -> None:
    """Also where the store never said that it left."""
    gated.store.there[page(1)] = bytes(PAGE_BYTES[0])
    gated.store.gate.set()
    gated.copies.begin(read(1, [0, 1], [page(1), page(2)]))
    assert ended(gated.copies) == {1: False}
    news = gated.copies.news()
    assert news is not None
    assert (news.pages, news.is_usable) == ({page(2): False}, True)


def test_pages_that_the_store_evicts_are_news(tmp_path: Path) -> None:
    """As many as it writes beyond its room."""
    rows = host()
    copies = open_disk(tmp_path, 1 << 20, IDENTITY, rows)
    for number in range(200):
        copies.begin(write(number, [0], [page(number)]))
        assert ended(copies) == {number: True}
    news = copies.news()
    assert news is not None
    gone = [each for each, is_there in news.pages.items() if not is_there]
    assert page(0) in gone
    assert news.pages[page(199)]
    assert len(news.pages) == 200
    copies.close()


def test_a_page_is_news_after_it_is_durable(gated: Gated) -> None:
    """Not while the store still writes it."""
    gated.copies.begin(write(1, [0], [page(1)]))
    until(lambda: gated.store.calls)
    assert gated.copies.ended() == []
    assert gated.copies.news() is None
    gated.store.gate.set()
    assert ended(gated.copies) == {1: True}
    news = gated.copies.news()
    assert news is not None
    assert news.pages == {page(1): True}


@pytest.mark.parametrize("is_full", [False, True])
def test_a_refused_page_is_no_news(gated: Gated, *, is_full: bool) -> None:
    """A store without room for a page is used as before, one whose calls fail is left alone."""
    gated.store.refuses, gated.store.is_full = not is_full, is_full
    gated.store.gate.set()
    gated.copies.begin(write(1, [0], [page(1)]))
    assert ended(gated.copies) == {1: False}
    news = gated.copies.news()
    assert (news is None) == (not is_full)
    assert gated.copies.is_usable == (not is_full)


def test_a_late_answer_touches_no_row(gated: Gated) -> None:
    """A read that was given up has failed; what it brings goes nowhere."""
    gated.store.there[page(1)] = bytes([99]) * PAGE_BYTES[0]
    before = gated.host.rows.copy()
    gated.copies.begin(read(1, [0], [page(1)]))
    gated.copies.begin(read(2, [1], [page(1)]))
    until(lambda: gated.store.calls)
    gated.now = DEADLINE_SECONDS - 1
    assert gated.copies.ended() == []
    gated.now = DEADLINE_SECONDS
    assert ended(gated.copies, 2) == {1: False, 2: False}
    assert not gated.copies.is_usable
    gated.store.gate.set()
    until(lambda: gated.copies.ended() or not gated.copies._late)
    assert (gated.host.rows == before).all()
    assert gated.store.calls == 1


def test_a_slow_read_is_given_up_though_each_call_is_answered() -> None:
    """Between its calls; what the next one brings goes nowhere."""
    store, rows, now = GatedStore(), host(), [0.0]
    store.there = {page(number): bytes([90 + number]) * PAGE_BYTES[0] for number in range(3)}
    copies = DiskCopies(
        store, rows, DiskNotes(), clock=lambda: now[0], batch_bytes=rows.stride_bytes
    )
    before = rows.rows.copy()
    copies.begin(read(1, [0, 1, 2], [page(number) for number in range(3)]))
    copies.begin(read(2, [3], [page(0)]))
    for calls in (1, 2):
        until(lambda calls=calls: store.calls == calls)  # type: ignore[misc]
        now[0] += DEADLINE_SECONDS / 2 - 1
        assert copies.ended() == []
        store.answer_one()
    until(lambda: store.calls == 3)
    now[0] = DEADLINE_SECONDS
    assert ended(copies, 2) == {1: False, 2: False}
    assert not copies.is_usable
    store.gate.set()
    copies.close()
    assert store.calls == 3
    assert (rows.rows[2:] == before[2:]).all()
    assert (rows.rows[1, : PAGE_BYTES[0]] == 91).all()


def test_a_late_write_says_what_it_wrote(gated: Gated) -> None:
    """Its pages are durable, and their rows have been let go long before."""
    gated.copies.begin(write(1, [0], [page(1)]))
    until(lambda: gated.store.calls)
    gated.now = DEADLINE_SECONDS
    assert ended(gated.copies) == {1: False}
    content = gated.host.rows[0, : PAGE_BYTES[0]].tobytes()
    gated.host.rows[0] = 7
    gated.store.gate.set()
    until(lambda: gated.store.there)
    assert gated.store.there[page(1)] == content
    until(lambda: (news := gated.copies.news()) is not None and news.pages == {page(1): True})


def test_a_disk_that_failed_rests_and_is_tried_again(gated: Gated) -> None:
    """Meanwhile jobs end at once; one job tries it, and then it is used."""
    gated.store.error = OSError("a disk that is made to fail")
    gated.store.gate.set()
    gated.copies.begin(read(1, [0], [page(1)]))
    assert ended(gated.copies) == {1: False}
    news = gated.copies.news()
    assert news is not None
    assert not news.is_usable
    calls = gated.store.calls
    gated.copies.begin(write(2, [0], [page(1)]))
    assert ended(gated.copies) == {2: False}
    assert gated.store.calls == calls
    gated.now, gated.store.error = 1.0, None
    news = gated.copies.news()
    assert news is not None
    assert news.is_usable
    gated.copies.begin(write(3, [0], [page(1)]))
    gated.copies.begin(write(4, [0], [page(1)]))
    assert ended(gated.copies, 2) == {3: True, 4: False}
    gated.copies.begin(read(5, [0], [page(1)]))
    assert ended(gated.copies) == {5: True}


def test_few_threads_are_left_to_a_disk_that_hangs(gated: Gated) -> None:
    """With so many it is left alone, however long it rested."""
    for number in range(MOST_LATE):
        assert gated.copies.is_usable
        gated.copies.begin(read(number, [0], [page(1)]))
        until(lambda calls=number + 1: gated.store.calls == calls)  # type: ignore[misc]
        gated.now += DEADLINE_SECONDS
        assert ended(gated.copies) == {number: False}
        gated.now += 100.0
    assert not gated.copies.is_usable
    gated.store.gate.set()
    until(lambda: gated.copies.ended() or gated.copies.is_usable)


def test_closing_does_not_wait_for_ever() -> None:
    """A store that hangs is not closed, since a thread may use it still."""
    store = GatedStore()
    copies = DiskCopies(store, host(), DiskNotes(), deadline_seconds=0.01)
    copies.begin(read(1, [0], [page(1)]))
    until(lambda: store.calls)
    copies.close()
    assert not store.is_closed
    store.gate.set()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """In a sentence; another rank has its own part of the folder."""
    copies = open_disk(tmp_path, CAPACITY_BYTES, IDENTITY, host())
    with pytest.raises(DiskUnusable, match="is open in another process"):
        open_disk(tmp_path, CAPACITY_BYTES, IDENTITY, host())
    other = DiskIdentity(IDENTITY.facts, "tp1of2-dp0")
    open_disk(tmp_path, CAPACITY_BYTES, other, host()).close()
    copies.close()
