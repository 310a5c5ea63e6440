"""Measures kvcanon.live: encoding, publishing beside matches, folding, and the ledger's memory.

Times are those of the processor, so that other work on the machine counts little.

PYTHONPATH=tests:tests/helpers python -m meta.stream_speed [--blocks 10000000]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from array_api import insert
from kvcanon.live import Follower, Publisher
from kvcanon.live.audit import audit
from kvcanon.live.follower import FollowerConfig
from kvcanon.live.recording import StreamRecorder, open_recording
from kvcanon.live.subscriber import Frame, Source, Subscriber
from kvcanon.live.watch import StreamWatch
from kvcanon.optimized import PrefixCache
from kvcanon.optimized._core import PackedEvents
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts

VOCABULARY = 150_000
PAGE_EVENTS = 200_000
SECONDS = 3.0
STEP_S = 0.005
"""Between two rounds of matches, in which a scheduler waits for a step of its model."""


class Churn:
    """A cache whose prompts come and go, a batch of events each."""

    def __init__(self, page_size: int, prompt_pages: int, slots: int) -> None:
        config = CacheConfig(page_size=page_size, device_slots=Counts(slots), write_policy="none")
        self.cache = PrefixCache(config)
        self._pages, self._drawn = prompt_pages, np.random.default_rng(1)
        self._tokens = page_size * prompt_pages

    def prompt(self) -> np.ndarray[tuple[int, ...], np.dtype[np.uint32]]:
        """A new prompt."""
        return self._drawn.integers(0, VOCABULARY, self._tokens, dtype=np.uint32)

    def step(self) -> PackedEvents:
        """Insert a prompt, after an eviction where there is no room; the events."""
        if self.cache.free_slot_counts()[0] < self._pages:
            self.cache.evict(2 * self._pages)
        insert(self.cache, self.prompt())
        return self.cache.take_packed_events()


def rate(work: Callable[[], int], seconds: float = 2.0) -> float:
    """How much of something is done in a second of this thread's time."""
    began, done = time.thread_time(), 0
    while (passed := time.thread_time() - began) < seconds:
        done += work()
    return done / passed


def encoding() -> None:
    """How fast events are taken and encoded."""
    for page_size in (16, 64):
        packed = Churn(page_size, 500, 100_000).step()
        speed = rate(lambda packed=packed: len(packed.encode(0, 1.0, 0)) and packed.pages)  # type: ignore[misc]
        print(f"encode, pages of {page_size}: {speed:,.0f} page events a second")


def publishing() -> None:
    """What a publisher that sends 200,000 page events a second does to matches."""
    churn = Churn(16, 400, 200_000)
    prompts = []
    for _ in range(50):
        prompts.append(churn.prompt())
        insert(churn.cache, prompts[-1])
    churn.cache.take_packed_events()
    batches = [Churn(16, 100, 10_000).step() for _ in range(50)]
    for label in ("without", "with") * 3:
        with Publisher("tcp://127.0.0.1:*", binds_endpoint=True) as sender:
            times, sent, began = [], 0, time.perf_counter()
            while (passed := time.perf_counter() - began) < SECONDS:
                for prompt in prompts:
                    before = time.thread_time_ns()
                    churn.cache.match(prompt)
                    times.append(time.thread_time_ns() - before)
                # As many page events as time has passed for; and what a step of a model takes.
                while label == "with" and sent < passed * PAGE_EVENTS:
                    batch = batches[sent % len(batches)]
                    sender.publish(batch)
                    sent += batch.pages
                time.sleep(STEP_S)
            seconds = time.perf_counter() - began
            counts = sender.counts()
        print(
            f"match {label} publisher: median {statistics.median(times) / 1000:.2f} us, mean "
            f"{statistics.fmean(times) / 1000:.2f} us, {sent / seconds:,.0f} page events a second, "
            f"{counts.waiting_pages} waiting at the end"
        )
    with Publisher("tcp://127.0.0.1:*", binds_endpoint=True) as sender:
        start, pages = time.process_time(), 0
        while time.process_time() - start < 3:
            pages += batches[0].pages
            sender.publish(batches[0])
        sender.close()
        spent = time.process_time() - start
        print(f"publish as fast as it goes: {pages / spent:,.0f} page events a second of one core")


