"""Soak: hours of requests of ever new clients, with faults, interrupts and resets.

Nobody takes the events most of the time, copies fail, calls are interrupted, threads die, and
memory is printed each minute. The run fails if memory grows, or if a call never returns.

Run it as `make soak SOAK_MINUTES=10`.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import logging
import random
import signal
import sys
from collections.abc import Callable
from threading import Timer
from time import monotonic

import numpy as np
from attrs import define, field

from kvcanon.lab.bench.memory import resident_bytes
from kvcanon.optimized import PrefixCache
from kvcanon.optimized.layout import PageLayout
from kvcanon.optimized.pools import Pools
from kvcanon.optimized.threaded_engine import ThreadedEngine, _MemcpyWorker
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy, CacheError, CacheUnusable, OutOfSlots
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import Direction, TransferOrder
from kvcanon.spec.types import FULL, SWA, Counts, Namespace, TransferId

PAGE = 4
SLOTS = 2000
GROWTH_BYTES = 16 << 20
"""By how much memory may be above that of the first tenth of the run: what allocators keep."""
STUCK_S = 120
"""No call of the cache takes so long; a run in which one does ends with all stacks."""

Tokens = np.typing.NDArray[np.int32]


class CopyFault(Exception):
    """What a copy raises."""


class SoakWorker(_MemcpyWorker):
    """A worker some of whose copies fail, and whose thread dies now and then."""

    faults: random.Random
    deaths: int = 0

    def perform(self, order: TransferOrder) -> None:
        """Perform most orders."""
        if self.faults.random() < 0.01:
            raise CopyFault
        super().perform(order)

    def end(self, transfer_id: TransferId, *, ok: bool) -> None:
        """End most orders."""
        if self.faults.random() < 2e-5:
            self.deaths += 1
            raise MemoryError("no memory to end an order with")
        super().end(transfer_id, ok=ok)


class SoakEngine(ThreadedEngine):
    """An engine of such workers."""

    def __init__(self, seed: int) -> None:
        workers = {each: SoakWorker(direction=each, group_bytes=1) for each in Direction}
        for number, worker in enumerate(workers.values()):
            worker.faults = random.Random(seed + number)
        super(ThreadedEngine, self).__init__(workers)
        self.start()

    @property
    def deaths(self) -> int:
        """How many threads have died."""
        workers = self._workers.values()
        return sum(each.deaths for each in workers if isinstance(each, SoakWorker))


@define
class Soak:
    """A cache, and what its clients hold."""

    cache: PrefixCache
    draw: random.Random
    receipts: list[int] = field(factory=list)
    clients: int = 0
    done: dict[str, int] = field(factory=dict)

    def count(self, what: str) -> None:
        """Count something that happened."""
        self.done[what] = self.done.get(what, 0) + 1

    def prompt(self) -> Tokens:
        """A prompt that shares its beginning with many others."""
        start = self.draw.randrange(20) * 1000
        tail = self.draw.randrange(1, 1 << 30)
        own = [tail + at for at in range(self.draw.randrange(0, 40))]
        return np.array([*range(start, start + self.draw.randrange(4, 200)), *own], dtype=np.int32)

    def namespace(self) -> int:
        """The number of a namespace: of a new client, mostly."""
        if self.draw.random() < 0.3:
            return 0
        self.clients += 1
        return self.cache.namespace(Namespace(cache_salt=f"{self.clients:032x}"))

    def request(self) -> None:
        """Match, lock, compute, insert, unlock: the life of a request."""
        tokens, namespace, cache = self.prompt(), self.namespace(), self.cache
        found = cache.match(tokens, namespace)
        if found.prefix_pages > found.device_pages:
            cache.load_back(tokens[: found.prefix_pages * PAGE], None, namespace)
        pages = len(tokens) // PAGE - found.device_pages
        try:
            slots = cache.allocate(pages, pages)
        except OutOfSlots:
            cache.evict(pages, pages)
            cache.poll()
            self.count("short of slots")
            return
        try:
            cache.insert(tokens, found.device_pages, *slots, namespace=namespace)
            if self.draw.random() < 0.5:
                self.receipts.append(cache.lock(tokens, namespace))
        except CacheError as refusal:
            cache.free(*slots)
            self.count(type(refusal).__name__)

    def release(self) -> None:
        """Release all receipts but the latest."""
        while len(self.receipts) > 8:
            self.cache.unlock(self.receipts.pop(0))

    def forget_interrupted(self) -> None:
        """Release what the requests had that an interrupt ended, wherever it came."""
        self.receipts.clear()
        for receipt, _, _, _, transfer in self.cache.tree.holds():
            if transfer is None:
                self.cache.unlock(receipt)
        full, swa = (np.array(self.cache.tree.pool(each, 0)[2], np.int32) for each in (0, 1))
        self.cache.free(full, swa)

    def fetch(self) -> None:
        """Place fetched pages on the host."""
        tokens = self.prompt()
        pages = len(tokens) // PAGE
        payload = HostPayload((bytes(64),) * pages)
        self.cache.insert_host(tokens, 0, payload, self.namespace())

    def reset(self) -> None:
        """Forget everything."""
        self.release()
        while self.receipts:
            self.cache.unlock(self.receipts.pop())
        self.cache.flush()
        try:
            self.cache.reset()
            self.count("reset")
        except CacheBusy:
            self.count("busy")

    def recover(self) -> None:
        """Reset a closed cache: all receipts are void, and slots that are held can be freed."""
        self.cache.reset()
        self.forget_interrupted()
        self.count("recovered")

    def step(self) -> None:
        """Make some calls."""
        chance = self.draw.random()
        if chance < 0.9:
            self.request()
        elif chance < 0.95:
            self.fetch()
        elif chance < 0.96:
            self.cache.evict(self.draw.randrange(SLOTS))
        elif chance < 0.97:
            self.cache.evict_host(self.draw.randrange(SLOTS))
        elif chance < 0.9705:
            self.cache.take_events()
            self.count("events taken")
        elif chance < 0.971:
            self.reset()
        else:
            self.cache.poll()
        self.release()


def interrupted(work: Callable[[], None], after_s: float) -> None:
    """Do some work while Ctrl-C is pressed. Raises: KeyboardInterrupt, unless it came too late."""
    timer = Timer(after_s, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    try:
        work()
        timer.join()
    finally:
        timer.join()


def some_steps(soak: Soak) -> None:
    """Fifty steps, some of them interrupted; whatever happens is what an engine handles."""

    def steps() -> None:
        for _ in range(50):
            soak.step()

    try:
        if soak.draw.random() < 0.02:
            interrupted(steps, soak.draw.random() / 100)
        else:
            steps()
    except KeyboardInterrupt:
        soak.count("interrupted")
        try:
            soak.forget_interrupted()
        except CacheUnusable:  # Bytes of fetched pages were being written.
            soak.recover()
    except CacheError as refusal:
        soak.count(type(refusal).__name__)
    except CacheUnusable:
        soak.recover()


def run(minutes: float, seed: int) -> int:
    """Soak for some minutes, and print each. Returns the exit status."""
    config = CacheConfig(
        page_size=PAGE,
        window_tokens=3 * PAGE,
        device_slots=Counts(full=SLOTS, swa=SLOTS),
        host_slots=Counts(full=SLOTS, swa=SLOTS),
        write_policy="write_through_selective",
        max_pending_events=20_000,
    )
    layout = PageLayout(1, (64,))
    engine = SoakEngine(seed)
    soak = Soak(
        PrefixCache(config, Pools(config, {FULL: layout, SWA: layout}), engine),
        random.Random(seed),
    )
    began, told, level = monotonic(), 0, 0
    while (now := monotonic() - began) < minutes * 60:
        faulthandler.dump_traceback_later(STUCK_S, exit=True)
        some_steps(soak)
        if now < told * 60:
            continue
        told += 1
        gc.collect()
        used = resident_bytes()
        soak.cache.tree.check()
        if now <= minutes * 6 + 60:
            level = max(level, used)
        counters = soak.cache.tree.counters()
        print(
            f"minute {told - 1}: {used / 2**20:.1f} MiB, {soak.clients} clients, "
            f"{counters['namespaces']} namespaces, {counters['nodes']} nodes, "
            f"{counters['pending_events']} events, {engine.deaths} dead threads, {soak.done}",
            flush=True,
        )
        if used > level + GROWTH_BYTES:
            print(f"memory grows: {level / 2**20:.1f} MiB was enough before", file=sys.stderr)
            return 1
    faulthandler.cancel_dump_traceback_later()
    engine.close()
    return 0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Use the fast cache for hours; memory stays flat.")
    parser.add_argument("--minutes", type=float, default=120, help="how long (default: two hours)")
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn (default: 1)")
    asked = parser.parse_args()
    # A process that a script starts in the background ignores Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logging.disable(logging.CRITICAL)  # Copies that fail are meant to.
    sys.exit(run(asked.minutes, asked.seed))


if __name__ == "__main__":
    main()
