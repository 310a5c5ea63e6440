"""Prompts that share first halves: what an engine sees of many users of a few documents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from attrs import frozen

from kvcanon.conformance.replay.workloads.request import Request

VOCABULARY = 1 << 17


@frozen
class SharedPrefixes:
    """The shape of the workload. Lengths are in tokens."""

    requests: int
    seed: int = 0
    prefixes: int = 60
    """Texts with which a prompt begins."""
    prefix_tokens: tuple[int, int] = (600, 1500)
    """The least and the most."""
    own_tokens: tuple[int, int] = (600, 1500)
    """What follows, and no other prompt has: the least and the most."""

    def make(self) -> tuple[Request, ...]:
        """Return the requests: the same for equal parameters."""
        return tuple(self.stream())

    def stream(self) -> Iterator[Request]:
        """Make the requests one by one, so that none has memory before it is asked for."""
        random = Random(self.seed)
        texts = [_text(random, self.prefix_tokens) for _ in range(self.prefixes)]
        for _ in range(self.requests):
            prefix = texts[int(random.random() * self.prefixes)]
            own = _text(random, self.own_tokens)
            yield Request(len(prefix) + len(own), partial(_joined, prefix, own))


def _text(random: Random, bounds: tuple[int, int]) -> tuple[int, ...]:
    least, most = bounds
    # Of a seeded `Random`, only `random()` gives the same numbers under every version of Python.
    length = least + int(random.random() * (most - least + 1))
    return tuple(int(random.random() * VOCABULARY) for _ in range(length))


def _joined(prefix: tuple[int, ...], own: tuple[int, ...]) -> tuple[int, ...]:
    return prefix + own
