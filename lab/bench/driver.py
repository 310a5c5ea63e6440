"""A driver: calls one cache as an engine would that serves one request after another.

A driver times each call itself, because only it knows the calls. Preparing a call and reading its
answer are outside the timed part.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from attrs import Factory, define

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell, RequestStep

Prompt = TypeVar("Prompt")


def _nanoseconds() -> array[int]:
    return array("Q")


@define
class StepTimes:
    """How long each call took, in nanoseconds, by step."""

    hash: array[int] = Factory(_nanoseconds)
    match: array[int] = Factory(_nanoseconds)
    lock: array[int] = Factory(_nanoseconds)
    load: array[int] = Factory(_nanoseconds)
    poll: array[int] = Factory(_nanoseconds)
    evict: array[int] = Factory(_nanoseconds)
    allocate: array[int] = Factory(_nanoseconds)
    insert: array[int] = Factory(_nanoseconds)
    unlock: array[int] = Factory(_nanoseconds)
    events: array[int] = Factory(_nanoseconds)
    send: array[int] = Factory(_nanoseconds)

    def by_step(self) -> dict[RequestStep, array[int]]:
        """Return the times of the steps that were taken."""
        found: dict[RequestStep, array[int]] = {
            step: getattr(self, step.value) for step in RequestStep
        }
        return {step: taken_ns for step, taken_ns in found.items() if taken_ns}


class EventCounts(NamedTuple):
    """The sums of some events, in pages."""

    stored_pages: int
    removed_pages: int


class Driver(Protocol[Prompt]):
    """Drives one cache, which is empty at first."""

    core: str
    """Which implementation is measured: some caches choose among several without saying so."""
    loaded_tokens: int
    """Hit tokens so far that came from the host tier; 0 without one."""
    spare_pages: int
    """How many more pages an eviction frees than are missing; 0 but while a tree is filled."""

    def prepare(self, request: Request) -> Prompt:
        """Return the prompt in the form that the cache takes fastest.

        Another driver of the same page size may serve it.
        """

    def serve(self, prompt: Prompt, taken: StepTimes) -> int:
        """Serve a request, and return how many of its tokens were cached, on either tier.

        Each call adds its time to `taken`.
        """

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events since the last call, with all their page hashes and tokens."""

    def find(self, prompt: Prompt, taken: StepTimes) -> int:
        """Look up a prompt without serving it, and return how many of its tokens are cached."""


MakeDriver = Callable[[BenchCell, Mapping[str, str]], Driver[Prompt]]
"""Makes a driver for a cell. The options are the driver's own, as names and values."""


def whole_and_reusable_tokens(request: Request, page_size: int) -> tuple[int, int]:
    """Count the tokens in whole pages: of the whole prompt, and of its first n - 1 tokens."""
    whole = request.length_tokens // page_size * page_size
    return whole, (request.length_tokens - 1) // page_size * page_size


def shortage(missing: int, free: int, spare: int = 0) -> int:
    """Return how much must be evicted to allocate `missing`, and `spare` more if it must be."""
    return missing - free + spare if missing > free else 0
