"""A store whose calls have a deadline, for engines that have none of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from attrs import define, field

from disk_pages import content_of, name_of
from external_pages import LENGTH
from fast.stores import wait_until
from kvcanon.disk import PageGet, PagePut
from kvcanon.external import ExternalFailed, ExternalFigures
from kvcanon.external.guarded import MOST_LATE, SHARES, CallMemory, GuardedStore
from kvcanon.external.registered_memory import Bytes
from kvcanon.store_breaker import StoreBreaker

pytestmark = pytest.mark.usefixtures("no_thread_is_left")
DEADLINE_SECONDS = 0.1
SLACK_SECONDS = 1.0
"""How much later than a deadline this machine may look, and still be itself."""


@define(eq=False)
class SlowStore:
    """Pages in memory, whose server may stand still or fail."""

    pages: dict[bytes, bytes] = field(factory=dict)
    runs: threading.Event = field(factory=threading.Event)
    looks: threading.Event = field(factory=threading.Event)
    failure: str = ""
    calls: int = 0

    def __attrs_post_init__(self) -> None:
        self.go_on()

    def stop(self) -> None:
        """Let all calls wait."""
        self.runs.clear()
        self.looks.clear()

    def go_on(self) -> None:
        """Answer again."""
        self.runs.set()
        self.looks.set()

    def begin(self, runs: threading.Event) -> None:
        """Wait as long as the server stands still."""
        self.calls += 1
        runs.wait()
        if self.failure:
            raise ExternalFailed(self.failure)

    def put(self, pages: Sequence[PagePut]) -> list[bool]:
        self.begin(self.runs)
        for page in pages:
            self.pages[page.name] = b"".join(map(bytes, page.parts))
        return [True] * len(pages)

    def get(self, pages: Sequence[PageGet]) -> list[int | None]:
        self.begin(self.runs)
        lengths: list[int | None] = []
        for page in pages:
            content = self.pages.get(page.name)
            if content is not None:
                page.parts[0][:] = content
            lengths.append(None if content is None else len(content))
        return lengths

    def leading_run(self, names: Sequence[bytes]) -> int:
        self.begin(self.looks)
        there = [name in self.pages for name in names]
        return there.index(False) if False in there else len(there)

    def statistics(self) -> ExternalFigures:
        return ExternalFigures()

    def close(self) -> None:
        """Nothing is open."""


@define
class Clock:
    """The time of rests."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def guarded(block_pages: int = 8) -> Iterator[tuple[GuardedStore, SlowStore, Clock]]:
    """A store with a deadline; its calls return at the end."""
    slow, clock = SlowStore(), Clock()
    memory = CallMemory(block_pages * LENGTH)
    store = GuardedStore(slow, DEADLINE_SECONDS, memory, StoreBreaker(clock))
    yield store, slow, clock
    slow.go_on()
    wait_until(lambda: store.statistics().late_calls == 0)
    store.close()


def put(store: GuardedStore, numbers: Sequence[int]) -> list[bool]:
    """Put pages, each in two pieces."""
    pages = []
    for number in numbers:
        content = memoryview(content_of(number, LENGTH))
        pages.append(PagePut(name_of(number), (content[:100], content[100:])))
    return store.put(pages)


def got(store: GuardedStore, numbers: Sequence[int]) -> tuple[list[int], list[bytearray]]:
    """The pages that come back, each of which has its bytes; and the memory of all."""
    buffers = [bytearray(LENGTH) for _ in numbers]
    pages = [
        PageGet(name_of(number), (memoryview(buffer)[:7], memoryview(buffer)[7:]))
        for number, buffer in zip(numbers, buffers, strict=True)
    ]
    good = []
    for number, buffer, length in zip(numbers, buffers, store.get(pages), strict=True):
        if length is not None:
            assert (length, bytes(buffer)) == (LENGTH, content_of(number, LENGTH))
            good.append(number)
    return good, buffers


def held_seconds(call: object) -> float:
    """How long a call takes."""
    begun = time.monotonic()
    call()  # type: ignore[operator]
    return time.monotonic() - begun


def test_pages_come_back_in_batches_of_a_block() -> None:
    """More pages than fit into a block take several calls; what is absent is a miss."""
    with guarded(block_pages=2) as (store, slow, _):
        assert put(store, range(5)) == [True] * 5
        assert slow.calls == 3
        assert store.leading_run([name_of(each) for each in range(7)]) == 5
        assert got(store, [*range(5), 9])[0] == [0, 1, 2, 3, 4]
        assert len(store.memory._free) == 1


def test_a_stopped_store_holds_each_call_to_its_deadline_and_then_none() -> None:
    """The first call is given up; those after it return at once, until the rest is over."""
    with guarded() as (store, slow, clock):
        put(store, range(3))
        slow.stop()
        names = [name_of(0)]
        assert held_seconds(lambda: store.leading_run(names)) < DEADLINE_SECONDS + SLACK_SECONDS
        calls = slow.calls
        assert store.leading_run(names) == 0
        assert put(store, range(2)) == [False, False]
        assert got(store, range(3))[0] == []
        assert slow.calls == calls
        clock.now += 1.0
        assert held_seconds(lambda: store.leading_run(names)) < DEADLINE_SECONDS + SLACK_SECONDS
        assert slow.calls == calls + 1
        found = store.statistics()
        assert (found.given_up_calls, found.rests, found.is_resting) == (2, 2, True)


