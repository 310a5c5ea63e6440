"""Workloads of `replay` and `bench`: the requests, and the sizes of the cache that serves them.

Options give sizes in tokens; a cache counts slots, each of which holds a page. Sizes are rounded
down to whole pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from attrs import Factory, evolve, frozen

from kvcanon.conformance.replay.workloads.chat import Chat
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import Trace, TraceOptions, read_trace
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.oracle.pages import whole_pages
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy


@frozen
class PoolSize:
    """The size of a pool."""

    tokens: int | None
    """None for a pool that holds all requests at once."""

    def __str__(self) -> str:
        return "unlimited" if self.tokens is None else f"{self.tokens:,}"


NO_POOL = PoolSize(0)


@frozen
class PoolSizes:
    """Several sizes of a pool; each is tried."""

    each: tuple[PoolSize, ...] = ()


def pool_sizes(text: str) -> PoolSizes:
    """Parse the value of an option that takes several, between commas. Raises: BadParameter."""
    return PoolSizes(tuple(dict.fromkeys(pool_size(each.strip()) for each in text.split(","))))


def pool_size(text: str) -> PoolSize:
    """Parse the value of an option. Raises: BadParameter."""
    if text == "unlimited":
        return PoolSize(None)
    try:
        tokens = int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is neither a whole number nor 'unlimited'.") from None
    if tokens < 0:
        raise typer.BadParameter(f"{tokens} is negative.")
    return PoolSize(tokens)


@frozen
class WorkloadSizes:
    """The sizes and policies of a cache, in the units of the options."""

    page_size: int
    pool: PoolSize
    host: PoolSize = NO_POOL
    disk: PoolSize = NO_POOL
    """Of the disk below the host tier."""
    external: PoolSize = NO_POOL
    """Of the external store below the host tier, instead of a disk."""
    sharers: int = 0
    """Other servers that write as much to the external store."""
    window_tokens: int = 0
    """0 for no window."""
    swa: PoolSize | None = None
    """None for a quarter of the pool."""
    mamba_states: int = 0
    """0 for a model without mamba layers."""
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    """The policy of the host tier, if there is one."""
    eviction_policy: EvictionPolicy = EvictionPolicy.LRU
    events: bool = True

    def with_options(self, **options: object) -> WorkloadSizes:
        """These sizes, with every option that is not None in their place."""
        given: dict[str, Any] = {
            name: value for name, value in options.items() if value is not None
        }
        if given.get("write_policy") is WritePolicy.NONE:
            given.setdefault("host", NO_POOL)
        return evolve(self, **given)

    @property
    def store(self) -> PoolSize:
        """The size of the store below the host tier, whatever its medium."""
        return self.disk if self.external == NO_POOL else self.external

    def store_pages(self) -> int | None:
        """The pages of the store; None if it has no limit."""
        tokens = self.store.tokens
        return None if tokens is None else whole_pages(tokens, self.page_size)

    def config(self, requests: Sequence[Request]) -> CacheConfig:
        """The configuration of a cache for these requests. Raises: BadParameter."""
        most = sum(whole_pages(request.length_tokens, self.page_size) for request in requests)

        def slots(size: PoolSize) -> int:
            return most if size.tokens is None else whole_pages(size.tokens, self.page_size)

        full, host = slots(self.pool), slots(self.host)
        if not most and requests:
            longest = max(request.length_tokens for request in requests)
            raise _bad_option(
                "--page-size",
                f"the longest prompt has {longest} tokens, which hold no page of {self.page_size}.",
            )
        if not full:
            raise _bad_option(
                "--pool-tokens", f"{self.pool} tokens hold no page of {self.page_size}."
            )
        swa = (full // 4 if self.swa is None else slots(self.swa)) if self.window_tokens else 0
        try:
            return CacheConfig(
                page_size=self.page_size,
                window_tokens=self.window_tokens or None,
                mamba=self.mamba_states > 0,
                device_slots=Counts(full, swa, self.mamba_states),
                # Host pools are as much larger than their device pools as the full one is.
                host_slots=Counts(host, swa * host // full, self.mamba_states * host // full),
                write_policy=self.write_policy if host else WritePolicy.NONE,
                eviction_policy=self.eviction_policy,
                events=self.events,
            )
        except BadArgument as error:
            option = f"--{error.argument.replace('_', '-')}"
            raise _bad_option(option, f"{error.problem}.") from error


CHAT_SIZES = WorkloadSizes(
    page_size=8, pool=PoolSize(2048), host=PoolSize(4096), window_tokens=64, swa=PoolSize(768)
)
"""Generated chat overflows every pool of these sizes."""
TRACE_SIZES = WorkloadSizes(page_size=64, pool=PoolSize(1_000_000))
"""The sizes at which peers were measured on the conversation trace."""


@frozen
class Workload:
    """Where the requests come from."""

    trace: Path | None
    conversations: int
    seed: int
    limit: int | None
    options: TraceOptions = Factory(TraceOptions)

    def read(self) -> Trace:
        """The requests, and how they were read. Raises: TraceError, UsageError, OSError."""
        if self.trace is not None:
            return read_trace(self.trace, self.options, self.limit)
        chat = Chat(conversations=self.conversations, seed=self.seed)
        return Trace(chat.requests()[: self.limit])

    def requests(self) -> tuple[Request, ...]:
        """The requests. Raises: as `read`."""
        return self.read().requests

    def usual_sizes(self, read: Trace) -> WorkloadSizes:
        """The usual sizes for a replay of the requests; pages are no larger than blocks."""
        sizes = CHAT_SIZES if self.trace is None else TRACE_SIZES
        if read.block_tokens is None:
            return sizes
        return evolve(sizes, page_size=min(sizes.page_size, read.block_tokens))

    def __str__(self) -> str:
        if self.trace is not None:
            return self.trace.name
        return f"generated chat, {self.conversations} conversations"


def _bad_option(option: str, problem: str) -> typer.BadParameter:
    return typer.BadParameter(problem, param_hint=f"'{option}'")
