"""An engine's side of the protocol: the calls that serve one request.

Requests are served one after another: matched, locked, loaded back if the prefix is on the host
only, given exactly the slots that they lack, inserted and unlocked.

A cache may lack what is optional. Without `evict` a request that does not fit is rejected; without
`load_back` only what is on the device is reused.

An engine never reuses a whole prompt. It must compute at least one token to sample from, so a
request matches the pages of its first n - 1 tokens.

Where the cache takes mamba states before the end of an insert, a request hands over more than that
of its end: the one where its prompt parts from what is cached, and one after each chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attrs import Factory, define, evolve

from kvcanon.conformance.cases.stamps import write_stamps
from kvcanon.conformance.protocol.adapter import Capability, CopyControl
from kvcanon.conformance.replay.store import ReplayStore
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.cache import Cache
from kvcanon.spec.events import AllBlocksCleared, BlockStored, Event
from kvcanon.spec.operations import LoadDecision
from kvcanon.spec.oracle.eviction import pre_evict_need
from kvcanon.spec.oracle.pages import whole_pages
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slots, TransferId

CHUNK_TOKENS = 512
"""After so many computed tokens an engine could take a mamba state: those of one prefill chunk."""
STATES_SHARE = 8
"""A request hands over at most one in so many of the pool's mamba states, but at least one."""
EVERYTHING = frozenset(Capability)
"""What a cache with the whole protocol of `spec.cache` can do."""


@define
class ReplayStats:
    """Counts of an engine so far."""

    requests: int = 0
    rejected: int = 0
    """Requests that did not fit even after eviction."""
    prompt_tokens: int = 0
    """Prompt tokens of all requests, rejected ones included."""
    device_hit_tokens: int = 0
    host_hit_tokens: int = 0
    """Tokens that were usable only after a load-back, which may have loaded window data only."""
    store_hit_tokens: int = 0
    """Of these, tokens whose pages came from the store for the request."""
    resident_tokens: int = 0
    """Tokens that memory had before the request, or the store: hits are what was there. 0 without a
    store."""
    load_backs: int = 0
    backups: int = 0
    backup_declined_pages: int = 0
    failed_transfers: int = 0
    evicted: Counter[Component] = Factory(Counter)
    """Device slots that were freed, for requests and for load-backs."""
    loaded: Counter[Component] = Factory(Counter)
    """Device slots that a load-back filled."""
    events: Counter[str] = Factory(Counter)
    """Events by kind and medium, as "stored GPU"."""


