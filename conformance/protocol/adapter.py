"""Adapters: how the judge makes a cache, which configurations it offers, and what it lacks.

A cache is one of two kinds: it has operations on prefixes (`tree.TreeCache`), or on requests only
(`request.RequestCache`). Further methods declare what else it can do.

A factory raises `BadArgument` for a configuration that it does not offer; the case is then skipped
and counted. Any other exception of a factory is a finding.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from attrs import evolve, field, frozen

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.protocol import request, tree
from kvcanon.conformance.protocol.declared import (
    check_callable,
    check_name,
    check_profile,
    flag,
    flags,
    instance_of,
    member,
    members,
    require_object,
    require_profile,
    set_of,
    whole_number,
    whole_numbers,
)
from kvcanon.conformance.protocol.request import FullRequestCache, RequestCache
from kvcanon.conformance.protocol.tree import TreeCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import Need
from kvcanon.spec.snapshot import RankView, Snapshot
from kvcanon.spec.tier import OrderId, OrderProgress, StoreCalls
from kvcanon.spec.transfer import EngineCalls
from kvcanon.spec.types import EvictionPolicy, Medium, TransferId, WritePolicy

if TYPE_CHECKING:
    from kvcanon.reference.engine import ManualEngine
    from kvcanon.reference.store_queue import ManualQueue


class Capability(StrEnum):
    """An optional operation; the value is the name of the method that provides it."""

    UNLOCK_WINDOW = "unlock_window"
    EVICT = "evict"
    EVICT_HOST = "evict_host"
    LOAD_BACK = "load_back"
    INSERT_HOST = "insert_host"
    POLL = "poll"
    FLUSH = "flush"
    ARRIVED = "arrived"
    SETTLE = "settle"
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


@runtime_checkable
class WaitControl(Protocol):
    """Copy control that also says how the waits of a cache end: that of the judge's engine."""

    @property
    def wait_end(self) -> str:
        """How the next wait for an open copy ends."""

    def next_wait(self, end: str) -> None:
        """Say how the next wait for an open copy ends: "done", "failed" or "broken_off"."""


class WatchedCopies(CopyControl, Protocol):
    """Copy control that also shows how copies ended."""

    @property
    def ended(self) -> Mapping[TransferId, bool]:
        """How copies ended: True if performed, False if failed."""


class StoreControl(Protocol):
    """Decides how far the orders to a store go, and what becomes of the store."""

    @property
    def open_order_ids(self) -> Sequence[OrderId]:
        """Return the orders that have not ended."""

    @property
    def progress(self) -> Mapping[OrderId, OrderProgress]:
        """How far each order is, on every rank."""

    def go_on(self, order_id: OrderId, pages: int) -> None:
        """Let an order write or fetch so many more pages."""

    def end(self, order_id: OrderId) -> None:
        """Let an order end where it is."""

    def finish(self) -> None:
        """Let all open orders end where they are."""

    def lose(self, at: int) -> None:
        """Let the store lose one of its pages."""

    def damage(self, at: int, how: int) -> None:
        """Let the store give other bytes for one of its pages."""

    def take_calls(self) -> StoreCalls:
        """Return the calls of the cache, and what was written, since the last call."""


def ends_known(copies: WatchedCopies | None, before: Snapshot) -> dict[TransferId, bool]:
    """Return how the copies ended that were in flight in the state `before`."""
    if copies is None or not before.transfers:
        return {}
    ended = copies.ended
    flying = [each.transfer_id for each in before.transfers]
    return {each: ended[each] for each in flying if each in ended}


def engine_calls(copies: WatchedCopies | None) -> EngineCalls | None:
    """Return the calls of a cache to the judge's engine since the last look, if it has one."""
    orders, waits = getattr(copies, "orders", None), getattr(copies, "waits", None)
    if orders is None or waits is None:
        return None
    ended = copies.ended if orders and copies is not None else {}
    failed = frozenset(each.transfer_id for each in orders if ended.get(each.transfer_id) is False)
    broke_off = getattr(copies, "broke_off", None) if waits else None
    calls = EngineCalls(tuple(orders), tuple(waits), failed, broke_off)
    orders.clear()
    waits.clear()
    if broke_off is not None:
        copies.broke_off = None  # type: ignore[union-attr]  # It was not None.
    return calls


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
SPREAD = 18
"""How many slots more than the least the largest of the small pools has."""
ONE_LOG = (CacheConfig().max_pending_events,)
"""A log of events that no case fills: for caches that do not bound theirs."""
MOST_TOKENS = 8_192
"""Tokens of the largest page that may be offered: a case has prompts of some dozens of pages."""
MOST_NUMBER = 2**31 - 1
"""The largest window, and the largest pool, that may be offered."""


