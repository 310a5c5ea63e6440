"""Makes LMDeploy's scheduler with one block for each slot of a case.

LMDeploy switches its prefix cache off for models with a sliding window, so no window is offered. It
reserves one slot of states for itself.

States of running sequences and saved states share one pool. A saved state is a copy, and may be
evicted for another while its sequence still runs. So a case's slots for states are those that
sequences work in, and LMDeploy's option for saved states adds room for the copies. It has room for
those of all prompts of a case: then no copy need ever be evicted, and none may be lost.
"""

from __future__ import annotations

from kvcanon.conformance.engines.lmdeploy.peer_types import PagingScheduler
from kvcanon.conformance.engines.lmdeploy.release import named
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, GPU, MAMBA

SAVED_STATES = 1 << 12
MANY = 1 << 30
"""More sequences and tokens than any case has, so that no limit but that of memory is met."""


def make_scheduler(config: CacheConfig) -> PagingScheduler:
    """Make a scheduler without sequences. Raises: UsageError."""
    cache_config = named("CacheConfig")(
        max_batches=MANY,
        block_size=config.page_size,
        num_cpu_blocks=0,
        num_gpu_blocks=config.capacity(FULL, GPU),
        enable_prefix_caching=True,
        max_prefill_token_num=MANY,
        cudagraph_capture_batch_sizes=[1],
        num_state_caches=1 + config.capacity(MAMBA, GPU) + SAVED_STATES if config.mamba else None,
        prefix_cache_state_budget=SAVED_STATES if config.mamba else 0,
        states_shapes=[((1,), None)] if config.mamba else [],
    )
    limits = named("SchedulerConfig")(max_batches=MANY, max_session_len=MANY)
    meta = named("SequenceMeta")(config.page_size, strategy=named("ARSequenceStrategy")())
    made: PagingScheduler = named("Scheduler")(limits, cache_config, meta)
    return made