class TreeEngine:
    """Serves requests from a cache that was empty when the engine got it."""

    def __init__(
        self,
        cache: Cache,
        *,
        stamped: bool,
        can: frozenset[Capability] = EVERYTHING,
        copies: CopyControl | None = None,
        states_within: bool = False,
        store: ReplayStore | None = None,
    ) -> None:
        """Begin with a cache of which only the optional operations in `can` are called.

        `copies` controls its copies, if the cache does not end them itself. `states_within` says
        that it takes mamba states at several pages of an insert. `store` is below the cache's host
        tier.
        """
        self.tally = ReplayStats()
        self._cache = cache
        self._can = can
        self._copies = copies
        self._states_within = states_within and cache.config.mamba
        self._store = store
        self._stamped = stamped and Capability.WRITE in can
        """Whether to write bytes to the slots that it fills: only a judge reads them."""
        config = cache.config
        self._capacity = {c: config.capacity(c, GPU) for c in config.components}
        self._free = Counter(self._capacity)
        """Free slots, counted here: answers say what changed, not how many are left."""
        self._loading: dict[TransferId, Counts] = {}

    def serve(self, request: Request) -> None:
        """Serve one request, or reject it; either way it holds nothing afterwards."""
        page_size = self._cache.config.page_size
        self.tally.requests += 1
        self.tally.prompt_tokens += request.length_tokens
        key = request.key(page_size)
        if len(key) > self._capacity[FULL]:
            # Evicting for a prompt that is larger than the pool would empty the cache in vain.
            self.tally.rejected += 1
            return
        reusable = key.prefix(whole_pages(request.length_tokens - 1, page_size))
        fetched = None if self._store is None else self._store.fetch(self._cache, reusable)
        found = self._cache.match(reusable)
        loads = Capability.LOAD_BACK in self._can
        prefix = reusable.prefix(found.prefix_pages if loads else found.device_pages)
        receipt = self._cache.lock(prefix) if prefix.pages else None
        present_pages = found.device_pages
        if present_pages < len(prefix):
            present_pages = self._load_back(prefix)
        states = self._state_pages(len(key), present_pages, found.branch_pages)
        missing = len(key) - present_pages
        slots = self._make_room(missing, states=len(states), locked_pages=len(prefix))
        if slots is None:
            self.tally.rejected += 1
        else:
            states = states[len(states) - len(slots.mamba) :]
            self._hand_over(key, present_pages, slots, states)
            self.tally.device_hit_tokens += found.device_pages * page_size
            loaded = present_pages - found.device_pages
            self.tally.host_hit_tokens += loaded * page_size
            if fetched is not None:
                self.tally.store_hit_tokens += min(fetched.pages, loaded) * page_size
                self.tally.resident_tokens += fetched.resident_pages * page_size
        if receipt is not None:
            self._cache.unlock(receipt)
        self._settle(wait=self._store is not None)
        if self._store is not None:
            self._store.write(self._cache, key)
        if self._cache.config.events and Capability.TAKE_EVENTS in self._can:
            self.tally.events.update(map(event_name, self._cache.take_events()))

    def _load_back(self, prefix: Key) -> int:
        """Load a locked prefix to the device; returns how many of its pages are then there."""
        answer = self._cache.load_back(prefix)
        self._add_evicted(answer.evicted)
        if answer.decision is LoadDecision.ENQUEUED and answer.transfer_id is not None:
            self.tally.load_backs += 1
            self._loading[answer.transfer_id] = answer.loading
            self._add(answer.loading, -1)
            self._settle(wait=False)
            if answer.transfer_id in self._loading:
                self._settle(wait=True)
        return self._cache.match(prefix).device_pages

    def _state_pages(self, pages: int, start: int, branch: int | None) -> tuple[int, ...]:
        """The pages at whose ends a request hands over mamba states, of those that it computes.

        The state of its end matters most, then the one where its prompt parts from what is cached.
        """
        if not self._states_within or start == pages:
            return (pages,) if start < pages else ()
        chunk = max(1, CHUNK_TOKENS // self._cache.config.page_size)
        grid = range(pages - pages % chunk, start, -chunk)
        ranked = dict.fromkeys((pages, branch or pages, *grid))
        most = max(1, self._capacity[MAMBA] // STATES_SHARE)
        return tuple(sorted([page for page in ranked if start < page <= pages][:most]))

    def _make_room(self, missing_pages: int, states: int, locked_pages: int) -> Slots | None:
        """Evict what each pool lacks for some pages, and allocate; None if that is not enough.

        If the window pool is smaller than the prompt, only the last pages get window slots: when
        they are computed, the window no longer reaches the first ones.
        """
        wanted = {FULL: missing_pages, SWA: missing_pages, MAMBA: states}
        locked = {
            SWA: min(locked_pages, self._cache.config.window_pages),
            MAMBA: min(1, locked_pages),
        }
        for component in (SWA, MAMBA):
            room = self._capacity.get(component, 0) - locked[component]
            wanted[component] = max(0, min(wanted[component], room))
        short = counts_of({c: pre_evict_need(wanted[c], self._free[c]) for c in wanted})
        if short and Capability.EVICT in self._can:
            self._add_evicted(self._cache.evict(short).freed)
        if any(self._free[component] < wanted[component] for component in wanted):
            return None
        slots = self._cache.allocate(counts_of(wanted))
        self._add(slots.counts(), -1)
        return slots

    def _hand_over(self, key: Key, start_pages: int, slots: Slots, states: tuple[int, ...]) -> None:
        if self._stamped:
            write_stamps(self._cache, key, evolve(slots, mamba=()))
            for page, state in zip(states, slots.mamba, strict=True):
                write_stamps(self._cache, key.prefix(page), Slots(mamba=(state,)))
        if states in {(), (len(key),)}:
            answer = self._cache.insert(key, start_pages, slots)
        else:
            answer = self._cache.insert(key, start_pages, slots, state_pages=states)
        self._add(answer.freed, +1)
        self.tally.backups += len(answer.backups)
        self.tally.backup_declined_pages += answer.backup_declined_pages

    def _settle(self, *, wait: bool) -> None:
        """Settle acknowledged transfers; slots of a load that failed are free again."""
        if self._copies is not None:
            for transfer_id in tuple(self._copies.open_transfer_ids):
                self._copies.acknowledge(transfer_id)
        if wait and Capability.FLUSH in self._can:
            settled = self._cache.flush()
        elif Capability.POLL in self._can:
            settled = self._cache.poll()
        else:
            return
        for transfer_id, status in settled.transfers:
            loading = self._loading.pop(transfer_id, Counts())
            if status is TransferStatus.DONE:
                self.tally.loaded.update({c: loading[c] for c in Component})
            else:
                self.tally.failed_transfers += 1
                self._add(loading, +1)

    def _add_evicted(self, freed: Counts) -> None:
        self._add(freed, +1)
        self.tally.evicted.update({c: freed[c] for c in Component})

    def _add(self, counts: Counts, sign: int) -> None:
        """Add freed slots (sign 1) to the count of free slots, or subtract allocated ones (-1)."""
        self._free.update({c: sign * counts[c] for c in Component})


def counts_of(by_component: Mapping[Component, int]) -> Counts:
    """Return the same numbers, with 0 for missing components."""
    return Counts(**{component.value: count for component, count in by_component.items()})


def event_name(event: Event) -> str:
    """Return the kind and medium of an event, as "stored GPU"."""
    if isinstance(event, AllBlocksCleared):
        return "cleared"
    return f"{'stored' if isinstance(event, BlockStored) else 'removed'} {event.medium.value}"