@frozen
class Offer:
    """Which configurations a cache can be made with; the defaults allow all that are drawn."""

    page_sizes: tuple[int, ...] = field(
        default=SMALL_PAGES + LARGE_PAGES, validator=whole_numbers(1, MOST_TOKENS)
    )
    windows_tokens: tuple[int | None, ...] = field(
        default=(None, *SMALL_WINDOWS, *LARGE_WINDOWS),
        validator=whole_numbers(1, MOST_NUMBER, or_none=True),
    )
    """None means without a window."""
    mamba: tuple[bool, ...] = field(default=(False, True), validator=flags())
    bigram: tuple[bool, ...] = field(default=(False, True), validator=flags())
    write_policies: tuple[WritePolicy, ...] = field(
        default=tuple(WritePolicy), validator=members(WritePolicy)
    )
    eviction_policies: tuple[EvictionPolicy, ...] = field(
        default=tuple(EvictionPolicy), validator=members(EvictionPolicy)
    )
    load_back_thresholds_pages: tuple[int, ...] = field(
        default=(0, 0, 2), validator=whole_numbers(0, MOST_SLOTS)
    )
    events: tuple[bool, ...] = field(default=(True,) * 11 + (False,), validator=flags())
    """Whether events are enabled: mostly True, as most laws need events."""
    event_logs: tuple[int, ...] = field(
        default=ONE_LOG * 5 + (3, 12), validator=whole_numbers(1, MOST_NUMBER)
    )
    """How many events may wait (`max_pending_events`): seldom so few that they are given up."""
    other_keys: bool = field(default=False, validator=flag())
    """Whether cases also have keys of other pages or units than the cache's, which it must refuse.
    """
    states_within: bool = field(default=False, validator=flag())
    """Whether inserts hand over mamba states at several pages of their key (`state_pages`)."""
    stores: bool = field(default=False, validator=flag())
    """Whether the cache can have a store below its host tier: its factory takes `store`, a
    `kvcanon.spec.tier.StoreQueue`, and its caches have the methods of `StoredCache`."""
    namespaces: bool = field(default=True, validator=flag())
    """Whether keys may be in other namespaces than the default one."""
    least_slots: int = field(default=2, validator=whole_number(1, MOST_SLOTS))
    """The smallest number of full slots that the cache can be made with."""
    most_slots: int = field(default=MOST_SLOTS, validator=whole_number(1, MOST_NUMBER))
    """The largest number of full slots, on either medium."""
    one_pool: bool = field(default=False, validator=flag())
    """Whether all components share one pool, whose size is the sum of their pools."""

    def __attrs_post_init__(self) -> None:
        """Refuse pools that leave no choice. Raises: UsageError."""
        least = self.least_slots + SPREAD
        if self.most_slots < least:
            raise UsageError(
                f"Offer.most_slots is {self.most_slots} and Offer.least_slots is "
                f"{self.least_slots}; cases have pools of {SPREAD} slots more than the least, so "
                f"give most_slots of at least {least}"
            )


class CacheKind(StrEnum):
    """How a cache is used."""

    TREE = "tree"
    """By prefixes, through a `TreeCache`."""
    REQUEST = "request"
    """By requests, through a `RequestCache`."""


MakeCache = Callable[..., TreeCache | RequestCache]
"""Takes a `CacheConfig`, and `engine`, a `TransferEngine`, if an engine can run its copies; and
`agree`, a `kvcanon.spec.transfer.Agree` or None, if the cache can be one of several ranks.

It may raise `BadArgument` for a configuration that it does not offer.
"""


@frozen
class Adapter:
    """A cache to be judged: its factory, its kind, what it offers and what it lacks."""

    name: str = field(validator=check_name)
    make: MakeCache = field(validator=check_callable)
    offer: Offer = field(
        default=Offer(), validator=instance_of(Offer, "give an Offer, as Offer(page_sizes=(16,))")
    )
    profile: Profile = field(default=CANON, validator=check_profile)
    """Where the cache departs from the canon; its snapshots must say the same."""
    hides: frozenset[Need] = field(default=frozenset(), validator=set_of(Need))
    """What its snapshots cannot show truthfully, though they have the fields."""
    kind: CacheKind = field(default=CacheKind.TREE, validator=member(CacheKind))
    is_bare: bool = field(default=False, validator=flag())
    """Whether it stands for a factory that was named without an adapter: what its caches ignore
    altogether counts as not offered."""
    compared_folded: bool = field(default=False, validator=flag())
    """Whether a comparison with it leaves out transfers, and the order of an answer's events."""


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
    ranks: Callable[[], tuple[RankView, ...]] | None = None
    """Shows the last operation on each rank; None where there is only one."""
    states_within: bool = False
    """Whether its inserts take mamba states at several pages of their key."""
    store: StoreControl | None = None
    """The control of the store below its host tier; None without one."""


