"""What the scheduler's half tells the workers with a step, and what they answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import Factory, define, field, frozen


@frozen
class TierCopyJob:
    """Pages that are copied together."""

    number: int
    """No other job of the tier ever has it."""
    blocks: Sequence[int]
    rows: Sequence[int]
    """The host row of each block."""
    groups: Sequence[int]
    """The group of layers of each block."""
    to_host: bool
    request_id: str = ""
    """Whom a load is for."""
    after: frozenset[int] = frozenset()
    """Jobs that fill the rows of a load, or read its blocks, and end before it begins."""


@frozen
class StepCopies:
    """The copies that begin with a step."""

    step: int
    stores: Sequence[TierCopyJob] = ()
    """They read what earlier steps have computed."""
    loads: Sequence[TierCopyJob] = ()
    awaited: frozenset[int] = frozenset()
    """Stores that read blocks which this step overwrites: it waits for them."""
    failed_loads: frozenset[str] = frozenset()
    """Requests whose load cannot begin any more, and is reported as failed."""


@define
class EndedStores:
    """How many ranks ended each store, and how many moved all its bytes."""

    ended: Counter[int] = Factory(Counter)
    moved: Counter[int] = Factory(Counter)

    def aggregate(self, other: EndedStores) -> EndedStores:
        """The counts of both."""
        return EndedStores(self.ended + other.ended, self.moved + other.moved)


@frozen
class LoadResults:
    """Which loads a rank has ended, by request, with the names that vLLM has for them."""

    finished_recving: set[str] = field(factory=set)
    failed_recving: set[str] = field(factory=set)
    finished_sending: set[str] = field(factory=set)
