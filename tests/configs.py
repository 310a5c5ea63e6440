"""Any cache, with pools so small that everything happens: the matrix that random runs draw from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy

Option = TypeVar("Option")


class Pick(Protocol):
    """Chooses one of several options: at random, or as Hypothesis draws."""

    def __call__(self, options: Sequence[Option], /) -> Option:
        """One of the options."""


def any_config(pick: Pick) -> CacheConfig:
    """A configuration, all of whose fields are picked."""

    def counts() -> Counts:
        return Counts(pick(range(2, 21)), pick(range(2, 15)), pick(range(1, 7)))

    write_policy = pick(tuple(WritePolicy))
    return CacheConfig(
        page_size=pick((1, 2, 4)),
        window_tokens=pick((None, 1, 2, 3, 4, 5, 8)),
        mamba=pick((False, True)),
        bigram=pick((False, True)),
        device_slots=counts(),
        host_slots=Counts() if write_policy is WritePolicy.NONE else counts(),
        write_policy=write_policy,
        eviction_policy=pick(tuple(EvictionPolicy)),
        load_back_threshold_pages=pick((0, 0, 2)),
    )