def test_a_get_that_was_given_up_writes_to_no_memory_of_its_caller() -> None:
    """When the store goes on, the call fills memory of its own, which nobody else had meanwhile."""
    with guarded() as (store, slow, clock):
        put(store, range(3))
        slow.stop()
        good, buffers = got(store, range(3))
        assert good == []
        assert store.statistics().late_calls == 1
        slow.go_on()
        wait_until(lambda: store.statistics().late_calls == 0)
        assert buffers == [bytearray(LENGTH)] * 3
        clock.now += 1.0
        assert got(store, range(3))[0] == [0, 1, 2]


def test_a_put_that_was_given_up_reads_none_of_its_callers_memory() -> None:
    """What is stored in the end is what was put, though the caller's memory changed since."""
    with guarded() as (store, slow, clock):
        slow.stop()
        content = bytearray(content_of(0, LENGTH))
        assert store.put([PagePut(name_of(0), (memoryview(content),))]) == [False]
        content[:] = bytes(LENGTH)
        slow.go_on()
        wait_until(lambda: store.statistics().late_calls == 0)
        clock.now += 1.0
        assert got(store, [0])[0] == [0]


def test_a_store_that_says_what_it_has_and_gives_nothing_stays_at_rest() -> None:
    """As Mooncake whose provider stands still: a look ends no rest, so that rests get longer."""
    with guarded() as (store, slow, clock):
        put(store, range(3))
        slow.runs.clear()
        names = [name_of(each) for each in range(3)]
        for rest in (1.0, 2.0, 4.0):
            assert store.leading_run(names) == 3
            assert got(store, range(3))[0] == []
            assert store.breaker.rest_seconds == rest
            assert store.leading_run(names) == 0
            clock.now += rest
        slow.go_on()
        assert store.leading_run(names) == 3
        assert store.statistics().is_resting
        assert got(store, range(3))[0] == [0, 1, 2]
        assert not store.statistics().is_resting


def test_calls_that_hang_for_good_are_few() -> None:
    """With so many of a kind no other is made, since each holds a block."""
    with guarded() as (store, slow, clock):
        slow.stop()
        for _ in range(MOST_LATE + 3):
            got(store, [0])
            clock.now += 60.0
        assert store.statistics().late_calls == MOST_LATE
        assert slow.calls == MOST_LATE


def test_what_a_request_waits_for_has_one_deadline_together() -> None:
    """A look, memory and a read, each of which hangs, last no longer than the deadline."""
    assert SHARES["look"] + SHARES["memory"] + SHARES["read"] <= 1
    with guarded() as (store, slow, _):
        slow.stop()
        store.deadline_seconds = 2.0
        seconds = held_seconds(lambda: got(store, [0]))
        assert SHARES["read"] * 2.0 <= seconds < SHARES["read"] * 2.0 + SLACK_SECONDS


def test_a_failure_is_a_miss_and_begins_a_rest(caplog: pytest.LogCaptureFixture) -> None:
    """The log says why, once, and when the store answers again."""
    with guarded() as (store, slow, clock), caplog.at_level(logging.INFO):
        put(store, range(3))
        slow.failure = "no such host"
        assert got(store, range(3))[0] == []
        assert put(store, range(1)) == [False]
        assert [each.getMessage() for each in caplog.records] == [
            "kvcanon's external store is left alone for 1 s: no such host"
        ]
        slow.failure = ""
        clock.now += 1.0
        assert got(store, range(3))[0] == [0, 1, 2]
        assert caplog.records[-1].getMessage() == "kvcanon's external store answers again"
        assert store.statistics().failed_calls == 1


def test_memory_that_cannot_be_registered_is_a_failure() -> None:
    """A client that takes no more memory is left alone, as one that does not answer."""

    def refuse(block: object) -> None:
        raise ExternalFailed("no more memory")

    with guarded() as (store, slow, _):
        store.memory.register = refuse
        assert put(store, range(2)) == [False, False]
        assert (slow.calls, store.statistics().rests) == (0, 1)


def test_a_client_that_hangs_while_it_takes_memory_holds_nobody() -> None:
    """Registering has the deadline of a call; the memory is used once it is known."""
    may_return, known = threading.Event(), list[int]()

    def hang(block: Bytes) -> None:
        may_return.wait()
        known.append(block.ctypes.data)

    with guarded() as (store, slow, clock):
        store.memory.register = hang
        assert held_seconds(lambda: put(store, range(2))) < DEADLINE_SECONDS + SLACK_SECONDS
        assert (slow.calls, store.statistics().given_up_calls) == (0, 1)
        may_return.set()
        wait_until(lambda: store.statistics().late_calls == 0)
        clock.now += 1.0
        assert put(store, range(2)) == [True, True]
        assert [block.ctypes.data for block in store.memory._free] == known


def test_new_blocks_are_registered_once() -> None:
    """A client knows each block, and a block is used again."""
    known: list[int] = []
    with guarded() as (store, *_):
        store.memory.register = lambda block: known.append(block.ctypes.data)
        put(store, range(3))
        got(store, range(3))
        assert len(known) == 1
        assert known == [store.memory._free[0].ctypes.data]
