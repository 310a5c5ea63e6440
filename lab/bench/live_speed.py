"""Measures kvcanon.live: encoding, publishing beside matches, folding, and the ledger's memory.

Times are those of the processor, so that other work on the machine counts little.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import frozen

from kvcanon.lab.bench.event_churn import EventChurn
from kvcanon.lab.bench.memory import resident_bytes
from kvcanon.live import Follower, Publisher
from kvcanon.live.audit import audit
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Frame, Source
from kvcanon.live.stream_recording import StreamRecorder, open_recording
from kvcanon.live.subscriber import Subscriber
from kvcanon.live.watch import StreamWatch

ANYWHERE = "tcp://127.0.0.1:*"
SLOTS = 100_000
PROMPT_TOKENS = 8_000
SMALL_PROMPT_TOKENS = 128
STEP_S = 0.005
"""Between two rounds of matches, in which a scheduler waits for a step of its model."""
MATCHED_PROMPTS = 50
MATCHED_TOKENS = 6_400
MEMORY_PAGE = 4
LEAST_BATCHES = 20
"""Some arrive before a watch is timed."""


class WrongFold(AssertionError):
    """The stream that is measured broke a law, or lost a batch: there is no figure."""


@frozen
class StreamRate:
    """How many page events, stores and removes of one block, in a second of one core."""

    page_size: int
    batch_pages: float
    """Page events in a batch."""
    per_second: float
    file_bytes: float = 0.0
    """Bytes of a recording for each; 0 where none is made."""


@frozen
class MatchBeside:
    """Times of a match, in rounds without a publisher and with one, in turns."""

    without_us: tuple[float, ...]
    """The median of each round."""
    with_us: tuple[float, ...]
    published_per_second: float
    """Page events that were published meanwhile."""

    @property
    def slowed(self) -> float:
        """By which share a match is slower: 0.01 for one percent."""
        return statistics.median(self.with_us) / statistics.median(self.without_us) - 1


@frozen
class LedgerMemory:
    """What the ledger of a watch takes, while blocks come and go."""

    blocks: int
    """Blocks that it holds at the end."""
    stored: int
    bytes_a_block: tuple[float, ...]
    """At each quarter of the blocks that were stored."""
    process_bytes: int
    """What the process grew by, with the cache that makes the events."""


def encode_rate(page_size: int, seconds: float) -> StreamRate:
    """How fast the native encoder is."""
    packed = EventChurn(page_size, _pages(PROMPT_TOKENS, page_size), SLOTS).step()
    began, done = time.thread_time(), 0
    while (passed := time.thread_time() - began) < seconds:
        packed.encode(0, 1.0, 0)
        done += packed.pages
    return StreamRate(page_size, packed.pages, done / passed)


def publish_rate(page_size: int, seconds: float) -> StreamRate:
    """How fast batches are published: caller, encoder and sockets together, on one core."""
    batch = EventChurn(page_size, 100, SLOTS).step()
    with Publisher(ANYWHERE, binds_endpoint=True) as sender:
        began, pages = time.process_time(), 0
        while time.process_time() - began < seconds:
            sender.publish(batch)
            pages += batch.pages
        sender.close()
        spent = time.process_time() - began
    return StreamRate(page_size, batch.pages, pages / spent)


def match_beside(page_size: int, seconds: float, rate: int, rounds: int) -> MatchBeside:
    """How long matches take beside a publisher that sends so many page events a second."""
    churn = EventChurn(page_size, _pages(MATCHED_TOKENS, page_size), 2 * SLOTS)
    prompts = [churn.prompt() for _ in range(MATCHED_PROMPTS)]
    for prompt in prompts:
        churn.insert(prompt)
    batches = [EventChurn(page_size, 100, 10_000).step() for _ in range(50)]
    medians: dict[bool, list[float]] = {False: [], True: []}
    rates = []
    for publishes in (False, True) * rounds:
        with Publisher(ANYWHERE, binds_endpoint=True) as sender:
            times, sent, began = [], 0, time.perf_counter()
            while (passed := time.perf_counter() - began) < seconds:
                for prompt in prompts:
                    before = time.thread_time_ns()
                    churn.cache.match(prompt)
                    times.append(time.thread_time_ns() - before)
                # As many page events as time has passed for; and what a step of a model takes.
                while publishes and sent < passed * rate:
                    batch = batches[sent % len(batches)]
                    sender.publish(batch)
                    sent += batch.pages
                time.sleep(STEP_S)
            if publishes:
                rates.append(sent / (time.perf_counter() - began))
        medians[publishes].append(statistics.median(times) / 1000)
    return MatchBeside(tuple(medians[False]), tuple(medians[True]), min(rates))


def audit_rate(page_size: int, prompt_tokens: int, events: int) -> StreamRate:
    """How fast a recording of so many page events is audited. Raises: WrongFold."""
    churn = EventChurn(page_size, _pages(prompt_tokens, page_size), SLOTS)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.kvstream"
        with StreamRecorder(path, [Source("tcp://x:1")]) as recorder:
            pages = number = 0
            while pages < events:
                packed = churn.step()
                pages += packed.pages
                recorder.write(Frame(0, b"", number, packed.encode(0, 1.0, 0), 1.0))
                number += 1
        began = time.thread_time()
        total = audit(open_recording(path)).streams.total
        spent = time.thread_time() - began
        size = path.stat().st_size
    if total:
        raise WrongFold(f"the audit of a sound stream found {total} violations")
    return StreamRate(page_size, pages / number, pages / spent, size / pages)


def watch_rate(page_size: int, events: int) -> StreamRate:
    """How fast a watch receives and folds what a publisher sends over TCP. Raises: WrongFold.

    The time is that of the thread that folds; ZeroMQ receives in another.
    """
    churn = EventChurn(page_size, _pages(PROMPT_TOKENS, page_size), SLOTS)
    batches = [churn.step()]
    while sum(each.pages for each in batches) < events or len(batches) < LEAST_BATCHES:
        batches.append(churn.step())
    with (
        Publisher(ANYWHERE, replay_endpoint=ANYWHERE, binds_endpoint=True) as sender,
        Subscriber([Source(sender.endpoint, sender.replay_endpoint)]) as subscriber,
    ):
        watch = StreamWatch(subscriber, Streams())
        waiting = iter(batches)
        while not watch.streams.followers:
            sender.publish(next(waiting))
            watch.step(0.1)
        for batch in waiting:
            sender.publish(batch)
        counts = watch.streams.followers[0].counts
        seen, spent = counts.pages, 0.0
        while counts.batches < len(batches):
            began = time.thread_time()
            found = watch.step(1.0)
            spent += time.thread_time() - began
            if found:
                words = f"{found[0].law_id}, {found[0].what}"
                raise WrongFold(f"the watch of a sound stream found {words}")
    folded = counts.pages - seen
    return StreamRate(page_size, folded / len(batches), folded / spent if spent else 0.0)


def ledger_memory(blocks: int) -> LedgerMemory:
    """The ledger's bytes a block, and whether they stay flat. Raises: WrongFold."""
    pages = min(1000, max(1, blocks // 8))
    churn = EventChurn(MEMORY_PAGE, pages, blocks)
    follower, before = Follower(), resident_bytes()
    stored = number = 0
    seen: list[float] = []
    while stored < 2 * blocks:
        if follower.take(Frame(0, b"", number, churn.step().encode(0, 1.0, 0), 1.0)):
            raise WrongFold("the ledger found a violation in a sound stream")
        number += 1
        stored += pages
        if stored * 4 // blocks > len(seen):
            counts = follower.books()[0].counts
            seen.append(counts["bytes"] / counts["distinct"])
    grown = resident_bytes() - before
    return LedgerMemory(follower.books()[0].counts["distinct"], stored, tuple(seen), grown)


def _pages(tokens: int, page_size: int) -> int:
    return max(1, tokens // page_size)
