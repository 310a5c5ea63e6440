"""Makes LMDeploy's scheduler with one block for each slot of a case.

LMDeploy switches its prefix cache off for models with a sliding window, so no window is offered. It
reserves one slot of states for itself.

States of running sequences and saved states share one pool. A saved state is a copy, and may be
evicted for another while its sequence still runs. So a case's slots for states are those that
sequences work in, and LMDeploy's option for saved states adds room for the copies. It has room for
those of all prompts of a case: then no copy need ever be evicted, and none may be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, GPU, MAMBA

LMDEPLOY = InstalledNames(
    package="lmdeploy",
    engine="LMDeploy",
    release="lmdeploy==0.18.0",
    modules={
        "Scheduler": "lmdeploy.pytorch.paging.scheduler",
        "SchedulerConfig": "lmdeploy.pytorch.config",
        "CacheConfig": "lmdeploy.pytorch.config",
        "SamplingParam": "lmdeploy.pytorch.messages",
        "SequenceMeta": "lmdeploy.pytorch.messages",
        "UpdateTokenMode": "lmdeploy.pytorch.messages",
        "ARSequenceStrategy": "lmdeploy.pytorch.strategies.ar.sequence",
    },
    quiet=True,
)
SAVED_STATES = 1 << 12
MANY = 1 << 30
"""More sequences and tokens than any case has, so that no limit but that of memory is met."""


def make_scheduler(config: CacheConfig) -> EngineObject:
    """Make a scheduler without sequences. Raises: UsageError."""
    cache_config = LMDEPLOY["CacheConfig"](
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
    limits = LMDEPLOY["SchedulerConfig"](max_batches=MANY, max_session_len=MANY)
    meta = LMDEPLOY["SequenceMeta"](config.page_size, strategy=LMDEPLOY["ARSequenceStrategy"]())
    return LMDEPLOY["Scheduler"](limits, cache_config, meta)


def array_of(numbers: Sequence[int]) -> EngineObject:
    """Numbers as the array type that LMDeploy takes."""
    numpy = import_module("numpy")
    return numpy.array(numbers, dtype=numpy.int64)
