"""HiCache: the host tier of a UnifiedRadixCache.

On a CPU a copy is performed when it is enqueued, and acknowledged by `check_hicache_events`, which
`poll` calls. Loads start at once, as in SGLang's scheduler before a forward pass.

SGLang returns whether it loads, but not why it does not. The adapter finds the reason from the data
missing on the device and from the load-back threshold.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace

from attrs import define, evolve, frozen

from kvcanon.conformance.engines.sglang import validate
from kvcanon.conformance.engines.sglang.peer_types import SGLangNode
from kvcanon.conformance.engines.sglang.release import called, has, named
from kvcanon.conformance.engines.sglang.snapshot import MatchedNode
from kvcanon.conformance.engines.sglang.transfers import Entry, Run
from kvcanon.conformance.engines.sglang.unified import UnifiedCache
from kvcanon.spec.errors import BadArgument, TransferPending
from kvcanon.spec.operations import Evicted, Inserted, LoadDecision, LoadedBack, Settled
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, Page, Slot, Slots

POLLS_AT_MOST = 100
"""The most polls of one flush."""


@frozen
class HostPage:
    """The page whose data a host slot has."""

    extra_key: str | None
    path: tuple[Page, ...]
    """The pages from the root down to the end of its node."""
    at: int
    """Its place among them; the last, for a state."""


Owners = dict[tuple[Component, Slot], HostPage]


@define(eq=False)
class HostedCache(UnifiedCache):
    """A `UnifiedRadixCache` that may have a host tier."""

    def insert(
        self, key: Key, start_pages: int, slots: Slots, *, counted_pages: int = 0, priority: int = 0
    ) -> Inserted:
        """Insert the data of a key, and find the copies that this enqueues."""
        owned = self._owners_on_host()
        answer = super().insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )
        if self.config.backup_hits is None:
            return answer
        backups = tuple(
            self._follow(Direction.BACKUP, entry, self._backup_runs(entry, owned))
            for entry in self.in_flight.new_entries(Direction.BACKUP)
        )
        return evolve(answer, backups=backups, backup_declined_pages=self._left_out(key))

    def evict_host(self, counts: Counts) -> Evicted:
        """Free host slots, one component after another; slots freed as a side effect count too."""
        counts = validate.evicted_counts(self.config, counts)
        before = self._free_counts(CPU)
        for component in self.config.components if self.config.host_tier else ():
            freed = (self._free_counts(CPU) - before)[component]
            if counts[component] > freed:
                size = self.world.pools[component, CPU].page_size
                short = (counts[component] - freed) * size
                self._evict_on_host(short, component)
        return Evicted(self._free_counts(CPU) - before)

    def load_back(self, key: Key, quota_pages: int | None = None) -> LoadedBack:
        """Enqueue and start the copy of a key's data that is on the host only."""
        if quota_pages is not None:
            raise BadArgument("quota_pages", "is given; SGLang's quota is of memory, not of pages")
        stops = self.tree.path(key)
        node = validate.node_at(self.tree, key, stops)
        if validate.usable_pages(self.tree, self.config, stops, host=True) < len(key):
            raise BadArgument("key", "ends where no match does; nobody loads to there")
        missing = self._missing(stops)
        if missing:
            self._require_no_other_load(node, stops)
        before = self._free_counts()
        absent = [
            (stop.node, component)
            for component in self.config.components
            for stop in stops
            if not self.tree.slots(stop.node, component, GPU)
        ]
        if len(key):
            self.world.cache.init_load_back(self._load_params(stops, node, missing))
            self.world.cache.ready_to_load_host_cache()
        entries = self.in_flight.new_entries(Direction.LOAD_BACK)
        came = self._free_counts() - before
        if not entries:
            return LoadedBack(self._reason(missing), evicted=came)
        (entry,) = entries
        runs = self._runs(Direction.LOAD_BACK, absent)
        loading = Counts.of({component: len(slots) for component, slots in runs[1].items()})
        evicted = Counts.of({each: came[each] + count for each, count in loading})
        transfer_id = self._follow(Direction.LOAD_BACK, entry, runs)
        return LoadedBack(LoadDecision.ENQUEUED, transfer_id, loading, evicted)

    def poll(self) -> Settled:
        """Take acknowledgements."""
        if self.config.host_tier:
            self.world.cache.check_hicache_events()
        return self.in_flight.settle()

    def flush(self) -> Settled:
        """Poll until nothing is in flight."""
        settled = self.poll().transfers
        for _ in range(POLLS_AT_MOST):
            if not self.in_flight.flying:
                break
            settled += self.poll().transfers
        return Settled(settled)

    # Helpers.

    def _evict_on_host(self, tokens: int, component: Component) -> None:
        """Free host slots of a component. A mended core frees others."""
        self.world.cache.evict_host(tokens, self.tree.kinds[component])

    def _require_no_other_load(self, node: SGLangNode, stops: list[MatchedNode]) -> None:
        """Refuse a load of nodes that another load brings: some releases back off from these.

        Raises: TransferPending.
        """
        if not hasattr(self.tree.core, "node_by_id"):
            return
        for copy in self.in_flight.bringing([stop.node for stop in stops]):
            if copy.hold.node_id != node.id:
                raise TransferPending(copy.transfer_id)

    def _follow(self, direction: Direction, entry: Entry, runs: tuple[Run, Run]) -> int:
        """Record a copy, with what its lock holds."""
        receipt_id = next(self.ids)
        hold = self._hold(receipt_id, entry.locked, entry.lock)
        return self.in_flight.add(direction, entry, runs, hold)

    def _owners_on_host(self) -> Owners:
        """The page that each host slot is of."""
        owners: Owners = {}
        for node in self.tree.nodes() if self.config.host_tier else ():
            path = self._path(node)
            for component in self.config.components:
                first = self._first_page(node, component, path)
                for at, slot in enumerate(self.tree.slots(node, component, CPU), first):
                    owners[component, slot] = HostPage(node.key.extra_key, path, at)
        return owners

    def _backup_runs(self, entry: Entry, owned: Owners) -> tuple[Run, Run]:
        """The slots that a backup reads, and the new host slots that it writes."""
        new = []
        for component in self.config.components:
            for node in entry.nodes:
                target = self.tree.slots(node, component, CPU)
                if target and not self._had(node, component, owned.get((component, target[0]))):
                    new.append((node, component))
        return self._runs(Direction.BACKUP, new)

    def _runs(
        self, direction: Direction, copied: Iterable[tuple[SGLangNode, Component]]
    ) -> tuple[Run, Run]:
        """The slots that a copy of these data reads, and those that it writes."""
        sources: Run = {}
        targets: Run = {}
        for node, component in copied:
            if target := self.tree.slots(node, component, direction.target):
                source = self.tree.slots(node, component, direction.source)
                sources[component] = sources.get(component, ()) + source
                targets[component] = targets.get(component, ()) + target
        return sources, targets

    def _had(self, node: SGLangNode, component: Component, page: HostPage | None) -> bool:
        """Whether a slot is of the page of `node` that it was of, in it or before a cut.

        A slot may have come free since, and be of another page.
        """
        if page is None or page.extra_key != node.key.extra_key:
            return False
        path = self._path(node)
        is_there = page.at == self._first_page(node, component, path)
        return is_there and path == page.path[: len(path)]

    def _path(self, node: SGLangNode | None) -> tuple[Page, ...]:
        """The pages from the root to the end of a node."""
        pages: tuple[Page, ...] = ()
        while node is not None:
            pages, node = self.tree.keys.pages(node.key) + pages, node.parent
        return pages

    def _first_page(self, node: SGLangNode, component: Component, path: tuple[Page, ...]) -> int:
        """The place of the first page of a node's data among those of its path."""
        own = 1 if component is MAMBA else len(self.tree.keys.pages(node.key))
        return len(path) - own

    def _missing(self, stops: list[MatchedNode]) -> Counts:
        """The usable data that a path has on the host only: pages, and a mamba state."""
        missing = dict.fromkeys(Component, 0)
        window_tokens, size = self.config.window_tokens or 0, self.config.page_size
        seen_pages = 0
        for stop in reversed(stops):
            for component in self.config.components:
                own = {FULL: True, SWA: seen_pages * size < window_tokens, MAMBA: not seen_pages}
                if own[component] and not self.tree.slots(stop.node, component, GPU):
                    missing[component] += len(self.tree.slots(stop.node, component, CPU))
            seen_pages += stop.shared_pages
        return Counts.of(missing)

    def _load_params(self, stops: list[MatchedNode], node: SGLangNode, missing: Counts) -> object:
        """The arguments of SGLang's load: the result of a match, and a request."""
        size = self.config.page_size
        on_device = validate.usable_pages(self.tree, self.config, stops, host=False)
        ends = {stop.end_pages: stop.node for stop in stops}
        # Slot 0 is padding: nothing reads what is copied there for the request itself.
        own_state = self._padding()
        request = SimpleNamespace(
            last_node=self.tree.handle(ends.get(on_device, self.tree.root)),
            prefix_indices=(),
            swa_host_hit_length=missing.swa * size,
            mamba_host_hit_length=missing.mamba,
            mamba_pool_idx=own_state,
            kv=SimpleNamespace(mamba_pool_idx=own_state, holds_mamba=own_state is not None),
        )
        hits = max(missing.full * size, int(bool(missing.swa or missing.mamba)))
        return called(
            named("InitLoadBackParams"),
            best_match_node=self.tree.handle(node),
            last_host_node=node,
            host_hit_length=hits,
            mem_quota=None,
            req=request,
        )

    def _padding(self) -> object:
        if MAMBA not in self.config.components:
            return None
        return self.world.pools[MAMBA, GPU].tokens((-1,))[0]

    def _reason(self, missing: Counts) -> LoadDecision:
        """Why nothing was loaded."""
        if not missing:
            return LoadDecision.NOTHING_TO_LOAD
        threshold = self.config.load_back_threshold_pages
        if missing.full < threshold and not missing.swa and not missing.mamba:
            return LoadDecision.BELOW_THRESHOLD
        return LoadDecision.NO_ROOM

    def _left_out(self, key: Key) -> int:
        """Count the pages of a key with enough hits and no host copy; SGLang does not report it.

        The Rust core shows no hits. So in releases with exchangeable cores this insert counts as
        the one hit that is enough, for every core, so that the answers can be compared.
        """
        threshold = self.config.backup_hits or 0
        unseen = has("UnifiedTreeCore") and threshold <= 1
        return sum(
            stop.shared_pages
            for stop in self.tree.path(key)
            if (unseen or stop.node.hit_count >= threshold)
            and self.tree.slots(stop.node, FULL, GPU)
            and not self.tree.slots(stop.node, FULL, CPU)
        )
