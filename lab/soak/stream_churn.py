"""Churn: a publisher and `kvcanon watch` for an hour, while blocks and namespaces come and go.

A cache is filled, and then gives way prompt after prompt, a third of them in a namespace of their
own. Each minute the memory of both processes is printed. The run fails if memory grows after the
first minutes, if a batch is lost or malformed, if a law is broken, or if the watch does not hold
the blocks that the cache holds.

Run it as `make churn CHURN_MINUTES=10`, or with `--blocks` and `--rate` to use less of the machine.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import urllib.request
from time import monotonic, sleep

import numpy as np

from kvcanon.lab.bench.event_churn import VOCABULARY, EventChurn, PackedBatch
from kvcanon.lab.bench.memory import resident_bytes
from kvcanon.lab.servers.server_process import free_ports
from kvcanon.live import Publisher
from kvcanon.spec.types import Namespace

PAGE = 4
PROMPT_PAGES = 1000
SHARED_PAGES = 300
"""Pages at the beginning that a prompt has in common with one in twenty others."""
GROWTH_BYTES = 32 << 20
"""By how much memory may be above that of the first minutes: what allocators keep."""
SETTLING_MINUTES = 3
REPLAYED_BATCHES = 1000
"""So few that the publisher keeps as many from the first minutes on."""
FAULTS = ("violations", "malformed", "lost", "gaps", "repeated", "restarts")


class SharedChurn(EventChurn):
    """Prompts that come and go, with beginnings in common, in ever new namespaces."""

    def __init__(self, blocks: int) -> None:
        super().__init__(PAGE, PROMPT_PAGES, blocks)
        self._beginnings = [self.prompt()[: SHARED_PAGES * PAGE] for _ in range(20)]
        self._tenants = 0

    def step(self) -> PackedBatch:
        """Insert a prompt, after an eviction where there is no room; the events."""
        self.make_room()
        namespace = None
        if self._drawn.random() < 1 / 3:
            self._tenants += 1
            namespace = Namespace(cache_salt=f"tenant {self._tenants}")
        beginning = self._beginnings[int(self._drawn.integers(len(self._beginnings)))]
        own = self._drawn.integers(
            0, VOCABULARY, (PROMPT_PAGES - SHARED_PAGES) * PAGE, dtype=np.uint32
        )
        self.insert(np.r_[beginning, own], namespace)
        events: PackedBatch = self.cache.take_packed_events()
        return events


def scrape(port: int) -> dict[str, float]:
    """The metrics of the watch, summed over their labels, without the prefix of their names."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    metrics: dict[str, float] = {}
    for name, value in re.findall(
        r"^kvcanon_[a-z]+_(\w+?)(?:_total)?\{.*\} (\S+)$", text, re.MULTILINE
    ):
        metrics[name] = metrics.get(name, 0.0) + float(value)
    return metrics


def caught_up(port: int, batches: int) -> dict[str, float]:
    """The metrics once the watch has folded so many batches. Raises: SystemExit."""
    ends = monotonic() + 120
    while monotonic() < ends:
        metrics = scrape(port)
        if metrics.get("batches", 0.0) >= batches:
            return metrics
        sleep(0.2)
    sys.exit("the watch does not keep up")


def first_frame(port: int, sender: Publisher, churn: SharedChurn) -> None:
    """Publish until the watch has a batch; from then on it misses none."""
    ends = monotonic() + 60
    while monotonic() < ends:
        sender.publish(churn.step())
        sleep(0.5)
        try:
            if scrape(port).get("batches"):
                return
        except OSError:
            continue
    sys.exit("the watch does not start")


def run(
    churn: SharedChurn, sender: Publisher, watching: int, port: int, given: argparse.Namespace
) -> int:
    """Fill the cache, churn, and print each minute. Returns the exit status."""
    first_frame(port, sender, churn)
    began, pages, told, level = monotonic(), 0, 0, [0, 0]
    full = False
    while True:
        packed = churn.step()
        sender.publish(packed)
        if not full:
            full = churn.cache.free_slot_counts()[0] < 2 * PROMPT_PAGES
            if full:
                began = monotonic()
            continue
        pages += packed.pages
        sleep(max(0.0, pages / given.rate - (monotonic() - began)))
        if monotonic() - began < told * 60:
            continue
        metrics = caught_up(port, sender.counts().published)
        held = given.blocks - churn.cache.free_slot_counts()[0]
        used = [resident_bytes(), resident_bytes(watching)]
        print(
            f"minute {told}: publisher {used[0] / 2**20:.1f} MiB, watch {used[1] / 2**20:.1f} MiB "
            f"({metrics['ledger_bytes'] / held:.0f} bytes a block in its ledger), {held:,} blocks, "
            f"{pages:,} page events since they were all taken",
            flush=True,
        )
        wrong = {name: metrics[name] for name in FAULTS if metrics.get(name)}
        if wrong or metrics["blocks"] != held:
            print(f"the watch holds {metrics['blocks']:,.0f} blocks; {wrong}", file=sys.stderr)
            return 1
        if told <= SETTLING_MINUTES:
            level = [max(pair) for pair in zip(level, used, strict=True)]
        elif any(now > before + GROWTH_BYTES for now, before in zip(used, level, strict=True)):
            print(f"memory grows: {level} bytes were enough before", file=sys.stderr)
            return 1
        if told >= given.minutes:
            return 0
        told += 1


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Publish and watch for an hour; memory is flat.")
    parser.add_argument("--minutes", type=float, default=60, help="how long (default: an hour)")
    parser.add_argument("--blocks", type=int, default=10_000_000, help="how many are held")
    parser.add_argument("--rate", type=int, default=20_000, help="page events a second")
    given = parser.parse_args()
    (port,) = free_ports(1)
    anywhere = "tcp://127.0.0.1:*"
    with Publisher(
        anywhere, replay_endpoint=anywhere, binds_endpoint=True, replay_batches=REPLAYED_BATCHES
    ) as sender:
        command = [sys.executable, "-m", "kvcanon", "watch", sender.endpoint]
        options = ["--replay", str(sender.replay_endpoint), "--metrics-port", str(port)]
        watching = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        try:
            status = run(SharedChurn(given.blocks), sender, watching.pid, port, given)
        finally:
            watching.terminate()
            watching.wait(60)
    sys.exit(status)


if __name__ == "__main__":
    main()
