"""LMDeploy's block trie evicts in the order of whole seconds, and within a second by address."""

import sys

import numpy as np
from lmdeploy.pytorch.config import CacheConfig, SchedulerConfig
from lmdeploy.pytorch.messages import SequenceMeta, UpdateTokenMode
from lmdeploy.pytorch.paging.scheduler import Scheduler
from lmdeploy.pytorch.strategies.ar.sequence import ARSequenceStrategy

BLOCK, PROMPTS, TRIALS = 4, 8, 100


def serve(scheduler: Scheduler, number: int, tokens: list[int]) -> list[int]:
    """Run one request from its prompt to its end, as the engine does; returns its blocks."""
    sequence = scheduler.add_session(number).add_sequence(np.array(tokens))
    (scheduled,) = scheduler.schedule(is_prefill=True).running
    assert scheduled is sequence
    scheduler.activate_seqs([sequence])
    blocks = sequence.logical_blocks.get_real_blocks().tolist()
    sequence.update_token_ids(np.empty(0, dtype=np.int64), mode=UpdateTokenMode.PREFILL)
    sequence.finish()
    scheduler.end_session(number)
    return blocks


wrong = 0
for _ in range(TRIALS):
    scheduler = Scheduler(
        SchedulerConfig(max_batches=8, max_session_len=1024),
        CacheConfig(
            max_batches=8,
            block_size=BLOCK,
            num_cpu_blocks=0,
            num_gpu_blocks=PROMPTS,
            enable_prefix_caching=True,
        ),
        SequenceMeta(BLOCK, strategy=ARSequenceStrategy()),
    )
    # One prompt of one block after the other: the first is the least recently used.
    prompts = [[10 * number + at for at in range(BLOCK)] for number in range(PROMPTS)]
    blocks = [serve(scheduler, number, prompt)[0] for number, prompt in enumerate(prompts)]
    allocator = scheduler.block_manager.allocator
    scheduler.block_trie.evict(1)
    (evicted,) = [block for block in blocks if not allocator.get_ref_count(np.array([block]))[0]]
    wrong += evicted != blocks[0]

print("times of the last use:", allocator.get_access_time(np.array(blocks[:4])).tolist(), "...")
print(f"the block evicted first was not the least recently used in {wrong} of {TRIALS} trials")
sys.exit(1 if wrong else 0)
