"""Adapters: how the judge makes a cache, which configurations it offers, and what it lacks.

A cache is one of two kinds: it has operations on prefixes (`tree.TreeCache`), or on requests only
(`request.RequestCache`). Further methods declare what else it can do.

A factory raises `BadArgument` for a configuration that it does not offer; the case is then skipped
and counted. Any other exception of a factory is a finding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Protocol, TypeVar, cast

from attrs import asdict, field, frozen

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.request import FullRequestCache, RequestCache
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.reference.engine import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.types import EvictionPolicy, TransferId, WritePolicy


class Capability(StrEnum):
    """An optional operation; the value is the name of the method that provides it."""

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


OF_REQUESTS = frozenset(
    {
        Capability.EVICT,
        Capability.RESET,
        Capability.TAKE_EVENTS,
        Capability.SNAPSHOT,
        Capability.READ,
        Capability.WRITE,
    }
)
"""What a `RequestCache` may have, too; each means the same as for a tree."""


class CopyControl(Protocol):
    """Decides when copies in flight run, complete or fail; the judge controls time through it."""

    @property
    def open_transfer_ids(self) -> Sequence[TransferId]:
        """Return the copies that neither completed nor failed, in the order of their enqueueing."""

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now, without acknowledging the copy to the cache."""

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done; moves its bytes if they were not yet."""

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed."""


class WatchedCopies(CopyControl, Protocol):
    """Copy control that also shows how copies ended."""

    @property
    def ended(self) -> Mapping[TransferId, bool]:
        """How copies ended: True if performed, False if failed."""


def ends_known(copies: WatchedCopies | None, before: Snapshot) -> dict[TransferId, bool]:
    """Return how the copies ended that were in flight in the state `before`."""
    if copies is None or not before.transfers:
        return {}
    ended = copies.ended
    flying = [each.transfer_id for each in before.transfers]
    return {each: ended[each] for each in flying if each in ended}


class RecordedCopies:
    """The copy control of a cache that has its own; records each decision."""

    def __init__(self, copies: CopyControl) -> None:
        self._copies = copies
        self._ended: dict[TransferId, bool] = {}

    @property
    def open_transfer_ids(self) -> Sequence[TransferId]:
        """Return the cache's open copies."""
        return self._copies.open_transfer_ids

    @property
    def ended(self) -> Mapping[TransferId, bool]:
        """How copies ended; an id that is open again belongs to a new copy."""
        for transfer_id in self._copies.open_transfer_ids:
            self._ended.pop(transfer_id, None)
        return self._ended

    def perform(self, transfer_id: TransferId) -> None:
        """Move the bytes now, without acknowledging the copy to the cache."""
        self._copies.perform(transfer_id)

    def acknowledge(self, transfer_id: TransferId) -> None:
        """Let the next poll report the copy as done."""
        self._copies.acknowledge(transfer_id)
        self._ended[transfer_id] = True

    def fail(self, transfer_id: TransferId) -> None:
        """Let the next poll report that the copy failed."""
        self._copies.fail(transfer_id)
        self._ended[transfer_id] = False


Option = TypeVar("Option")


class Pick(Protocol):
    """Chooses one of several options: at random, or as Hypothesis draws."""

    def __call__(self, options: Sequence[Option], /) -> Option:
        """One of the options."""


SMALL_PAGES, LARGE_PAGES = (1, 2, 4), (6, 16, 64)
"""Page sizes: in most cases, and in wide ones."""
SMALL_WINDOWS, LARGE_WINDOWS = (1, 2, 3, 4, 5, 8), (33, 100, 250)
"""Window sizes: in most cases, and in wide ones. No large window is a multiple of a large page."""
MOST_SLOTS = 70_000
"""Full slots of the largest pool: some slot numbers need more than 16 bits."""


