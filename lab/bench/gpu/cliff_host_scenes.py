"""Scenes of `bench cliffs` with a host tier: full hosts, duplicates, copies in flight that fail."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from kvcanon.lab.bench.gpu.cliff_ground import CliffGround, branch, leaf
from kvcanon.lab.bench.gpu.cliff_scenes import CHAIN, depth_of
from kvcanon.lab.bench.gpu.stopwatch import Stopwatch
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy


def _config(nodes: int, policy: WritePolicy, host: int | None = None) -> CacheConfig:
    return CacheConfig(
        device_slots=Counts(full=nodes),
        host_slots=Counts(full=nodes if host is None else host),
        write_policy=policy,
        events=False,
    )


def full_host(watch: Stopwatch, nodes: int) -> None:
    """Under write_back, leaves leave the device for a host that is full."""
    half = nodes // 2
    ground = CliffGround(_config(half, WritePolicy.WRITE_BACK), watch)
    for number in range(half):
        ground.insert(leaf(number))
    ground.evict(half, named="evict many")
    for number in range(half, nodes):
        ground.insert(leaf(number))
    for _ in range(min(half // 4, 20_000)):
        ground.evict(1)
    ground.evict(half // 4, named="evict many")
    ground.evict_host(half // 4, named="evict_host many")


def duplicates(watch: Stopwatch, nodes: int) -> None:
    """Under write_back, all that is on the device is on the full host, too."""
    ground = CliffGround(_config(nodes, WritePolicy.WRITE_BACK), watch)
    for number in range(nodes):
        ground.insert(leaf(number))
    ground.evict(nodes, named="evict many")
    for number in range(nodes):
        ground.load_back(leaf(number))
    ground.poll("poll, all done")
    for number in range(min(nodes // 4, 20_000)):
        ground.match(leaf(number))
        ground.evict_host(1)
        ground.evict(1)
        ground.insert(leaf(nodes + number))


def windows_write_back(watch: Stopwatch, nodes: int) -> None:
    """Under write_back, window data and states of inner nodes leave for a host that is full."""
    half = nodes // 2
    size = Counts(full=2 * half, swa=2 * half, mamba=half)
    policy = WritePolicy.WRITE_BACK
    config = CacheConfig(
        window_tokens=2,
        mamba=True,
        device_slots=size,
        host_slots=size,
        write_policy=policy,
        events=False,
    )
    ground = CliffGround(config, watch)
    for turn in range(2):
        for number in range(turn * half, turn * half + half // 2):
            ground.insert(branch(number, 2))
            ground.insert(branch(number, 4), 2)
        if turn == 0:
            ground.evict(2 * half, named="evict many")
    for _ in range(min(half // 8, 10_000)):
        ground.evict(0, 1, named="evict window")
        ground.evict(0, 0, 1, named="evict state")
        ground.evict(1)
        ground.evict_host(0, 1, named="evict_host window")
    ground.evict(half, half // 2, named="evict many")


def policies(watch: Stopwatch, nodes: int) -> None:
    """Under each eviction policy, used leaves leave the device for a full host one by one."""
    each = max(nodes // len(EvictionPolicy) // 2, 2)
    for policy in EvictionPolicy:
        config = evolve(_config(each, WritePolicy.WRITE_BACK), eviction_policy=policy)
        ground = CliffGround(config, watch)
        for number in range(each):
            ground.insert(leaf(number))
        ground.evict(each, named="evict many")
        for number in range(each, 2 * each):
            ground.insert(leaf(number))
            ground.match(leaf(number - each // 2))
        for number in range(min(each // 2, 5_000)):
            ground.match(leaf(2 * each - 1 - number))
            ground.evict(1)
        ground.evict(each // 4, named="evict many")


def deep_write_back(watch: Stopwatch, nodes: int) -> None:
    """Under write_back, deep chains leave the device from their ends."""
    depth = min(nodes, CHAIN)
    ground = CliffGround(_config(nodes, WritePolicy.WRITE_BACK), watch)
    for number in range(nodes // depth):
        prompt = branch(number, depth)
        ground.insert(prompt)
        for pages in range(depth - 1, 0, -1):
            ground.match(prompt[:pages], "match that cuts")
    for _ in range(min(nodes // 4, 20_000)):
        ground.evict(1)
    ground.evict(nodes // 4, named="evict many")
    prompt = branch(0, depth)
    ground.load_back(prompt)
    ground.poll(pages=depth)


def locked_host(watch: Stopwatch, nodes: int) -> None:
    """Under write_through, a full host has nothing to evict, so that backups are declined."""
    half = nodes // 2
    ground = CliffGround(_config(nodes, WritePolicy.WRITE_THROUGH, half), watch)
    for number in range(nodes):
        ground.insert(leaf(number))
        ground.poll()
    for number in range(0, half, 3):
        ground.unlock(ground.lock(leaf(number)), 1)
    for _ in range(min(half, 20_000)):
        ground.evict(1)
        ground.insert(leaf(nodes + 1))
    ground.evict_host(half, named="evict_host many")


def second_hit(watch: Stopwatch, nodes: int) -> None:
    """Under write_through_selective, a prompt of many nodes gets its second hit, and is copied."""
    depth = depth_of(nodes)
    ground = CliffGround(_config(2 * depth, WritePolicy.WRITE_THROUGH_SELECTIVE), watch)
    prompt = np.arange(depth, dtype=np.uint32)
    ground.insert(prompt)
    for pages in range(depth - 1, 0, -1):
        ground.match(prompt[:pages], "match that cuts")
    ground.insert(prompt, named="insert, second hit")
    ground.poll(pages=2)


def fetched(watch: Stopwatch, nodes: int) -> None:
    """Pages come from storage to the host, are loaded to a full device, and leave both."""
    ground = CliffGround(_config(nodes // 10, WritePolicy.WRITE_BACK, nodes), watch)
    for number in range(nodes // 4):
        ground.insert_host(branch(number, 2))
        ground.insert_host(branch(number, 4), 2)
    for number in range(min(nodes // 4, 50_000)):
        ground.load_back(branch(number, 4))
        ground.poll(pages=4)
    for _ in range(min(nodes // 10, 20_000)):
        ground.evict_host(1)
    ground.reset()


def failures(watch: Stopwatch, nodes: int) -> None:
    """Copies of many leaves fail at once; then one of them, under a leaf with copies below it."""
    ground = CliffGround(_config(2 * nodes, WritePolicy.WRITE_THROUGH), watch)
    ground.engine.holds_back = True
    for number in range(nodes):
        ground.insert(leaf(number))
    ground.engine.fails = lambda _: True
    ground.engine.holds_back = False
    ground.poll("poll, all failed")
    for number in range(nodes):
        ground.insert(leaf(number))
    ground.engine.fails = lambda number: number % 1000 == 0
    ground.poll("poll, some failed")


def failing_chain(watch: Stopwatch, nodes: int) -> None:
    """The copies of a prompt that grew page by page fail: all, the first, the last."""
    depth = depth_of(nodes)
    prompt = np.arange(depth, dtype=np.uint32)
    for named, failing in (
        ("poll, chain failed", range(depth)),
        ("poll, first failed", range(1)),
        ("poll, last failed", range(depth - 1, depth)),
    ):
        ground = CliffGround(_config(depth, WritePolicy.WRITE_THROUGH), watch)
        ground.engine.holds_back = True
        for pages in range(1, depth + 1):
            ground.insert(prompt[:pages], pages - 1)
        ground.engine.fails = {ground.engine.open[at] for at in failing}.__contains__
        ground.engine.holds_back = False
        ground.poll(named)


def idle_polls(watch: Stopwatch, nodes: int) -> None:
    """Many backups are in flight, and a load behind them; polls find nothing to settle."""
    ground = CliffGround(_config(2 * nodes, WritePolicy.WRITE_THROUGH), watch)
    ground.insert(leaf(0))
    ground.poll()
    ground.evict(1)
    ground.engine.holds_back = True
    for number in range(1, nodes):
        ground.insert(leaf(number))
    ground.load_back(leaf(0))
    for _ in range(200):
        ground.poll("poll, nothing ended")
    ground.engine.holds_back = False
    ground.poll("poll, all done")
