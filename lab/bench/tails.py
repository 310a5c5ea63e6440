"""Times of single calls in a tree with so many nodes, when its pools are full.

First the tree is filled until nothing is free on either tier. Each eviction then frees a sixteenth
of what has to leave the device, since some caches look at all leaves in each. Then half of the
requests are new prompts, and half come again: those are on the device, on the host only, or gone.
Each new one evicts, and under a host tier much is loaded back.

A prompt has two pages and one token more. Eight prompts share their first page, so that eight
prompts are nine nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from random import Random
from time import perf_counter

from attrs import evolve

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell, HostSetup
from kvcanon.lab.bench.driver import Driver, MakeDriver, Prompt
from kvcanon.lab.bench.growth import random_tokens
from kvcanon.lab.bench.memory import set_back_peak
from kvcanon.lab.bench.throughput import Served, Throughput, settle_heap, warm_up
from kvcanon.spec.types import WritePolicy

PAGE_SIZE = 16
SHARING = 8
"""Prompts that share their first page."""
REQUESTS = 10_000
"""Requests whose calls are timed: ten of them are above the 99.9th percentile."""
BULKS = 16
"""Evictions while a tree is filled."""
NODES = (10_000, 100_000, 1_000_000)


def tail_cell(host: HostSetup | None, nodes: int) -> BenchCell:
    """Return pools that hold a tree of so many nodes of a page each; the host is the larger one.

    Under write_back a node is on one tier, else the host has all nodes.
    """
    if host is None:
        return BenchCell(PAGE_SIZE, nodes * PAGE_SIZE)
    on_device = nodes // (3 if host.write_policy is WritePolicy.WRITE_BACK else 2)
    on_host = 2 * on_device * PAGE_SIZE
    return BenchCell(
        PAGE_SIZE, on_device * PAGE_SIZE, host=evolve(host, tokens=on_host, swa_tokens=0)
    )


def tails(
    make: MakeDriver[Prompt],
    cell: BenchCell,
    options: Mapping[str, str],
    nodes: int,
    seconds: float,
    *,
    requests: int = REQUESTS,
) -> Throughput:
    """Fill a new cache with so many nodes, then time the calls of some requests.

    No request begins after so many seconds.
    """
    load = os.getloadavg()[0]
    warm_up(make, cell, options)
    settle_heap()
    base = set_back_peak()
    driver = make(cell, options)
    fresh = _fill(driver, cell, nodes)
    timed, random = Served(driver, cell), Random(0)
    until = perf_counter() + seconds
    for turn in range(requests):
        if perf_counter() > until:
            break
        again = turn % 2 == 1
        request = _request(int(random.random() * fresh) if again else fresh)
        fresh += not again
        timed.serve(request, driver.prepare(request), last=turn == requests - 1)
    return timed.result(requests, base, load)


def _fill(driver: Driver[Prompt], cell: BenchCell, nodes: int) -> int:
    """Insert prompts of so many nodes in all; returns how many they are."""
    filling = Served(driver, cell)
    driver.spare_pages = max(0, nodes - cell.pool_tokens // cell.page_size) // BULKS
    prompts = nodes * SHARING // (SHARING + 1)
    for number in range(prompts):
        request = _request(number)
        filling.serve(request, driver.prepare(request))
    driver.spare_pages = 0
    return prompts


def _request(number: int) -> Request:
    return Request(2 * PAGE_SIZE + 1, partial(_tokens, number))


def _tokens(number: int) -> tuple[int, ...]:
    shared = random_tokens(f"group {number // SHARING}", PAGE_SIZE)
    return shared + random_tokens(f"prompt {number}", PAGE_SIZE + 1)
