"""By which rules host tiers keep blocks: those of vLLM's as read in release 0.33.0, and others.

Each is the scheduler's half of a connector without bytes, whose copies end at once. Blocks are the
hashes of full groups; with a window these rules say nothing.

`NoHost` with a pool of both sizes is one LRU over device and host: what no two tiers that hold a
block once can exceed by much.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from attrs import Factory, define, field

from kvcanon.lab.connectors.block_pool import StandInPool
from kvcanon.lab.connectors.block_tables import BlocksByGroup, BlockTables
from kvcanon.lab.connectors.connector_calls import ConnectorReport
from kvcanon.lab.connectors.engine_request import StandInRequest
from kvcanon.lab.connectors.serial_engine import InstantConnector
from kvcanon.lab.connectors.step_plan import StepPlan

_GROUP_BYTES = 4
"""The end of a block's key that names its group."""


@define(eq=False)
class NoHost:
    """No host: nothing is loaded. The base of the rules below."""

    host_blocks: int = 0
    pool: StandInPool = field(init=False)
    _host: OrderedDict[bytes, None] = Factory(OrderedDict)
    """The next to be evicted first."""
    _loads: set[str] = Factory(set)
    _answered: Sequence[bytes] = ()
    """What was answered last; it is taken up before anything else is asked."""

    def bind_kv_cache_manager(self, manager: BlockTables) -> None:
        """Take the engine's block pool."""
        self.pool = manager.block_pool

    def on_new_request(self, request: StandInRequest) -> None:
        """Nothing is kept of requests."""

    def get_num_new_matched_tokens(
        self, request: StandInRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Count the blocks after the local ones that the host has."""
        size = request.block_tokens
        first, last = num_computed_tokens // size, (request.num_tokens - 1) // size
        end = next(
            (at for at in range(first, last) if request.block_hashes[at] not in self._host), last
        )
        self._answered = request.block_hashes[first:end]
        return len(self._answered) * size, end > first

    def update_state_after_alloc(
        self, request: StandInRequest, blocks: BlocksByGroup, num_external_tokens: int
    ) -> None:
        """Load blocks."""
        del blocks
        if num_external_tokens:
            self._loads.add(request.request_id)
            self.loaded(self._answered)

    def build_connector_meta(self, scheduler_output: StepPlan) -> frozenset[str]:
        """Say whose loads end with this step."""
        del scheduler_output
        self.before_step()
        ended, self._loads = frozenset(self._loads), set()
        return ended

    def update_connector_output(self, connector_output: ConnectorReport) -> None:
        """All has ended already."""

    def request_finished_all_groups(
        self, request: StandInRequest, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, Mapping[str, object] | None]:
        """See what a request has computed or used."""
        self.computed(request.block_hashes[: len(block_ids[0])])
        return False, None

    def has_pending_push_work(self) -> bool:
        """Nothing is in flight between steps."""
        return False

    def take_events(self) -> Iterable[object]:
        """These rules announce nothing."""
        return ()

    def reset_cache(self) -> bool | None:
        """Empty the host."""
        self._host.clear()
        return True

    def loaded(self, hashes: Sequence[bytes]) -> None:
        """Blocks are copied to the device."""

    def computed(self, hashes: Sequence[bytes]) -> None:
        """A request has these blocks on the device, in order."""

    def before_step(self) -> None:
        """A step is about to allocate blocks."""

    def store(self, block_hash: bytes) -> None:
        """Store a block, the last to be evicted; what is there stays where it is."""
        if block_hash not in self._host:
            if len(self._host) >= self.host_blocks:
                self._host.popitem(last=False)
            self._host[block_hash] = None

    def use(self, block_hash: bytes) -> None:
        """Let a block be the last to be evicted, if it is there."""
        if block_hash in self._host:
            self._host.move_to_end(block_hash)


class EagerRules(NoHost):
    """SimpleCPUOffloadConnector: each block is stored when it was computed.

    A load makes what it loads the last to be evicted; hits on the device do not.
    """

    def loaded(self, hashes: Sequence[bytes]) -> None:
        """Blocks are let go in the order of the prompt, so that its head is evicted first."""
        for each in hashes:
            self.use(each)

    def computed(self, hashes: Sequence[bytes]) -> None:
        """What the host lacks is stored, head first."""
        for each in hashes:
            self.store(each)


@define(eq=False)
class LazyRules(EagerRules):
    """SimpleCPUOffloadConnector with `lazy_offload`: blocks near eviction are stored."""

    ahead_blocks: int = 0
    """How many blocks of the free queue are stored ahead of a step."""

    def computed(self, hashes: Sequence[bytes]) -> None:
        """Nothing is stored yet."""

    def before_step(self) -> None:
        """Store what the next steps may evict."""
        self.store_ahead(self.ahead_blocks)

    def store_ahead(self, blocks: int) -> None:
        """Store so many blocks at the head of the free queue, which are evicted next."""
        for block in islice(self.pool.free_block_queue.iter_blocks_after(None), blocks):
            if block.block_hash is not None:
                self.store(block.block_hash[:-_GROUP_BYTES])


class ExclusiveRules(LazyRules):
    """A tier that has what the device is about to evict, and drops what it loads.

    A load gets all its blocks at once, however many, so that as many are stored before it.
    """

    def get_num_new_matched_tokens(
        self, request: StandInRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """Count what can be loaded, once what its blocks hold is stored."""
        found, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        if found:
            for each in self._answered:
                self.use(each)
            self.store_ahead(len(self._answered))
            found, later = super().get_num_new_matched_tokens(request, num_computed_tokens)
        return found, later

    def loaded(self, hashes: Sequence[bytes]) -> None:
        """The device has the blocks, so that their rows are free for others."""
        for each in hashes:
            self._host.pop(each, None)


class OffloadingRules(EagerRules):
    """OffloadingConnector: each block is stored when computed, and every use counts.

    A use counts from the last block to the first, so that a prompt's tail is evicted first.
    """

    def loaded(self, hashes: Sequence[bytes]) -> None:
        """A load is a use."""
        for each in reversed(hashes):
            self.use(each)

    def computed(self, hashes: Sequence[bytes]) -> None:
        """All blocks of a request are used, those that were found on the device as well."""
        for each in reversed(hashes):
            self.store(each)
            self.use(each)


def ended_of(metadata: frozenset[str]) -> ConnectorReport:
    """What ends with a step of these rules."""
    return ConnectorReport(finished_recving=set(metadata) or None)


def ruled(rules: NoHost) -> InstantConnector:
    """A connector by these rules."""
    return InstantConnector(rules, ended_of)