@frozen
class Offer:
    """Which configurations a cache can be made with; the defaults allow all that are drawn."""

    page_sizes: tuple[int, ...] = SMALL_PAGES + LARGE_PAGES
    windows_tokens: tuple[int | None, ...] = (None, *SMALL_WINDOWS, *LARGE_WINDOWS)
    """None means without a window."""
    mamba: tuple[bool, ...] = (False, True)
    bigram: tuple[bool, ...] = (False, True)
    write_policies: tuple[WritePolicy, ...] = tuple(WritePolicy)
    eviction_policies: tuple[EvictionPolicy, ...] = tuple(EvictionPolicy)
    load_back_thresholds_pages: tuple[int, ...] = (0, 0, 2)
    events: tuple[bool, ...] = (True,) * 11 + (False,)
    """Whether events are enabled: mostly True, as most laws need events."""
    namespaces: bool = True
    """Whether keys may be in other namespaces than the default one."""
    least_slots: int = 2
    """The smallest number of full slots that the cache can be made with."""
    most_slots: int = MOST_SLOTS
    """The largest number of full slots, on either medium."""
    one_pool: bool = False
    """Whether all components share one pool, whose size is the sum of their pools."""


class CacheKind(StrEnum):
    """How a cache is used."""

    TREE = "tree"
    """By prefixes, through a `TreeCache`."""
    REQUEST = "request"
    """By requests, through a `RequestCache`."""


MakeCache = Callable[..., TreeCache | RequestCache]
"""Takes a `CacheConfig`, and `engine`, a `TransferEngine`, if an engine can run its copies.

It may raise `BadArgument` for a configuration that it does not offer.
"""


@frozen
class Adapter:
    """A cache to be judged: its factory, its kind, what it offers and what it lacks."""

    name: str
    make: MakeCache
    offer: Offer = field(default=Offer())
    profile: Profile = CANON
    """Where the cache departs from the canon; its snapshots must say the same."""
    hides: frozenset[Need] = frozenset()
    """What its snapshots cannot show truthfully, though they have the fields."""
    kind: CacheKind = CacheKind.TREE


class Unoffered(Exception):
    """The cache does not offer this configuration; this is not a finding."""


@frozen(eq=False)
class Subject:
    """One new cache of an adapter, and the control of its copies."""

    cache: Cache
    """Has the methods of a `TreeCache` and those in `can`; call no others, despite its type."""
    can: frozenset[Capability]
    shows: frozenset[Need]
    copies: WatchedCopies | None
    """None where the cache has no copies, or runs them on its own."""


@frozen(eq=False)
class RequestSubject:
    """One new cache of an adapter that is used by requests."""

    cache: FullRequestCache
    """Has the methods of a `RequestCache` and those in `can`."""
    can: frozenset[Capability]
    shows: frozenset[Need]
    one_pool: bool = False
    """Whether its components share one pool, where a slot belongs to one component at a time."""


def make_subject(adapter: Adapter, config: CacheConfig) -> Subject:
    """Make an empty cache that is used by prefixes. Raises: Unoffered, UsageError."""
    _require_kind(adapter, CacheKind.TREE)
    engine = ManualEngine() if _takes_engine(adapter.make) else None
    made, copies = _make(adapter, config, engine)
    _require_methods(adapter, made, config, tree.ESSENTIAL)
    can = frozenset(each for each in Capability if callable(getattr(made, each.value, None)))
    _require_profile(adapter, made, can)
    shows = _needs_met(can) | ({Need.ENDS} if copies is not None else set())
    return Subject(cast("Cache", made), can, shows - adapter.hides, copies)


def make_request_subject(adapter: Adapter, config: CacheConfig) -> RequestSubject:
    """Make an empty cache that is used by requests. Raises: Unoffered, UsageError."""
    _require_kind(adapter, CacheKind.REQUEST)
    made, _ = _make(adapter, config, None)
    _require_methods(adapter, made, config, request.ESSENTIAL)
    can = frozenset(each for each in OF_REQUESTS if callable(getattr(made, each.value, None)))
    _require_profile(adapter, made, can)
    shows = _needs_met(can) - adapter.hides
    return RequestSubject(cast("FullRequestCache", made), can, shows, adapter.offer.one_pool)


