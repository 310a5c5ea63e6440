"""Chapter 4. Configuration and profile: the operator's settings, and the choices of a cache.

`CacheConfig` has what the operator sets: page size, window, pools, policies. `Profile` has the
choices that the author of a cache made where sound caches differ; its defaults are the canon.

A profile does not switch laws off. A cache declares its profile in its snapshots, and the laws
check that the cache does what the profile says.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from attrs import field, fields, frozen

from kvcanon.spec.errors import BadArgument
from kvcanon.spec.oracle.pages import pages_covering
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    EvictionPolicy,
    Medium,
    WritePolicy,
)

Value = TypeVar("Value")


class StoreMoment(StrEnum):
    """When pages count as being on the medium that a copy brings them to."""

    ENQUEUED = "enqueued"
    ACKNOWLEDGED = "acknowledged"


class MambaRefresh(StrEnum):
    """Which mamba states become most recent when a match ends."""

    NODE = "node"
    PATH = "path"


class Limit(StrEnum):
    """Calls that a cache refuses beyond the table of refusals, since it does not support them."""

    NODE_HANDLES = "node_handles"
    """A key is locked, loaded or continued only where a match could have ended: the cache has
    handles for nodes, not for keys."""
    NO_QUOTA = "no_quota"
    """A load-back takes no quota of pages."""
    ONE_LOAD = "one_load"
    """A load-back may have to wait until another has ended."""
    PAIRS_TOGETHER = "pairs_together"
    """A full slot is freed together with its window slot."""
    STATE_WITH_INSERT = "state_with_insert"
    """Where mamba states are kept, every insert hands over one."""


class Choosing(StrEnum):
    """Who makes a choice."""

    AS_CANON = "as_canon"
    """The cache chooses as the canon does, and laws of policy judge it."""
    OWN = "own"
    """The cache chooses in a way of its own, which no law of policy judges."""


@frozen
class Choice:
    """What a field of a profile chooses between, in words."""

    canon: str
    """What the canon does."""
    otherwise: str
    """What a cache does that declares another value."""
    variations: Mapping[str, object] = field(factory=dict, hash=False)
    """The lawful variations of the plain cache that depart here, with the value each declares."""


def choice(
    canonical: Value, *, canon: str, otherwise: str, variations: Mapping[str, Value] | None = None
) -> Value:
    """A field of a profile, with the value of the canon and what it chooses between."""
    words = Choice(canon, otherwise, variations or {})
    made: Value = field(default=canonical, metadata={Choice: words})
    return made


def choices() -> Mapping[str, Choice]:
    """What each field of a profile chooses between, in the order of the fields."""
    return {each.name: each.metadata[Choice] for each in fields(Profile)}


@frozen
class Profile:
    """Choices in which sound caches differ; the defaults are the canon, with its reasons.

    Every field is read by at least one law: a choice that no law can see is not recorded here.
    What reports and docs say of a field, and the variations that depart in it, stand beside it.
    """

    # What an eviction takes.

    eviction: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="an eviction takes what its policy puts first, and no more than is needed",
        otherwise="an eviction chooses by a policy of its own what leaves, in which order, and how "
        "much more than was asked",
        variations={
            "evictions_in_batches": Choosing.OWN,
            "latest_first": Choosing.OWN,
        },
    )
    """What an eviction takes. Canon: what the policy of the configuration puts first, one by one,
    until enough is free. SIEVE and 2Q choose otherwise; TensorRT-LLM and Mooncake evict in batches,
    down to a watermark."""
    retention: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="data leaves a medium only when a call needs its slots",
        otherwise="data that nobody holds also leaves on its own, in any call",
        variations={"unused_leaves_expire": Choosing.OWN, "allocations_evict": Choosing.OWN},
    )
    """What data leaves for. Canon: an eviction. Elsewhere leases end and leaves expire, as in
    Mooncake and TensorRT-LLM, or `allocate` evicts what it needs, as vLLM's does."""
    uncovered_tombstones_stay: bool = choice(
        True,
        canon="a node without window data stays when its last child leaves",
        otherwise="a node without window data leaves with the last of what is below it",
        variations={"uncovered_tombstones_leave": False},
    )
    """A node without window data stays when its last child leaves. Canon: yes, its slots were not
    requested, and an insert can restore its window. SGLang's SWARadixCache has no leaf without
    window data: it evicts such a node at once, together with its last child."""
    host_order_by_use: bool = choice(
        True,
        canon="windows and states leave the host in the order of their use",
        otherwise="window data and states leave the host in the order in which they left the "
        "device",
        variations={"host_in_order_of_arrival": False},
    )
    """Window data and mamba states are evicted from the host in the order of their last use. Canon:
    yes, data that was used is needed, on whichever medium it was then. SGLang adds them to the
    host's order as they leave the device, and a match does not move them there; data that is also
    on the device is in no order of the host."""
    locks_hold_host_copies: bool = choice(
        True,
        canon="a lock protects host copies, too",
        otherwise="host copies of what is locked on the device may leave",
        variations={"locks_of_the_device": False},
    )
    """A lock protects the host copies on its path. Canon: yes, they are needed when the request is
    done. SGLang has separate locks for the host; the locks of requests protect the nodes and their
    data on the device."""

    # What is kept, and in which slots.

    admission: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="an insert keeps its whole key",
        otherwise="an insert keeps as many new pages as the cache chooses, and says which it freed",
        variations={"seen_twice_is_admitted": Choosing.OWN},
    )
    """Whether an insert keeps what it is given. Canon: all of it. TinyLFU keeps a prompt at its
    second insert, and some caches keep none below a length. What was there before stays."""
    placement: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="data stays in its slots until it leaves",
        otherwise="data that nobody holds may move to other slots, with its bytes",
        variations={"compaction": Choosing.OWN},
    )
    """Whether data stays where it is. Canon: yes, slots are the address by which kernels find it. A
    compacting pool moves what is neither locked nor being copied, in any call, to slots that were
    free before it."""
    reserved_slots: Counts = choice(
        Counts(),
        canon="every device slot can be allocated",
        otherwise="the cache keeps some device slots of each pool for itself, and hands none out",
        variations={"padding_slot": Counts(full=1)},
    )
    """Device slots of each pool that the cache never hands out. Canon: none. SGLang keeps slot 0
    for padding."""

    # What makes data recent, and what counts as a hit.

    recency: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="a match or an insert makes the data of its prefix recent",
        otherwise="the cache chooses which calls make which data recent",
        variations={"recent_at_lock": Choosing.OWN, "recent_at_release": Choosing.OWN},
    )
    """What makes data recent. Canon: a match and an insert, the data that their end needs. vLLM
    makes blocks recent when a request lets go of them."""
    split_keeps_recency: bool = choice(
        True,
        canon="a cut does not change the LRU order",
        otherwise="a cut makes the part that was not matched the most recent",
        variations={"recent_lower_parts": False, "recent_upper_parts": False},
    )
    """A cut does not change the LRU order. Canon: yes. SGLang 0.5.13 moved the part that was not
    matched to the most recent end (sgl#38482)."""
    cushion_refreshed: bool = choice(
        True,
        canon="a use also makes the page before its window recent",
        otherwise="a use leaves the window data of the page before its window as it was",
        variations={"bare_windows": False},
    )
    """A use makes the window data of its window recent, and that of the page before it, the cushion
    for the next, partly filled page. Canon: yes, as SGLang since sgl#26615. Otherwise the window of
    the next token may be evicted first."""
    mamba_refresh: MambaRefresh = choice(  # noqa: RUF009
        MambaRefresh.NODE,
        canon="a match makes the state recent that it found",
        otherwise="a match makes all states on its path recent, not only the matched one",
        variations={"states_on_the_path": MambaRefresh.PATH},
    )
    """Which mamba states a match makes recent. Canon: only the state that was matched; it says
    nothing about the use of older states on the path (sgl#31643)."""
    hits_once_a_request: bool = choice(
        True,
        canon="a request counts a page once",
        otherwise="every insert counts hits on its whole path, also a later one of a request",
        variations={"every_insert_hits": False},
    )
    """An insert counts no hit on pages where an earlier insert of its request counted one. Canon:
    yes, otherwise a prompt that is computed in chunks looks popular. SGLang 0.5.13 counts every
    insert (sgl#36647)."""
    idle_hits_counted: bool = choice(
        True,
        canon="hits are counted even if nothing uses them",
        otherwise="no hits are counted where neither copies nor evictions go by them",
        variations={"idle_hits_uncounted": False},
    )
    """Hits are counted even if neither copies to the host nor the eviction policy use them. Canon:
    yes, so that they can be read. SGLang 0.5.12.post1, which evicts by age alone, counts hits only
    where they decide about copies."""
    hits_counted_at_match: bool = choice(
        False,
        canon="an insert counts hits",
        otherwise="hits are counted by matches, and not by inserts",
        variations={"matches_count_hits": True},
    )
    """A match counts a hit on all nodes of the prefix that it finds; an insert counts none. Canon:
    no, an engine may match a waiting request at every step."""

    # Copies between device and host.

    backups: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="an insert backs up each node of its path that has enough hits",
        otherwise="the cache chooses when it copies which data to the host, in any call",
        variations={
            "backups_at_the_first_hit": Choosing.OWN,
            "backups_at_the_next_poll": Choosing.OWN,
        },
    )
    """When data is copied to the host. Canon: in the insert that gives it enough hits, all data of
    a node together. Others copy at the first hit, or as LMCache in a later call."""
    loads: Choosing = choice(  # noqa: RUF009
        Choosing.AS_CANON,
        canon="data is loaded back when a call asks for it",
        otherwise="the cache also begins loads on its own, in any call",
        variations={"prefetches": Choosing.OWN},
    )
    """When data is loaded back. Canon: when `load_back` asks. A cache that prefetches begins a load
    in the match that finds data on the host alone; its answer does not name that load yet."""
    loads_whole_keys: bool = choice(
        True,
        canon="a load-back loads all of its key or nothing",
        otherwise="where the device has no room for all of its key, a load-back loads as many "
        "leading pages as fit, and says how many",
        variations={"leading_pages_loaded": False},
    )
    """A load-back loads all of its key or nothing. Canon: yes, a prompt then finds what its match
    said. Otherwise it may load the leading pages that fit, if they are worth a copy."""
    whole_nodes_on_host: bool = choice(
        True,
        canon="windows and states are on the host only with full data",
        otherwise="under write_back, window data and states are on the host also without the full "
        "data of their node",
        variations={"parts_on_host": False},
    )
    """Under write_back too, window data and mamba states are on the host only where full data is.
    Canon: yes, they are of no use without it. SGLang copies a window alone when only the window
    leaves the device, and with a node that leaves it copies the window before the node; and it
    evicts duplicates of full data alone."""
    loads_keep_host_copies: bool = choice(
        True,
        canon="under `write_back` a loaded page keeps its host copy",
        otherwise="under write_back the host copy of what is loaded is given up when the load is "
        "done",
        variations={"exclusive_host": False},
    )
    """Under write_back a loaded page keeps its host copy. Canon: yes, the page can then leave the
    device without another copy. An exclusive tier frees the host copy when the load is done, so
    that data is on one medium only. Under the other policies the host copy stays in any case: host
    copies of nodes below need it."""
    load_back_usable: StoreMoment = choice(  # noqa: RUF009  # A field of attrs.
        StoreMoment.ACKNOWLEDGED,
        canon="loaded data is usable when it is there",
        otherwise="what is loaded back counts as being on the device when the copy is enqueued, "
        "so that no page waits for it",
        variations={"loads_of_use_early": StoreMoment.ENQUEUED},
    )
    """When data that is loaded back counts as being on the device. Canon: once its bytes are there,
    so that a copy that fails can be undone. SGLang counts it at the enqueue, as its kernels wait
    for the copy layer by layer; then no page waits for a load, and a load holds its path only."""

    # The store below the host.

    fetches_all_pages: bool = choice(
        True,
        canon="a prefetch takes each page that the store gives",
        otherwise="a prefetch ends at a page that has come to the host in another way since it was "
        "ordered",
        variations={"fetches_end_at_host_pages": False},
    )
    """A prefetch takes each page that the store gives. Canon: yes, the insert at its end frees what
    the host has by then. A cache that looks at its host first lets the prefetch end at such a page,
    as at one that the store does not have."""

    # Windows.

    window_lock_exact: bool = choice(
        True,
        canon="a lock holds exactly the pages of its window",
        otherwise="a window lock pins whole nodes, and so more than its window",
        variations={"whole_node_windows": False},
    )
    """A lock pins exactly the pages of its window. Canon: yes, the node is cut where the window
    begins. SGLang pins whole nodes, which lets one long leaf exhaust the pool (sgl#26919)."""
    heals_in_place: bool = choice(
        True,
        canon="a tombstone that gets window slots keeps its full slots",
        otherwise="window data that was gone comes back with new full slots, in place of those "
        "that were there",
        variations={"new_slots_heal": False},
    )
    """An insert gives a tombstone window slots, and the tombstone keeps its full slots. Canon: yes,
    their data is still valid. SGLang frees them and takes the incoming full slots instead."""
    tombstone_leaves: bool = choice(
        True,
        canon="an insert keeps a leaf whose window data is gone",
        otherwise="what would be a leaf without window data is not kept",
        variations={"windowless_leaves_dropped": False},
    )
    """An insert keeps a new leaf all of whose window data has left the window. Canon: yes, its full
    data is of use to longer prompts. SGLang 0.5.13 frees the slots instead (sgl#29351)."""
    unreachable_windows_kept: bool = choice(
        True,
        canon="an insert keeps all window slots that it is given",
        otherwise="an insert frees the window slots that it is handed for pages out of reach of "
        "its end",
        variations={"unreachable_windows_dropped": False},
    )
    """An insert also keeps window slots of pages that its end cannot see. Canon: yes, other prompts
    may end there. Otherwise it frees these slots, and the pages become tombstones."""

    # Mamba states.

    path_states: int = choice(
        0,
        canon="an insert keeps all states that it is given",
        otherwise="a path keeps so many mamba states only, and an insert frees those that would be "
        "more, the deepest one last",
        variations={"one_state_a_path": 1},
    )
    """How many mamba states a path keeps; 0 for as many as inserts bring. Canon: all, an eviction
    frees what is not used. SGLang has `--mamba-max-states-per-path`. An insert then frees what it
    brings beyond that number, but the deepest state; what was there before stays."""

    # Events.

    load_back_announced: StoreMoment = choice(  # noqa: RUF009  # A field of attrs.
        StoreMoment.ACKNOWLEDGED,
        canon="a load-back emits its stores when it is done",
        otherwise="store(GPU) of a load-back is announced when the copy is enqueued, before the "
        "bytes are there",
        variations={
            "loads_announced_early": StoreMoment.ENQUEUED,
            "loads_of_use_early": StoreMoment.ENQUEUED,
        },
    )
    """When a load-back emits store(GPU). Canon: once the bytes are there, as for every other
    medium. SGLang emits it at the enqueue, and cannot take it back when the copy fails."""
    removes_end_first: bool = choice(
        True,
        canon="the removes of a node run from its last page to its first",
        otherwise="the pages of one node are removed in any order, also the first one first",
        variations={"removes_front_to_back": False},
    )
    """The remove events of one node run from its last page to its first. Canon: yes, so that no
    router sees a prefix without its beginning; Dynamo's router drops all blocks below a removed
    block, and then rejects their removes. SGLang before 0.5.23 removes from the first page to the
    last. Nodes always leave after the nodes below them."""

    # Refusals.

    limits: frozenset[Limit] = choice(
        frozenset(),
        canon="no call is refused beyond the table of refusals",
        otherwise="calls may be refused for reasons that the table of refusals does not have",
        variations={"loads_without_quota": frozenset({Limit.NO_QUOTA})},
    )
    """Calls that the cache refuses beyond the table of refusals. Canon: none."""

    @cached_property
    def acts_unasked(self) -> bool:
        """Whether a call may do what it was not asked for: expire, copy or move data."""
        return Choosing.OWN in (self.retention, self.placement, self.backups, self.loads)


