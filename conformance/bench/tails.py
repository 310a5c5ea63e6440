"""Times of single calls in a tree with so many nodes, when its pools are full.

First the tree is filled until nothing is free. Then half of the requests are new prompts, and half
come again: those are on the device, on the host only, or gone. Each new one evicts, and
under a host tier much is loaded back.

A prompt has two pages and one token more. Eight prompts share their first page, so that eight
prompts are nine nodes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from random import Random

from attrs import evolve

from kvcanon.conformance.bench.case import BenchCell, HostTier
from kvcanon.conformance.bench.driver import MakeDriver, Prompt
from kvcanon.conformance.bench.growth import random_tokens
from kvcanon.conformance.bench.memory import set_back_peak
from kvcanon.conformance.bench.throughput import Served, Throughput, settle_heap, warm_up
from kvcanon.conformance.bench.workloads.request import Request
from kvcanon.spec.types import WritePolicy

PAGE_SIZE = 16
SHARING = 8
"""Prompts that share their first page."""
REQUESTS = 10_000
"""Requests whose calls are timed: ten of them are above the 99.9th percentile."""
NODES = (10_000, 100_000, 1_000_000)


def tail_cell(host: HostTier | None, nodes: int) -> BenchCell:
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
    requests: int = REQUESTS,
) -> Throughput:
    """Fill the tree of a new cache with so many nodes, then time the calls of some requests."""
    load = os.getloadavg()[0]
    warm_up(make, cell, options)
    settle_heap()
    base = set_back_peak()
    driver = make(cell, options)
    filling = Served(driver, cell)
    # That makes nine nodes of eight requests: more than fit, so that both pools are full.
    for number in range(nodes):
        request = _request(number)
        filling.serve(request, driver.prepare(request))
    timed, random = Served(driver, cell), Random(0)
    newest = nodes
    for turn in range(requests):
        again = turn % 2 == 1
        request = _request(int(random.random() * newest) if again else newest)
        newest += not again
        timed.serve(request, driver.prepare(request), last=turn == requests - 1)
    return timed.result(requests, base, load)


def _request(number: int) -> Request:
    return Request(2 * PAGE_SIZE + 1, partial(_tokens, number))


def _tokens(number: int) -> tuple[int, ...]:
    shared = random_tokens(f"group {number // SHARING}", PAGE_SIZE)
    return shared + random_tokens(f"prompt {number}", PAGE_SIZE + 1)
