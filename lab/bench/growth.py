"""How time and memory grow with the size of the tree, and with the length of the prompt.

The tree grows by prompts of 64 pages, eight of which share their first half. A match finds a whole
prompt that was inserted before; an insert adds the new pages of a prompt.

The inserts measured for a size are those that grow the tree from half that size.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from random import Random

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.latency import Latency, latency_of
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import Driver, MakeDriver, Prompt, StepTimes
from kvcanon.lab.bench.memory import peak_bytes, set_back_peak
from kvcanon.lab.bench.throughput import latency_from, warm_up

PROMPT_PAGES = 64
SHARED_PAGES = 32
PROMPTS_SHARING = 8
MATCHES = 300
"""Prompts that are found again at each size."""
TREE_PAGES = (1_000, 10_000, 100_000, 1_000_000)
PROMPT_TOKENS = (100, 1_000, 10_000, 100_000, 1_000_000)


@frozen
class Point:
    """What was measured at one size."""

    size: int
    """Pages of the tree, or tokens of the prompt."""
    match: Latency = field(converter=latency_from)
    insert: Latency = field(converter=latency_from)
    cache_bytes: int
    """The memory that the cache has added so far."""


def with_tree(
    make: MakeDriver[Prompt],
    cell: BenchCell,
    options: Mapping[str, str],
    sizes: Sequence[int] = TREE_PAGES,
) -> list[Point]:
    """Grow a tree to these sizes, in pages, and measure at each."""
    page_size = cell.page_size
    roomy = evolve(cell, pool_tokens=(sizes[-1] + 4 * PROMPT_PAGES) * page_size, swa_tokens=0)
    warm_up(make, roomy, options)
    base = set_back_peak()
    driver = make(roomy, options)
    random = Random(0)
    growing = _grow(driver, page_size)
    pages, points = 0, []
    inserts_ns = array("Q")
    for size in sizes:
        since = array("Q")
        while pages < size:
            pages, insert_ns = next(growing)
            if pages > size // 2:
                since.append(insert_ns)
        inserts_ns = since or inserts_ns
        found = StepTimes()
        prompts = size * PROMPTS_SHARING // _group_pages() or 1
        for _ in range(MATCHES):
            request = _prompt(int(random.random() * prompts), page_size)
            _find_whole(driver, request, found)
        memory = max(0, peak_bytes() - base)
        points.append(Point(size, latency_of(found.match), latency_of(inserts_ns), memory))
    return points


def with_prompt(
    make: MakeDriver[Prompt],
    cell: BenchCell,
    options: Mapping[str, str],
    sizes: Sequence[int] = PROMPT_TOKENS,
) -> list[Point]:
    """Insert new prompts of these lengths, in tokens, and find them again."""
    page_size = cell.page_size
    room = sum((size + page_size) * _repeats(size) for size in sizes)
    roomy = evolve(cell, pool_tokens=room, swa_tokens=0)
    warm_up(make, roomy, options)
    base = set_back_peak()
    driver = make(roomy, options)
    points = []
    for size in sizes:
        fresh, found = StepTimes(), StepTimes()
        # One token more than whole pages, so that all pages can be found again.
        length = max(1, size // page_size) * page_size + 1
        requests = [
            Request(length, partial(random_tokens, f"{size}.{number}", length))
            for number in range(_repeats(size))
        ]
        for request in requests:
            driver.serve(driver.prepare(request), fresh)
        for request in requests * 3:
            _find_whole(driver, request, found)
        memory = max(0, peak_bytes() - base)
        points.append(Point(size, latency_of(found.match), latency_of(fresh.insert), memory))
    return points


def _find_whole(driver: Driver[Prompt], request: Request, taken: StepTimes) -> None:
    """Find a prompt that is cached except for its last token. Raises: UsageError."""
    found_tokens = driver.find(driver.prepare(request), taken)
    if found_tokens != request.length_tokens - 1:
        hit = f"{found_tokens} of a prompt's {request.length_tokens - 1} tokens"
        raise UsageError(f"{driver.core} found {hit} in a pool that holds them all")


def random_tokens(seed: str, length: int) -> tuple[int, ...]:
    """Return this many tokens, the same for the same seed."""
    return tuple(array("H", Random(seed).randbytes(2 * length)))


def _repeats(size: int) -> int:
    """Return how many prompts of a length to use: enough short ones for a median."""
    return max(3, min(101, 1_000_000 // size))


def _grow(driver: Driver[Prompt], page_size: int) -> Iterator[tuple[int, int]]:
    """Insert one prompt after another; yields the pages of the tree, and the time."""
    pages, number = 0, 0
    while True:
        taken = StepTimes()
        driver.serve(driver.prepare(_prompt(number, page_size)), taken)
        begins = number % PROMPTS_SHARING == 0
        pages += PROMPT_PAGES if begins else PROMPT_PAGES - SHARED_PAGES
        number += 1
        yield pages, taken.insert[0]


def _prompt(number: int, page_size: int) -> Request:
    length = PROMPT_PAGES * page_size + 1
    return Request(length, partial(_prompt_tokens, number, page_size))


def _prompt_tokens(number: int, page_size: int) -> tuple[int, ...]:
    shared = random_tokens(f"group {number // PROMPTS_SHARING}", SHARED_PAGES * page_size)
    own = random_tokens(f"prompt {number}", (PROMPT_PAGES - SHARED_PAGES) * page_size + 1)
    return shared + own


def _group_pages() -> int:
    return SHARED_PAGES + PROMPTS_SHARING * (PROMPT_PAGES - SHARED_PAGES)
