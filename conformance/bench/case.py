"""The bench case: a cache of some size, and the requests that it serves.

Sizes are in tokens, as everywhere on the command line. Each driver converts them to its cache's
pages, blocks or slots.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.bench.workloads.chat import Chat
from kvcanon.conformance.bench.workloads.mooncake import load_trace
from kvcanon.conformance.bench.workloads.request import Request


class RequestStep(StrEnum):
    """The steps of a request, in order; a cache need not have every step."""

    HASH = "hash"
    """Hash the pages, in caches that need page hashes before a lookup."""
    MATCH = "match"
    """Find the prefix and its slots."""
    LOCK = "lock"
    EVICT = "evict"
    """Evict exactly as many slots as are missing."""
    ALLOCATE = "allocate"
    INSERT = "insert"
    UNLOCK = "unlock"
    EVENTS = "events"
    """Take the events, with all their page hashes and tokens."""


@frozen
class BenchCell:
    """The size and configuration of the measured cache."""

    page_size: int
    pool_tokens: int
    window_tokens: int = 0
    """0 means without a window."""
    swa_tokens: int = 0
    """The pool of window slots, in tokens."""
    events: bool = False

    @property
    def components(self) -> str:
        """What the model caches for a prompt."""
        return "full + swa" if self.window_tokens else "full"

    def __str__(self) -> str:
        suffix = ", events" if self.events else ""
        return f"{self.components}, page {self.page_size}{suffix}"


@frozen
class WorkloadSource:
    """Where requests come from."""

    trace: str | None = None
    """A trace file; None if the requests are generated."""
    conversations: int = 1000
    seed: int = 0
    limit: int | None = None

    def requests(self) -> tuple[Request, ...]:
        """Return the requests. Raises: TraceError, OSError."""
        if self.trace is not None:
            return load_trace(Path(self.trace), self.limit)
        return Chat(conversations=self.conversations, seed=self.seed).requests()[: self.limit]
