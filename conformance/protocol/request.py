"""RequestCache: a cache as an engine's scheduler uses it, request by request.

Some caches have no operations on prefixes: a scheduler admits a request and gets a block table,
extends it, and ends it. The client writes the KV that it computes into the slots of the table, and
always between two calls: when the next call comes, every page of every table is filled.

A page may be reused as soon as it is filled, even while the request that filled it runs, and after
that request's abort. A page that no request computed, or that was overwritten, must never be
reused.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from attrs import frozen

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import Event
from kvcanon.spec.operations import Evicted
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import Component, Counts, Key, Medium, Slot, Slots

RequestId: TypeAlias = int
"""Chosen by the client, and never used twice."""


@frozen
class Admitted:
    """The answer to an admitted request."""

    reused_pages: int
    """Leading pages of the key that are cached and need not be computed.

    An engine must compute at least one token to get the next one, so the last page of a key may be
    left out.
    """
    slots: Slots
    """The block table: a full slot for every page of the key, window slots for its last pages, and
    one mamba slot, where the cache has mamba states. The window slots reach back at least as far as
    the window of the key's end, and that of the pages which need not be computed."""


class RequestCache(Protocol):
    """The methods of every cache that is judged by requests; refusals are `CacheError`s."""

    @property
    def config(self) -> CacheConfig:
        """The configuration that the factory was given."""

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Admit a request, and allocate slots for all of its key, evicting if needed.

        Raises: OutOfSlots: too few slots even after eviction; the request is not admitted.
        """

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Allocate slots for a running request's longer key; returns its block table.

        What the request computed before may be in other slots now, with the same bytes.

        Raises: OutOfSlots: too few slots even after eviction; the request is unchanged, except that
        window data outside its window may be gone. BadArgument: no such request.
        """

    def finish(self, request_id: RequestId) -> None:
        """End a request; what it computed may be reused. Raises: BadArgument: no such request."""

    def abort(self, request_id: RequestId) -> None:
        """End a request early. Raises: BadArgument: no such request."""


ESSENTIAL = tuple(
    name for name in vars(RequestCache) if not name.startswith("_") and name != "config"
)
"""The methods of a `RequestCache`."""


class FullRequestCache(RequestCache, Protocol):
    """A `RequestCache` with all optional methods."""

    def evict(self, counts: Counts) -> Evicted:
        """Free device slots that no running request holds, as under memory pressure."""

    def reset(self) -> None:
        """Forget everything but what running requests hold. Raises: CacheBusy: requests run."""

    def take_events(self) -> tuple[Event, ...]:
        """Return the events since the last call."""

    def snapshot(self) -> Snapshot:
        """Return the whole state, as a value."""

    def read(self, component: Component, medium: Medium, slot: Slot) -> bytes:
        """Return the bytes of a slot."""

    def write(self, component: Component, slot: Slot, data: bytes) -> None:
        """Set the bytes of a slot of a running request."""
