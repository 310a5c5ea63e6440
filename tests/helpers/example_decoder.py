"""Helpers for tests of the example decoder: a scheduler, prompts, and bitwise comparison."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from kvcanon.optimized.threaded_engine import ThreadedEngine
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, GPU, SWA, Component, Counts, WritePolicy
from model import Decoder, Shape
from paging import PagedTensors, allocate_tensors
from plain import plain_logits
from request import Request
from scheduler import Scheduler

PATIENCE_S = 20.0
MOST_STEPS = 1000

SHAPE = Shape()
PAGE = SHAPE.page_size
WINDOW_PAGES = SHAPE.window_tokens // PAGE
DECODER = Decoder(SHAPE)
COMPONENTS = tuple(Component)
ROOMY = Counts(full=200, swa=200)


def make(
    transfers: ThreadedEngine,
    device: Counts = ROOMY,
    host: Counts = Counts(),
    *,
    running_requests: int = 4,
    allocated: Callable[[CacheConfig, Shape], PagedTensors] = allocate_tensors,
) -> Scheduler:
    """A scheduler with an empty cache; it has a host tier if `host` has slots."""
    config = CacheConfig(
        page_size=PAGE,
        window_tokens=SHAPE.window_tokens,
        device_slots=device,
        host_slots=host,
        write_policy=WritePolicy.WRITE_THROUGH if host else WritePolicy.NONE,
    )
    return Scheduler(
        DECODER,
        config,
        transfers,
        running_requests=running_requests,
        tensors=allocated(config, SHAPE),
    )


def words(seed: int, count: int) -> list[int]:
    """Random tokens."""
    drawn = random.Random(seed)
    return [drawn.randrange(SHAPE.vocabulary) for _ in range(count)]


def serve(scheduler: Scheduler, *prompts: list[int], answer: int = 3) -> list[Request]:
    """Serve prompts concurrently, overwriting all free slots before each step."""
    requests = [scheduler.submit(prompt, answer) for prompt in prompts]
    for _ in range(MOST_STEPS):
        if not (scheduler.waiting or scheduler.running):
            return requests
        spoil_free_slots(scheduler)
        scheduler.step()
    raise AssertionError(f"after {MOST_STEPS} steps there are requests that are not served")


def serve_one(scheduler: Scheduler, prompt: list[int], answer: int = 3) -> Request:
    """Serve one prompt."""
    return serve(scheduler, prompt, answer=answer)[0]


def spoil_free_slots(scheduler: Scheduler) -> None:
    """Overwrite the bytes that earlier owners left in free slots."""
    free = {component: [*free_slots(scheduler, component)] for component in (FULL, SWA)}
    for layer, planes in enumerate(scheduler.tensors.layers):
        for plane in planes:
            plane[free[SWA if SHAPE.slides(layer) else FULL]] = torch.nan


def free_slots(scheduler: Scheduler, component: Component) -> tuple[int, ...]:
    """The free slots of a pool on the device."""
    return scheduler.cache.tree.pool(COMPONENTS.index(component), 0)[1]


@lru_cache
def expected_logits(tokens: tuple[int, ...]) -> Tensor:
    """The logits without a cache."""
    return plain_logits(DECODER, tokens)


def bits_equal(request: Request) -> bool:
    """Whether all logits of a request equal those computed without a cache."""
    expected = expected_logits(tuple(request.tokens))
    return all(torch.equal(expected[at], logits) for at, logits in request.logits.items())


def check(scheduler: Scheduler, *requests: Request) -> None:
    """Check that answers are bitwise right, no cached page was computed, and all slots add up."""
    for request in requests:
        assert request.done
        assert bits_equal(request)
        if not request.retractions:
            computed = range(request.reused_pages * PAGE, len(request.tokens) - 1)
            assert sorted(request.logits) == [*computed]
    check_books(scheduler)


def check_books(scheduler: Scheduler) -> None:
    """Check that at rest every slot is free or in the tree, none is held, and all are evictable."""
    cache = scheduler.cache
    cache.flush()
    cache.tree.check()
    counted = counters(scheduler)
    assert (counted["receipts"], counted["transfers_in_flight"]) == (0, 0)
    for number, component in enumerate((FULL, SWA)):
        capacity, free, held = cache.tree.pool(number, 0)
        assert held == ()
        evictable, protected = cache.tree.usage(number)
        assert protected == 0
        assert len(free) + evictable == capacity == cache.config.capacity(component, GPU)


def counters(scheduler: Scheduler) -> dict[str, int | tuple[int, int, int]]:
    """The tree's counters."""
    return scheduler.cache.tree.counters()


def evict_all(scheduler: Scheduler) -> None:
    """Evict everything from the device."""
    scheduler.cache.flush()
    scheduler.cache.evict(200, 200)
    assert scheduler.cache.free_slot_counts()[:2] == (200, 200)