CANON = Profile()


def _write_policy(name: str) -> WritePolicy:
    if name not in tuple(WritePolicy):
        raise BadArgument("write_policy", f"is {name!r}; choose of {', '.join(WritePolicy)}")
    return WritePolicy(name)


def _eviction_policy(name: str) -> EvictionPolicy:
    if name not in tuple(EvictionPolicy):
        raise BadArgument("eviction_policy", f"is {name!r}; choose of {', '.join(EvictionPolicy)}")
    return EvictionPolicy(name)


@frozen
class CacheConfig:
    """The operator's settings. Pools are sized in slots: one slot a page, or one a mamba state.

    Raises:
        BadArgument: a size that no cache can have, or a host tier without a policy to fill it.
    """

    page_size: int = 1
    """Units a page."""
    window_tokens: int | None = None
    """Width of the sliding window; None if the model has none: then there is no swa component."""
    mamba: bool = False
    """Whether the model has mamba layers, and so the cache a mamba component."""
    bigram: bool = False
    """Whether keys are made of bigrams."""
    device_slots: Counts = field(default=Counts(full=1024, swa=1024, mamba=64))
    host_slots: Counts = field(default=Counts())
    write_policy: WritePolicy = field(default=WritePolicy.NONE, converter=_write_policy)
    eviction_policy: EvictionPolicy = field(default=EvictionPolicy.LRU, converter=_eviction_policy)
    load_back_threshold_pages: int = 0
    """A load of fewer full pages than this, and of nothing else, is not worth a copy."""
    events: bool = True
    max_pending_events: int = 1 << 20
    """Events that may wait to be taken. When more would wait, all are replaced: by
    `AllBlocksCleared`, and a store of each page that is resident at the moment of `take_events`."""
    slot_bytes: int = 8
    """Bytes behind each slot."""

    def __attrs_post_init__(self) -> None:
        _at_least("page_size", self.page_size, 1)
        _at_least("slot_bytes", self.slot_bytes, 1)
        _at_least("max_pending_events", self.max_pending_events, 1)
        _at_least("load_back_threshold_pages", self.load_back_threshold_pages, 0)
        if self.window_tokens is not None:
            _at_least("window_tokens", self.window_tokens, 1)
        for component in Component:
            _at_least(f"device_slots.{component}", self.device_slots[component], 0)
            _at_least(f"host_slots.{component}", self.host_slots[component], 0)
        if self.host_slots and self.write_policy is WritePolicy.NONE:
            raise BadArgument("write_policy", "is none, but host slots are given; choose a policy")

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """The components of this cache, in cascade order: full, then swa, then mamba."""
        swa = (SWA,) if self.window_tokens is not None else ()
        mamba = (MAMBA,) if self.mamba else ()
        return (FULL, *swa, *mamba)

    @property
    def window_pages(self) -> int:
        """Whole pages that cover the window; 0 without a window."""
        return pages_covering(self.window_tokens or 0, self.page_size)

    @cached_property
    def host_tier(self) -> bool:
        """Whether the cache has a host tier."""
        return self.write_policy is not WritePolicy.NONE

    @cached_property
    def backed_parents(self) -> bool:
        """Whether a node on the host needs its parent on the host too; not under write_back."""
        return self.host_tier and self.write_policy is not WritePolicy.WRITE_BACK

    @cached_property
    def backup_hits(self) -> int | None:
        """Hits after which a node is copied to the host; None if hits do not decide."""
        thresholds = {WritePolicy.WRITE_THROUGH: 1, WritePolicy.WRITE_THROUGH_SELECTIVE: 2}
        return thresholds.get(self.write_policy)

    @property
    def goes_by_hits(self) -> bool:
        """Whether hits decide what is copied to the host, or what is evicted."""
        by_hits = (EvictionPolicy.LFU, EvictionPolicy.SLRU)
        return self.backup_hits is not None or self.eviction_policy in by_hits

    def capacity(self, component: Component, medium: Medium) -> int:
        """Slots of a pool; 0 for a medium or component that this cache lacks."""
        if component not in self.components or medium not in (GPU, CPU):
            return 0
        return (self.device_slots if medium is GPU else self.host_slots)[component]


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise BadArgument(name, f"is {value!r}; it must be a whole number of at least {least}")
