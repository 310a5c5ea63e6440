"""Chapter 4. Configuration and profile: what a cache is asked to be, and what it chose to be.

`CacheConfig` is what the operator sets: page size, window, pools, policies. `Profile` is what the
author of a cache decided where sound caches differ; its defaults are the canon.

What readers get wrong: a profile excuses nothing. It moves the line that a law draws, in the open:
a cache declares it in its snapshots, and is held to what it declared.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property

from attrs import field, frozen

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


class StoreMoment(StrEnum):
    """When the arrival of pages on a medium is announced."""

    ENQUEUED = "enqueued"
    ACKNOWLEDGED = "acknowledged"


class MambaRefresh(StrEnum):
    """Which recurrent states become most recent when a match ends."""

    NODE = "node"
    PATH = "path"


class Limit(StrEnum):
    """What a cache refuses beyond the table of grounds, since it has no call for it."""

    NODE_HANDLES = "node_handles"
    """A key is locked, loaded or continued only where a match could have ended: it has a handle for
    a node, not for a key."""
    NO_QUOTA = "no_quota"
    """A load-back takes no quota of pages."""
    ONE_LOAD = "one_load"
    """A load-back may have to wait until another has ended."""
    PAIRS_TOGETHER = "pairs_together"
    """A full slot is given back together with its window slot."""
    STATE_WITH_INSERT = "state_with_insert"
    """Where states are kept, an insert hands over one."""


@frozen
class Profile:
    """Choices in which sound caches differ; the defaults are the canon, with its reasons.

    Every field is read by at least one law: a choice that no law can see is not recorded here.
    """

    load_back_announced: StoreMoment = StoreMoment.ACKNOWLEDGED
    """store(GPU) after a load-back. Canon: once the bytes are there, as for every other medium.
    SGLang announces at enqueue, and cannot take it back when the copy fails."""
    load_back_usable: StoreMoment = StoreMoment.ACKNOWLEDGED
    """When data that is loaded back counts as being on the device. Canon: once its bytes are there,
    so that a copy that fails can be undone. SGLang counts it at the enqueue, as its kernels wait
    for the copy layer by layer; then no page waits for a load, and a load holds its path only."""
    window_lock_exact: bool = True
    """A lock pins exactly the pages of its window. Canon: yes, the node is cut where the window
    begins. SGLang pins whole nodes, which lets one long leaf exhaust the pool (sgl#26919)."""
    split_keeps_recency: bool = True
    """A cut leaves the order of victims alone. Canon: yes. SGLang 0.5.13 moved the part that was
    not matched to the most recent end (sgl#38482)."""
    host_order_by_use: bool = True
    """Window data and states leave the host in the order of their last use. Canon: yes, what was
    used is needed, wherever it was then. SGLang puts them in order as they leave the device, where
    a match does not move them; what the device has too is in no order of its host."""
    whole_nodes_on_host: bool = True
    """Under write_back too, window data and states are on the host only where full data is. Canon:
    yes, none is there for nothing. SGLang copies a window alone when only it leaves the device, and
    with a node that leaves the window before it; and it gives up duplicates of full data alone."""
    locks_hold_host_copies: bool = True
    """A lock keeps what its path has on the host. Canon: yes, it is needed when the request is
    done. SGLang has other locks for the host; those of requests hold what is on the device, and
    the nodes."""
    mamba_refresh: MambaRefresh = MambaRefresh.NODE
    """Canon: only the state that was matched; older states on the path are not evidence of use
    (sgl#31643)."""
    hits_once_a_request: bool = True
    """An insert counts no hit where an earlier insert of its request did. Canon: yes, or a prompt
    that is computed in parts looks popular. SGLang 0.5.13 counts every insert (sgl#36647)."""
    idle_hits_counted: bool = True
    """Hits are counted where nothing goes by them, neither copies to the host nor the policy of
    evictions. Canon: yes, so that they are there when somebody asks. SGLang 0.5.12.post1, which
    evicts by age alone, counts hits only for the copies that they decide."""
    heals_in_place: bool = True
    """A tombstone takes only window slots, and keeps its full slots. Canon: yes, they hold what
    they held. SGLang puts the incoming full slots in their place and frees them."""
    tombstone_leaves: bool = True
    """A leaf is kept though all of its window data has left the window. Canon: yes, its full data
    is of use below. SGLang 0.5.13 frees what it would be made of (sgl#29351)."""
    unreachable_windows_kept: bool = True
    """An insert keeps the window slots of pages that are out of reach of its end, too. Canon: yes,
    other prompts may end there. Without, it frees those that it was handed for such pages, and what
    it makes of them are tombstones."""
    hits_counted_at_match: bool = False
    """A match counts a hit on all nodes of the prefix that it finds, and an insert counts none.
    Canon: no, an engine may match a waiting request at every step."""
    loads_keep_host_copies: bool = True
    """Under write_back what was loaded keeps its host copy. Canon: yes, the page can leave the
    device again without a copy. An exclusive tier gives the copy up when the load is done, so that
    data is on one medium only. Under the other policies it stays in any case: what is below on the
    host rests on it."""
    removes_end_first: bool = True
    """Pages of one node are removed from the last to the first. Canon: yes, so that no router sees
    a prefix without its beginning; Dynamo's drops all that is below a removed block, and refuses
    their removes. SGLang before 0.5.23 removes them from the first to the last. Nodes always leave
    after those below them."""
    uncovered_tombstones_stay: bool = True
    """A node without window data stays when the last of what is below it leaves. Canon: yes, nobody
    asked for its slots, and an insert gives it its window back. SGLang's SWARadixCache has no leaf
    without window data, and evicts such nodes at once, with the leaf that uncovers them."""

    cushion_refreshed: bool = True
    """A use makes the window data of its window recent, and that of one page before it, the cushion
    for the next, partly filled page. Canon: yes, as SGLang since sgl#26615. Without, the window of
    the next token may leave first."""
    limits: frozenset[Limit] = frozenset()
    """What it refuses beyond the table of grounds. Canon: nothing."""


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
    """What the operator sets. Pools are sized in slots: one slot a page, or a recurrent state.

    Raises:
        BadArgument: a size that no cache can have, or a host tier without a policy to fill it.
    """

    page_size: int = 1
    """Units a page."""
    window_tokens: int | None = None
    """Width of the sliding window; None where the model has none, and no swa component exists."""
    mamba: bool = False
    """Whether the model has recurrent layers, and so a mamba component."""
    bigram: bool = False
    """Whether keys are made of bigrams."""
    device_slots: Counts = field(default=Counts(full=1024, swa=1024, mamba=64))
    host_slots: Counts = field(default=Counts())
    write_policy: WritePolicy = field(default=WritePolicy.NONE, converter=_write_policy)
    eviction_policy: EvictionPolicy = field(default=EvictionPolicy.LRU, converter=_eviction_policy)
    load_back_threshold_pages: int = 0
    """Loads of fewer full pages than this, with nothing else to load, are not worth a copy."""
    events: bool = True
    slot_bytes: int = 8
    """Size of the payload behind each slot."""

    def __attrs_post_init__(self) -> None:
        _at_least("page_size", self.page_size, 1)
        _at_least("slot_bytes", self.slot_bytes, 1)
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
        """Whole pages that cover the window; 0 where there is none."""
        return pages_covering(self.window_tokens or 0, self.page_size)

    @property
    def host_tier(self) -> bool:
        """Whether there is a host tier at all."""
        return self.write_policy is not WritePolicy.NONE

    @property
    def backed_parents(self) -> bool:
        """Whether a node on the host needs its parent there too: under write_back it does not."""
        return self.host_tier and self.write_policy is not WritePolicy.WRITE_BACK

    @property
    def backup_hits(self) -> int | None:
        """Hits after which a node is copied to the host; None where hits do not decide."""
        thresholds = {WritePolicy.WRITE_THROUGH: 1, WritePolicy.WRITE_THROUGH_SELECTIVE: 2}
        return thresholds.get(self.write_policy)

    @property
    def goes_by_hits(self) -> bool:
        """Whether hits decide anything: what is copied to the host, or what is evicted."""
        by_hits = (EvictionPolicy.LFU, EvictionPolicy.SLRU)
        return self.backup_hits is not None or self.eviction_policy in by_hits

    def capacity(self, component: Component, medium: Medium) -> int:
        """Slots of a pool; 0 for a medium or component that this cache does not have."""
        if component not in self.components or medium not in (GPU, CPU):
            return 0
        return (self.device_slots if medium is GPU else self.host_slots)[component]


def _at_least(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or value < least:
        raise BadArgument(name, f"is {value!r}; it must be a whole number of at least {least}")
