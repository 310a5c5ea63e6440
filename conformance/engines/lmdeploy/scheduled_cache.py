"""Translates request operations to the calls that LMDeploy's engine makes for them.

A request is a session with one sequence. After the scheduler has given it blocks, the engine would
run the model; here the sequence is only told that its tokens are computed, and its state is saved
where the model has states.
"""

from __future__ import annotations

from itertools import count

from attrs import Factory, define, field

from kvcanon.conformance.adapter_parts.arguments import check_evict
from kvcanon.conformance.adapter_parts.running_requests import RunningRequests
from kvcanon.conformance.adapter_parts.token_slots import extra_key_of, tokens_of
from kvcanon.conformance.engines.installed_names import EngineObject
from kvcanon.conformance.engines.lmdeploy.factory import LMDEPLOY, array_of, make_scheduler
from kvcanon.conformance.protocol.request import Admitted, RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.operations import Evicted
from kvcanon.spec.types import Counts, Key, Slot, Slots


@define(eq=False)
class ScheduledCache:
    """A `RequestCache` around LMDeploy's scheduler."""

    config: CacheConfig
    scheduler: EngineObject = field(init=False)
    running: RunningRequests[EngineObject | None] = Factory(RunningRequests)
    """The sequences; None for a request without tokens, which an engine would not schedule."""
    states: dict[Slot, Slot] = Factory(dict)
    """Numbers of the slots that running sequences have their states in."""

    def __attrs_post_init__(self) -> None:
        self.scheduler = make_scheduler(self.config)

    def admit(self, request_id: RequestId, key: Key) -> Admitted:
        """Add a sequence and schedule it."""
        with self.running.admission(request_id, None, lambda _: None):
            return self._scheduled(request_id, key)

    def extend(self, request_id: RequestId, key: Key) -> Slots:
        """Add tokens to a sequence, and allocate their blocks."""
        sequence = self.running.get(request_id)
        if sequence is None:
            return self._scheduled(request_id, key).slots
        tokens = tokens_of(key)[sequence.num_history_ids :]
        # The engine asks with the tokens added already; here a refusal must not add them.
        if not self.scheduler.eviction_helper.try_make_capacity_for(sequence, (), len(tokens)):
            raise self._no_room(len(tokens) // self.config.page_size)
        if tokens:
            sequence.update_token_ids(array_of(tokens), mode=LMDEPLOY["UpdateTokenMode"].INPUTS)
            self.scheduler.reserve_long_context_chunk(sequence, len(tokens), is_last_chunk=True)
            self._compute(sequence)
        return self._table(sequence)

    def finish(self, request_id: RequestId) -> None:
        """Finish a sequence, and end its session."""
        sequence = self.running.get(request_id)
        if sequence is not None:
            sequence.finish()
        self.abort(request_id)

    def abort(self, request_id: RequestId) -> None:
        """End the session of a sequence."""
        if self.running.end(request_id) is not None:
            self.scheduler.end_session(request_id)

    def evict(self, counts: Counts) -> Evicted:
        """Evict blocks, and then saved states, as the scheduler does for a sequence.

        Slots of saved states are not counted: no sequence works in them.
        """
        check_evict(counts)
        saved = self.scheduler.state_manager.get_num_allocated_checkpoint_states
        before = saved()
        blocks = self.scheduler.block_trie.evict(counts.full)
        missing = counts.mamba - (before - saved())
        if missing > 0:
            self.scheduler.state_checkpoints.evict(missing)
        return Evicted(Counts(full=blocks))

    def _scheduled(self, request_id: RequestId, key: Key) -> Admitted:
        """Add the sequence of a request that has none. Raises: OutOfSlots; it has none still."""
        if not len(key):
            return Admitted(0, Slots())
        session = self.scheduler.add_session(request_id)
        sequence = session.add_sequence(
            array_of(tokens_of(key)), adapter_name=extra_key_of(key.namespace)
        )
        scheduled = self.scheduler.schedule(is_prefill=True).running
        if not scheduled:
            self.scheduler.end_session(request_id)
            raise self._no_room(len(key))
        self.scheduler.activate_seqs(scheduled)
        reused = sequence.num_history_ids // self.config.page_size
        self._compute(sequence)
        self.running.end(request_id)
        self.running.start(request_id, sequence)
        return Admitted(reused, self._table(sequence))

    def _no_room(self, pages: int) -> OutOfSlots:
        free = self.scheduler.block_manager.get_num_free_gpu_blocks()
        return OutOfSlots("blocks or states on GPU", pages, free)

    def _compute(self, sequence: EngineObject) -> None:
        """Make the calls that the engine makes around a forward pass."""
        if self.config.mamba:
            checkpoints = self.scheduler.state_checkpoints
            checkpoints.prepare_restore_batch([sequence])
            saves = checkpoints.reserve_prefill_save_batch([sequence]).state_pairs
            checkpoints.finish_forward_dispatch([sequence], has_save_plan=bool(saves))
            checkpoints.unpin_saves([sequence])
        sequence.update_token_ids(array_of([]), mode=LMDEPLOY["UpdateTokenMode"].PREFILL)

    def _table(self, sequence: EngineObject) -> Slots:
        """The block table of a sequence, and the number of its state."""
        blocks = self.scheduler.block_manager.get_block_table(sequence).tolist()
        states = (self._state_number(sequence.logical_state),) if self.config.mamba else ()
        return Slots(full=tuple(blocks), mamba=states)

    def _state_number(self, slot: Slot) -> Slot:
        """The number of a slot of the pool, which has slots for saved states between the others."""
        used = {each.logical_state for each in self.running.handles() if each is not None}
        self.states = {there: number for there, number in self.states.items() if there in used}
        taken = set(self.states.values())
        return self.states.setdefault(slot, next(n for n in count() if n not in taken))