@frozen(eq=False)
class RequestSubject:
    """One new cache of an adapter that is used by requests."""

    cache: FullRequestCache
    """Has the methods of a `RequestCache` and those in `can`."""
    can: frozenset[Capability]
    shows: frozenset[Need]
    one_pool: bool = False
    """Whether its components share one pool, where a slot belongs to one component at a time."""


def make_subject(
    adapter: Adapter,
    config: CacheConfig,
    *,
    own_copies: bool = False,
    store: Medium | None = None,
) -> Subject:
    """Make an empty cache that is used by prefixes. Raises: Unoffered, UsageError.

    With `own_copies` its factory gets no engine, so that it decides itself when copies end. With
    `store` it has a store on that medium below its host tier.
    """
    _require_kind(adapter, CacheKind.TREE)
    if store is not None:
        return _make_stored(adapter, config, store)
    engine = None
    if _takes(adapter.make, "engine") and not own_copies:
        # What makes no such cache does not wait for this import.
        from kvcanon.reference.engine import ManualEngine  # noqa: PLC0415

        engine = ManualEngine()
    made, copies = _make(adapter, config, engine)
    _require_methods(adapter, made, config, tree.ESSENTIAL)
    if Capability.SNAPSHOT in methods_of(made):
        require_profile(adapter.name, adapter.profile, made)
    subject = subject_of(made, copies)
    shows = subject.shows
    if engine is not None and takes_agree(adapter):
        _require_methods(adapter, made, config, ("arrived", "settle"))
        shows |= {Need.RANKS}
    within = adapter.offer.states_within
    return evolve(subject, shows=shows - adapter.hides, states_within=within)


def _make_stored(adapter: Adapter, config: CacheConfig, medium: Medium) -> Subject:
    """Make an empty cache over an empty store. Raises: Unoffered, UsageError."""
    if not adapter.offer.stores:
        raise Unoffered(f"{adapter.name} offers no store below its host tier")
    # Most cases have no store, and do not wait for this import.
    from kvcanon.reference.engine import ManualEngine  # noqa: PLC0415
    from kvcanon.reference.store_queue import ManualQueue  # noqa: PLC0415

    return make_stored_subject(adapter, config, ManualQueue(medium), ManualEngine())


def make_stored_subject(
    adapter: Adapter,
    config: CacheConfig,
    queue: ManualQueue,
    engine: ManualEngine | None = None,
) -> Subject:
    """Make an empty cache over the store of a queue. Raises: UsageError.

    Without an engine the cache decides itself when copies end.
    """
    given = {"store": queue} if engine is None else {"store": queue, "engine": engine}
    with making(adapter):
        made = adapter.make(config, **given)
    _require_methods(adapter, made, config, (*tree.ESSENTIAL, *OF_A_STORE))
    subject = subject_of(made, engine)
    return evolve(subject, shows=(subject.shows | {Need.STORE}) - adapter.hides, store=queue)


OF_A_STORE = ("store", "prefetch", "poll_store", "end_prefetch")
"""The methods of a cache with a store below its host tier, besides those of every cache."""


def takes_agree(adapter: Adapter) -> bool:
    """Whether a factory makes caches that can be one of several ranks."""
    return _takes(adapter.make, "engine") and _takes(adapter.make, "agree")


def why_no_engine(adapter: Adapter) -> str:
    """Why a factory that takes anything by name got no engine; empty for any other factory.

    What it would do with an `engine` that it does not name is not known: it may pass it on.
    """
    try:
        taken = inspect.signature(adapter.make).parameters.values()
    except (TypeError, ValueError):
        return ""
    if adapter.kind is CacheKind.REQUEST or _takes(adapter.make, "engine"):
        return ""
    anything = next((each.name for each in taken if each.kind is each.VAR_KEYWORD), None)
    if anything is None:
        return ""
    return f"its factory takes **{anything}, and names no `engine`: so it got none"


