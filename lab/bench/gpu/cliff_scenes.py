"""Scenes of `bench cliffs` on the device alone: sequences of calls that make trees costly.

Each scene makes a tree of about `nodes` nodes, and then the calls that a worst client would make.
Prompts that grow or shrink have at most a quarter as many pages, and at most `DEPTH`, since their
sequences name the square of it.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from kvcanon.lab.bench.gpu.cliff_ground import CliffGround, branch, leaf
from kvcanon.lab.bench.gpu.stopwatch import Stopwatch
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, Namespace

DEPTH = 8000
CHAIN = 1000
"""Nodes of each chain in trees of many chains."""


def depth_of(nodes: int) -> int:
    """How many pages a prompt has at the end that grows page by page, beside so large a tree."""
    return min(max(nodes // 4, 4), DEPTH)


def wide(watch: Stopwatch, nodes: int) -> None:
    """All nodes are children of the root; all are locked and unlocked, then half are evicted."""
    ground = CliffGround(CacheConfig(device_slots=Counts(full=nodes), events=False), watch)
    for number in range(nodes):
        ground.insert(leaf(number))
    for number in range(nodes):
        ground.match(leaf(number))
    receipts = [ground.lock(leaf(number)) for number in range(nodes)]
    ground.evict(1, named="evict, all locked")
    for receipt in receipts[::2]:
        ground.unlock(receipt, 1)
    for receipt in receipts[1::2]:
        ground.unlock(receipt, 1)
    for _ in range(nodes // 4):
        ground.evict(1)
    ground.evict(nodes // 4, named="evict many")
    ground.reset()
    ground.insert(leaf(0))
    ground.reset("reset, small again")


def touched(watch: Stopwatch, nodes: int) -> None:
    """Leaves are used again in many orders, and one of them is evicted after each."""
    ground = CliffGround(CacheConfig(device_slots=Counts(full=nodes), events=False), watch)
    for number in range(nodes):
        ground.insert(leaf(number))
    order = np.random.default_rng(0).permutation(nodes).tolist()
    for turn in (range(nodes), range(nodes - 1, -1, -1), order):
        for number in turn:
            ground.match(leaf(number))
        ground.evict(1)
        ground.evict(1)


def growing(watch: Stopwatch, nodes: int) -> None:
    """A prompt grows page by page; events are taken rarely."""
    depth = depth_of(nodes)
    ground = CliffGround(CacheConfig(device_slots=Counts(full=depth)), watch)
    prompt = np.arange(depth, dtype=np.uint32)
    for pages in range(1, depth + 1):
        ground.insert(prompt[:pages], pages - 1)
        if pages * 4 % depth == 0:
            ground.take_events()
    ground.match(prompt)
    receipt = ground.lock(prompt)
    ground.unlock(receipt, depth)
    for _ in range(depth):
        ground.evict(1)
    ground.take_events("take_events, removals")


def shrinking(watch: Stopwatch, nodes: int) -> None:
    """Ever shorter prefixes cut a prompt into nodes of a page; then the whole of it is used."""
    depth = depth_of(nodes)
    ground = CliffGround(CacheConfig(device_slots=Counts(full=2 * depth), events=False), watch)
    prompt = np.arange(2 * depth, dtype=np.uint32)
    ground.insert(prompt)
    for pages in range(2 * depth - 1, depth, -1):
        ground.match(prompt[:pages], "match that cuts")
    for _ in range(20):
        ground.match(prompt)
        ground.unlock(ground.lock(prompt), 2 * depth)
    for _ in range(depth // 2):
        ground.evict(1)


def chains(watch: Stopwatch, nodes: int) -> None:
    """Many deep chains; leaves are locked at several depths, and evicted one by one."""
    depth = min(nodes, CHAIN)
    count = nodes // depth
    config = CacheConfig(device_slots=Counts(full=nodes + depth), events=False)
    ground = CliffGround(config, watch)
    for number in range(count):
        prompt = branch(number, depth)
        ground.insert(prompt)
        for pages in range(depth - 1, 0, -1):
            ground.match(prompt[:pages], "match that cuts")
    for number in range(count):
        prompt = branch(number, depth)
        receipts = [ground.lock(prompt[:pages]) for pages in range(1, depth, depth // 10 or 1)]
        ground.match(prompt)
        ground.evict(1)
        for receipt in receipts:
            ground.unlock(receipt, depth)
    for _ in range(min(nodes // 2, 100_000)):
        ground.evict(1)
    ground.reset()


def fragments(watch: Stopwatch, nodes: int) -> None:
    """A prompt has a run of slots for each page, and short prefixes cut it."""
    ground = CliffGround(CacheConfig(device_slots=Counts(full=2 * nodes), events=False), watch)
    full, _, _ = ground.cache.allocate(2 * nodes)
    prompt = np.arange(nodes, dtype=np.uint32)
    slots = full[::2][::-1].copy()
    watch.time("insert of runs", lambda: ground.cache.insert(prompt, 0, slots), nodes)
    for pages in range(1, min(nodes, 1000)):
        ground.match(prompt[:pages], "match that cuts")
    for pages in range(nodes - 1, nodes - min(nodes // 2, 20), -1):
        ground.match(prompt[:pages], "match that cuts")
    watch.time("free of runs", lambda: ground.cache.free(full[1::2].copy()), nodes)
    ground.evict(1)


def windows(watch: Stopwatch, nodes: int) -> None:
    """Window data and states leave one by one, come back, and are locked and released."""
    size = Counts(full=2 * nodes, swa=2 * nodes, mamba=nodes)
    config = CacheConfig(window_tokens=2, mamba=True, device_slots=size, events=False)
    ground = CliffGround(config, watch)
    for number in range(nodes // 2):
        ground.insert(branch(number, 2))
        ground.insert(branch(number, 4), 2)
    for number in range(0, nodes // 2, 5):
        prompt = branch(number, 4)
        receipt = ground.lock(prompt)
        watch.time("unlock_window", partial(ground.cache.unlock_window, receipt), 4)
        ground.unlock(receipt, 4)
    for _ in range(nodes // 4):
        ground.evict(0, 1, named="evict window")
        ground.evict(0, 0, 1, named="evict state")
    for number in range(0, nodes // 2, 5):
        ground.match(branch(number, 4))
    ground.evict(nodes // 4, nodes // 4, named="evict many")
    ground.reset()


def namespaces(watch: Stopwatch, nodes: int) -> None:
    """Each prompt is in a namespace of its own."""
    ground = CliffGround(CacheConfig(device_slots=Counts(full=nodes), events=False), watch)
    for number in range(nodes):
        salt = Namespace(cache_salt=f"{number:x}")
        at = watch.time("namespace", partial(ground.cache.namespace, salt), 1)
        ground.insert(leaf(0), namespace=at)
    ground.evict(nodes // 2, named="evict many")
    ground.reset()


def pending(watch: Stopwatch, nodes: int) -> None:
    """Events of many leaves wait to be taken."""
    ground = CliffGround(CacheConfig(device_slots=Counts(full=nodes)), watch)
    for number in range(nodes):
        ground.insert(leaf(number))
    ground.take_events()
    ground.evict(nodes, named="evict many")
    ground.take_events("take_events, removals")
