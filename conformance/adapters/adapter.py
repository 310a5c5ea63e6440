"""What the judge has to know of a cache: how to make one, what it can be, and what it lacks.

An in-process cache is judged through an object with the methods of `kvcanon.spec.cache.Cache`. Six
of them it must have (`ESSENTIAL`); each of the others is a `Capability`, declared by being there.

What readers get wrong: a capability that is missing hides faults, it does not excuse them. Laws
that need it are reported as not judged, and a run that judged nothing fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar, cast

from attrs import field, frozen

from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.law import Need
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import EvictionPolicy, TransferId, WritePolicy


class Capability(StrEnum):
    """An operation that a cache may lack; the value is the name of the method that shows it."""

    UNLOCK_WINDOW = "unlock_window"
    EVICT = "evict"
    EVICT_HOST = "evict_host"
    LOAD_BACK = "load_back"
    INSERT_HOST = "insert_host"
    POLL = "poll"
    FLUSH = "flush"
    RESET = "reset"
    TAKE_EVENTS = "take_events"
    SNAPSHOT = "snapshot"
    FREE_SLOTS = "free_slots"
    READ = "read"
    WRITE = "write"


ESSENTIAL = ("match", "lock", "unlock", "allocate", "free", "insert")
"""What every cache has, besides its `config`."""


class CopyControl(Protocol):
    """Decides what becomes of the copies in flight: the judge's hand on the clock."""

    @property
    def open_transfer_ids(self) -> Sequence[TransferId]:
        """Copies that neither completed nor failed, in the order in which they were enqueued."""

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now, without telling the cache."""

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done, performed at the latest now."""

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed."""


Option = TypeVar("Option")


class Pick(Protocol):
    """Chooses one of several options: at random, or as Hypothesis draws."""

    def __call__(self, options: Sequence[Option], /) -> Option:
        """One of the options."""


@frozen
class Offer:
    """Which configurations a cache can be made with; the defaults are all that there are."""

    page_sizes: tuple[int, ...] = (1, 2, 4)
    windows_tokens: tuple[int | None, ...] = (None, 1, 2, 3, 4, 5, 8)
    """None is: without a window."""
    mamba: tuple[bool, ...] = (False, True)
    bigram: tuple[bool, ...] = (False, True)
    write_policies: tuple[WritePolicy, ...] = tuple(WritePolicy)
    eviction_policies: tuple[EvictionPolicy, ...] = tuple(EvictionPolicy)
    load_back_thresholds_pages: tuple[int, ...] = (0, 0, 2)
    namespaces: bool = True
    """Whether keys may be of other namespaces than the default one."""
    least_slots: int = 2
    """The smallest pool of full slots that it can be made with."""


MakeCache = Callable[..., Cache]
"""Takes a `CacheConfig`; and `engine`, a `TransferEngine`, if its copies can be left to one."""


@frozen
class Adapter:
    """A cache before the judge."""

    name: str
    make: MakeCache
    offer: Offer = field(default=Offer())
    profile: Profile = CANON
    """Where the cache departs from the canon; what its snapshots say must agree."""
    hides: frozenset[Need] = frozenset()
    """What its snapshots cannot show truthfully, though they have the fields."""


@frozen(eq=False)
class Subject:
    """One cache of an adapter, just made, and the hand on its copies."""

    cache: Cache
    can: frozenset[Capability]
    shows: frozenset[Need]
    copies: CopyControl | None
    """None where the cache has no copies, or decides about them alone."""


def make_subject(adapter: Adapter, config: CacheConfig) -> Subject:
    """Make an empty cache. Raises: whatever the factory does; TypeError where methods lack."""
    copies: CopyControl | None = None
    if _takes_engine(adapter.make):
        engine = ManualEngine()
        made, copies = adapter.make(config, engine=cast("TransferEngine", engine)), engine
    else:
        made = adapter.make(config)
        copies = cast("CopyControl | None", getattr(made, "copies", None))
    missing = [name for name in ESSENTIAL if not callable(getattr(made, name, None))]
    if missing:
        raise TypeError(f"{type(made).__name__} lacks {', '.join(missing)}")
    can = frozenset(each for each in Capability if callable(getattr(made, each.value, None)))
    return Subject(made, can, _needs_met(can) - adapter.hides, copies)


def _takes_engine(make: Callable[..., Any]) -> bool:
    try:
        return "engine" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


def _needs_met(can: frozenset[Capability]) -> frozenset[Need]:
    """What of the laws' needs a cache with these methods can show."""
    met: set[Need] = set()
    if Capability.SNAPSHOT in can:
        met |= {Need.SNAPSHOT, Need.RECENCY, Need.HOLDS, Need.TRANSFERS}
    if Capability.TAKE_EVENTS in can:
        met.add(Need.EVENTS)
    if {Capability.READ, Capability.WRITE} <= can:
        met.add(Need.BYTES)
    return frozenset(met)
