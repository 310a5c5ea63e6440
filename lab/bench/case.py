"""The bench case: a cache of some size, and the requests that it serves.

Sizes are in tokens, as everywhere on the command line. Each driver converts them to its cache's
pages, blocks or slots.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import load_trace
from kvcanon.lab.torch_device import CPU_DEVICE
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.oracle.pages import whole_pages
from kvcanon.spec.types import Counts, WritePolicy


class RequestStep(StrEnum):
    """The steps of a request, in order; a cache need not have every step."""

    HASH = "hash"
    """Hash the pages, in caches that need page hashes before a lookup."""
    MATCH = "match"
    """Find the prefix and its slots."""
    LOCK = "lock"
    LOAD = "load"
    """Enqueue the copy of what is on the host only, and start it."""
    POLL = "poll"
    """Settle the copies that have ended; once a request, in caches with a host tier."""
    EVICT = "evict"
    """Evict exactly as many slots as are missing."""
    ALLOCATE = "allocate"
    INSERT = "insert"
    UNLOCK = "unlock"
    EVENTS = "events"
    """Take the events, with all their page hashes and tokens."""
    SEND = "send"
    """Encode the events for the wire, as an engine's publisher does in another thread."""


@frozen
class HostSetup:
    """The host tier of the measured cache."""

    write_policy: WritePolicy = field(converter=WritePolicy)
    tokens: int
    swa_tokens: int = 0
    """The host pool of window slots, in tokens; for a cache with a window."""


def _host_tier(value: HostSetup | dict[str, Any] | None) -> HostSetup | None:
    """Read a tier that went through JSON."""
    return HostSetup(**value) if isinstance(value, dict) else value


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
    host: HostSetup | None = field(default=None, converter=_host_tier)
    device: str = CPU_DEVICE
    """Where an engine has its pools and its slots, as torch names it."""

    @property
    def components(self) -> str:
        """What the model caches for a prompt."""
        return "full + swa" if self.window_tokens else "full"

    def __str__(self) -> str:
        policy = f", {self.host.write_policy}" if self.host else ""
        suffix = ", events" if self.events else ""
        where = "" if self.device == CPU_DEVICE else f", {self.device}"
        return f"{self.components}, page {self.page_size}{policy}{suffix}{where}"

    def config(self) -> CacheConfig:
        """The configuration of a cache of this size. A load-back of any length is worth a copy."""
        window, host = self.window_tokens or None, self.host
        device = self._slots(self.pool_tokens, self.swa_tokens)
        common = CacheConfig(
            page_size=self.page_size,
            window_tokens=window,
            device_slots=device,
            events=self.events,
        )
        if host is None:
            return common
        on_host = self._slots(host.tokens, host.swa_tokens if window else 0)
        return evolve(common, host_slots=on_host, write_policy=host.write_policy)

    def _slots(self, full_tokens: int, swa_tokens: int) -> Counts:
        return Counts(
            whole_pages(full_tokens, self.page_size), whole_pages(swa_tokens, self.page_size)
        )


@frozen
class WorkloadSource:
    """Where requests come from."""

    trace: str | None = None
    """A trace file; None if the requests are generated."""
    conversations: int = 1000
    seed: int = 0
    limit: int | None = None
    at_once: int = 8
    """Generated conversations that are active at the same time."""

    def requests(self) -> tuple[Request, ...]:
        """Return the requests. Raises: TraceError, OSError."""
        if self.trace is not None:
            return load_trace(Path(self.trace), self.limit)
        chat = Chat(conversations=self.conversations, seed=self.seed, at_once=self.at_once)
        return chat.requests()[: self.limit]