def folding() -> None:
    """How fast a recording is audited."""
    for page_size, prompt_pages in ((16, 500), (16, 8), (64, 200)):
        churn = Churn(page_size, prompt_pages, 100_000)
        with TemporaryDirectory() as folder:
            path = Path(folder) / "a.kvstream"
            with StreamRecorder(path, [Source("tcp://x:1")]) as recorder:
                pages = number = 0
                while pages < 500_000:
                    packed = churn.step()
                    pages += packed.pages
                    payload = packed.encode(0, 1.0, 0)
                    recorder.write(Frame(0, b"", number, payload, 1.0))
                    number += 1
            before = time.thread_time()
            assert not audit(open_recording(path)).total
            seconds = time.thread_time() - before
            print(
                f"audit, pages of {page_size}, {pages / number:.0f} a batch: "
                f"{pages / seconds:,.0f} page events a second, "
                f"{path.stat().st_size / pages:.0f} bytes of file each"
            )


def watching() -> None:
    """How fast a watch receives and folds what a publisher sends over TCP."""
    for page_size, prompt_pages in ((16, 500), (64, 200)):
        churn = Churn(page_size, prompt_pages, 100_000)
        batches = [churn.step()]
        while sum(each.pages for each in batches) < 500_000:
            batches.append(churn.step())
        anywhere = "tcp://127.0.0.1:*"
        with (
            Publisher(anywhere, replay_endpoint=anywhere, binds_endpoint=True) as sender,
            Subscriber([Source(sender.endpoint, sender.replay_endpoint)]) as subscriber,
        ):
            watch = StreamWatch(subscriber, FollowerConfig())
            waiting = iter(batches)
            while not watch.fold.followers:
                sender.publish(next(waiting))
                watch.step(0.1)
            for batch in waiting:
                sender.publish(batch)
            counts = watch.fold.followers[0].counts
            seen, spent = counts.pages, 0.0
            while counts.batches < len(batches):
                before = time.thread_time()
                assert not watch.step(1.0)
                spent += time.thread_time() - before
            print(
                f"watch, pages of {page_size}, {prompt_pages} a prompt: "
                f"{(counts.pages - seen) / spent:,.0f} page events a second"
            )


def memory(blocks: int) -> None:
    """The ledger's bytes a block, and whether they stay flat while blocks come and go."""
    churn = Churn(4, 1000, blocks)
    follower = Follower()
    before = resident()
    stored = number = 0
    while stored < 2 * blocks:
        packed = churn.step()
        assert not follower.take(number, packed.encode(0, 1.0, 0))
        number += 1
        if stored // (blocks // 4) != (stored + 1000) // (blocks // 4):
            counts = follower.books()[0].counts
            held = counts["distinct"]
            print(
                f"{stored + 1000:,} stored, {held:,} held: {counts['bytes'] / held:.0f} bytes a "
                f"block; process {(resident() - before) / 1e6:,.0f} MB with its cache"
            )
        stored += 1000


def resident() -> int:
    """The memory of this process, at most, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure what is asked for."""
    options = argparse.ArgumentParser()
    options.add_argument("--blocks", type=int, default=1_000_000)
    parts: dict[str, Callable[[], None]] = {
        "encoding": encoding,
        "publishing": publishing,
        "folding": folding,
        "watching": watching,
        "memory": lambda: memory(given.blocks),
    }
    options.add_argument("--only", choices=tuple(parts))
    given = options.parse_args()
    for name, part in parts.items():
        if given.only in {None, name}:
            part()


if __name__ == "__main__":
    main()