def subject_of(cache: object, copies: WatchedCopies | None = None) -> Subject:
    """Return a cache that was made already, with what it can do and what it shows."""
    can = methods_of(cache)
    shows = needs_met(can) | ({Need.ENDS} if copies is not None else set())
    return Subject(cast("Cache", cache), can, shows, copies)


def make_request_subject(adapter: Adapter, config: CacheConfig) -> RequestSubject:
    """Make an empty cache that is used by requests. Raises: Unoffered, UsageError."""
    _require_kind(adapter, CacheKind.REQUEST)
    made, _ = _make(adapter, config, None)
    _require_methods(adapter, made, config, request.ESSENTIAL)
    can = methods_of(made) & OF_REQUESTS
    if Capability.SNAPSHOT in can:
        require_profile(adapter.name, adapter.profile, made)
    shows = needs_met(can) - adapter.hides
    return RequestSubject(cast("FullRequestCache", made), can, shows, adapter.offer.one_pool)


def lacks_of(subject: Subject | RequestSubject) -> tuple[str, ...]:
    """Return the operations that a cache lacks, and the needs of laws that it cannot show.

    A store below the host is no lack: only an offer says whether it can be made with one.
    """
    lacks = [each.value for each in Capability if each not in subject.can]
    lacks += [each.value for each in Need if each not in {*subject.shows, Need.STORE}]
    return tuple(dict.fromkeys(lacks))


def _make(
    adapter: Adapter, config: CacheConfig, engine: ManualEngine | None
) -> tuple[object, WatchedCopies | None]:
    """Make a cache, and the control of its copies. Raises: Unoffered, UsageError."""
    with making(adapter):
        made = adapter.make(config) if engine is None else adapter.make(config, engine=engine)
    copies = cast("CopyControl | None", getattr(made, "copies", None))
    return made, engine or (None if copies is None else RecordedCopies(copies))


@contextmanager
def making(adapter: Adapter) -> Iterator[None]:
    """Say that no cache was made, if the block raises. Raises: Unoffered, UsageError."""
    try:
        yield
    except UsageError:
        raise
    except BadArgument as refusal:
        raise Unoffered(f"{adapter.name} is not made with this {refusal}") from refusal
    except Exception as error:
        raise UsageError(
            f"{adapter.name} made no cache: {describe_exception(error)}; "
            "raise BadArgument for a configuration that is not offered"
        ) from error


def _require_kind(adapter: Adapter, kind: CacheKind) -> None:
    if adapter.kind is not kind:
        used = {CacheKind.TREE: "prefixes", CacheKind.REQUEST: "requests"}
        raise UsageError(
            f"{adapter.name} is used by {used[adapter.kind]}; this needs a cache that is used by "
            f"{used[kind]}"
        )


def _require_methods(
    adapter: Adapter, made: object, config: CacheConfig, essential: tuple[str, ...]
) -> None:
    """Refuse an object that is not a cache, or not of the adapter's kind. Raises: UsageError."""
    require_object(adapter.name, made)
    made_what = f"{adapter.name} made a {type(made).__name__}"
    missing = [name for name in essential if not callable(getattr(made, name, None))]
    if missing:
        kind = f"CacheKind.{adapter.kind.name}"
        other = next(each for each in CacheKind if each is not adapter.kind)
        raise UsageError(
            f"{made_what}, which lacks {', '.join(missing)}; a cache of {kind} has "
            f"{', '.join(essential)} (is it one of CacheKind.{other.name}?)"
        )
    if getattr(made, "config", None) != config:
        raise UsageError(
            f"{made_what} whose `config` is not what was asked for; keep it as it was given"
        )


def _takes(make: Callable[..., object], argument: str) -> bool:
    try:
        return argument in inspect.signature(make).parameters
    except (TypeError, ValueError):
        return False


INSIDE = frozenset({Need.SNAPSHOT, Need.RECENCY, Need.AGES, Need.HITS, Need.HOLDS, Need.TRANSFERS})
"""Needs of laws that only a snapshot meets."""


def methods_of(cache: object) -> frozenset[Capability]:
    """Return the optional operations that a cache has."""
    return frozenset(each for each in Capability if callable(getattr(cache, each.value, None)))


def needs_met(can: frozenset[Capability]) -> frozenset[Need]:
    """Return which needs of laws a cache with these methods can meet."""
    met: set[Need] = set(INSIDE) if Capability.SNAPSHOT in can else set()
    if Capability.TAKE_EVENTS in can:
        met.add(Need.EVENTS)
    if {Capability.READ, Capability.WRITE} <= can:
        met.add(Need.BYTES)
    return frozenset(met)