def lacks_of(subject: Subject | RequestSubject) -> tuple[str, ...]:
    """Return the operations that a cache lacks, and the needs of laws that it cannot show."""
    lacks = [each.value for each in Capability if each not in subject.can]
    lacks += [each.value for each in Need if each not in subject.shows]
    return tuple(dict.fromkeys(lacks))


def _make(
    adapter: Adapter, config: CacheConfig, engine: ManualEngine | None
) -> tuple[object, WatchedCopies | None]:
    """Make a cache, and the control of its copies. Raises: Unoffered, UsageError."""
    try:
        made = adapter.make(config) if engine is None else adapter.make(config, engine=engine)
    except UsageError:
        raise
    except BadArgument as refusal:
        raise Unoffered(f"{adapter.name} is not made with this {refusal}") from refusal
    except Exception as error:
        raise UsageError(
            f"{adapter.name} made no cache: {describe_exception(error)}; "
            "raise BadArgument for a configuration that is not offered"
        ) from error
    copies = cast("CopyControl | None", getattr(made, "copies", None))
    return made, engine or (None if copies is None else RecordedCopies(copies))


def _require_kind(adapter: Adapter, kind: CacheKind) -> None:
    if adapter.kind is not kind:
        raise UsageError(f"{adapter.name} is used by {adapter.kind}, and was to be used by {kind}")


def _require_methods(
    adapter: Adapter, made: object, config: CacheConfig, essential: tuple[str, ...]
) -> None:
    """Refuse an object that is not a cache, or not of the adapter's kind. Raises: UsageError."""
    made_what = f"{adapter.name} made a {type(made).__name__}"
    missing = [name for name in essential if not callable(getattr(made, name, None))]
    if missing:
        raise UsageError(
            f"{made_what}, which lacks {', '.join(missing)}; "
            f"a {adapter.kind} cache has {', '.join(essential)}"
        )
    if getattr(made, "config", None) != config:
        raise UsageError(
            f"{made_what} whose `config` is not what was asked for; keep it as it was given"
        )


def _require_profile(adapter: Adapter, made: object, can: frozenset[Capability]) -> None:
    """Refuse snapshots whose profile is not the adapter's. Raises: UsageError."""
    if Capability.SNAPSHOT not in can:
        return
    try:
        shown = cast("Cache", made).snapshot().profile
    except Exception as error:
        raise UsageError(
            f"{adapter.name} shows no snapshot: {describe_exception(error)}"
        ) from error
    differing = [
        f"{name} is {getattr(shown, name)}, not {value}"
        for name, value in asdict(adapter.profile, recurse=False).items()
        if getattr(shown, name) != value
    ]
    if differing:
        raise UsageError(
            f"{adapter.name} declares one profile and its snapshots another: in them "
            f"{', '.join(differing)}; give `Adapter(profile=...)` and `Snapshot` the same"
        )


def _takes_engine(make: Callable[..., object]) -> bool:
    try:
        return "engine" in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


INSIDE = frozenset({Need.SNAPSHOT, Need.RECENCY, Need.AGES, Need.HITS, Need.HOLDS, Need.TRANSFERS})
"""Needs of laws that only a snapshot meets."""


def _needs_met(can: frozenset[Capability]) -> frozenset[Need]:
    """Return which needs of laws a cache with these methods can meet."""
    met: set[Need] = set()
    if Capability.SNAPSHOT in can:
        met |= INSIDE
    if Capability.TAKE_EVENTS in can:
        met.add(Need.EVENTS)
    if {Capability.READ, Capability.WRITE} <= can:
        met.add(Need.BYTES)
    return frozenset(met)
