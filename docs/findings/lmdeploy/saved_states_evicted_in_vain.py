"""LMDeploy evicts saved states for a request that lacks no slot, but a place under a limit."""

import sys

import numpy as np
from lmdeploy.pytorch.config import CacheConfig, SchedulerConfig
from lmdeploy.pytorch.messages import SchedulerSequence, SequenceMeta, UpdateTokenMode
from lmdeploy.pytorch.paging.scheduler import Scheduler
from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

BLOCK, BATCH, PROMPTS, BUDGET = 4, 4, 8, 24


def new_scheduler() -> Scheduler:
    return Scheduler(
        SchedulerConfig(max_batches=BATCH, max_session_len=1024),
        CacheConfig(
            max_batches=BATCH,
            block_size=BLOCK,
            num_cpu_blocks=0,
            num_gpu_blocks=1000,
            enable_prefix_caching=True,
            prefix_cache_state_budget=BUDGET,
            num_state_caches=BATCH + 2 + BUDGET,  # As ExecutorBase computes it.
            states_shapes=[((1,), None)],
        ),
        SequenceMeta(BLOCK, strategy=ARSequenceStrategy()),
    )


def start(scheduler: Scheduler, numbers: range) -> list[SchedulerSequence]:
    """Schedule a batch of requests, and compute their prompts as the engine does."""
    for number in numbers:
        tokens = np.arange(100 * number, 100 * number + 2 * BLOCK)
        scheduler.add_session(number).add_sequence(tokens)
    batch = scheduler.schedule(is_prefill=True).running
    assert len(batch) == len(numbers)
    scheduler.activate_seqs(batch)
    checkpoints = scheduler.block_trie.state_checkpoints
    checkpoints.prepare_restore_batch(batch)
    saves = checkpoints.reserve_prefill_save_batch(batch).state_pairs
    checkpoints.finish_forward_dispatch(batch, has_save_plan=bool(saves))
    checkpoints.unpin_saves(batch)
    for sequence in batch:
        sequence.update_token_ids(np.empty(0, dtype=np.int64), mode=UpdateTokenMode.PREFILL)
    return batch


def saved_states(*, ended_at_once: bool) -> tuple[int, int]:
    """Save the states of some prompts, then replace a full batch by the next one.

    Returns how many states are saved then, and how many slots for states were free before.
    """
    scheduler = new_scheduler()
    for number in range(PROMPTS):
        for sequence in start(scheduler, range(number, number + 1)):
            sequence.finish()
        scheduler.end_session(number)
    first = range(PROMPTS, PROMPTS + BATCH)
    for sequence in start(scheduler, first):
        sequence.finish()
    if ended_at_once:
        for number in first:
            scheduler.end_session(number)
    free = scheduler.state_manager.get_num_free()
    start(scheduler, range(first.stop, first.stop + BATCH))
    return scheduler.state_manager.get_num_allocated_checkpoint_states(), free


expected = PROMPTS + 2 * BATCH
ended, free = saved_states(ended_at_once=True)
print(f"sessions are ended at once: {ended} of {expected} states are saved, {free} slots were free")
waiting, free = saved_states(ended_at_once=False)
print(f"they are ended later: {waiting} of {expected} states are saved, {free} slots were free")
sys.exit(waiting < expected)
