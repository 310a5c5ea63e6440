"""What is measured: a cache of some size, and the requests that it serves.

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
    """What a cache does for a request, in order; a cache need not have every step."""

    HASH = "hash"
    """Name the pages, where a cache must before it can look for them."""
    MATCH = "match"
    """Find the prefix, and say in which slots it is."""
    LOCK = "lock"
    EVICT = "evict"
    """Make room, for exactly what is missing."""
    ALLOCATE = "allocate"
    INSERT = "insert"
    UNLOCK = "unlock"
    EVENTS = "events"
    """Take the events, with all their page hashes and tokens."""


@frozen
class BenchCell:
    """The cache to make."""

    page_size: int
    pool_tokens: int
    window_tokens: int = 0
    """0 where there is no window."""
    swa_tokens: int = 0
    """The pool of window data."""
    events: bool = False

    @property
    def components(self) -> str:
        """What the model keeps of a prompt."""
        return "full + swa" if self.window_tokens else "full"

    def __str__(self) -> str:
        suffix = ", events" if self.events else ""
        return f"{self.components}, page {self.page_size}{suffix}"


@frozen
class WorkloadSource:
    """Where requests come from."""

    trace: str | None = None
    """A file; None where they are generated."""
    conversations: int = 1000
    seed: int = 0
    limit: int | None = None

    def requests(self) -> tuple[Request, ...]:
        """The requests. Raises: TraceError, OSError."""
        if self.trace is not None:
            return load_trace(Path(self.trace), self.limit)
        return Chat(conversations=self.conversations, seed=self.seed).requests()[: self.limit]
