"""Drives vLLM's KVCacheManager, release 0.33.0.

Its `allocate_slots` evicts, allocates and inserts; its time counts as the insert's. Block hashes
are computed before a lookup, and timed separately. Full and window data come from one block pool,
which has the tokens of both pools.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from itertools import count
from time import perf_counter_ns
from typing import Any

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.lab.bench.case import BenchCell
from kvcanon.lab.bench.driver import Driver, EventCounts, StepTimes, whole_and_reusable_tokens

CORE = "vllm.v1.core"
LONGEST_TOKENS = 1 << 22


@frozen
class ListPrompt:
    """A prompt as a list."""

    whole: list[int]
    """Its whole blocks."""
    reusable: int
    """How many tokens are in whole blocks of its first n - 1 tokens."""
    cache_salt: str | None


class VLLMDriver:
    """Calls a `KVCacheManager`, which has no host tier."""

    loaded_tokens = spare_pages = 0

    def __init__(self, cell: BenchCell) -> None:
        """Make a manager. Raises: UsageError."""
        if cell.host is not None:
            raise UsageError("vLLM is measured without a host tier")
        utils = import_module(f"{CORE}.kv_cache_utils")
        sha256 = import_module("vllm.utils.hashing").sha256
        utils.init_none_hash(sha256)
        self._hasher = utils.get_request_block_hasher(cell.page_size, sha256)
        self._request = import_module("vllm.v1.request").Request
        self._sampling = import_module("vllm.sampling_params").SamplingParams(max_tokens=1)
        self._cell = cell
        self._manager = _manager(cell)
        self._numbers = count()
        self.core = type(self._manager.coordinator).__name__

    def prepare(self, request: Request) -> ListPrompt:
        """Put the whole blocks into one list."""
        page_size = self._cell.page_size
        whole, reusable = whole_and_reusable_tokens(request, page_size)
        tokens = list(request.make_tokens()[:whole])
        return ListPrompt(tokens, reusable, request.namespace.extra_key)

    def serve(self, prompt: ListPrompt, taken: StepTimes) -> int:
        """Serve a request."""
        if not prompt.whole:
            return 0
        manager = self._manager
        request, blocks, hit = self._match(prompt, taken)
        missing = len(prompt.whole) - hit
        began = perf_counter_ns()
        allocated = manager.allocate_slots(request, missing, hit, blocks)
        taken.insert.append(perf_counter_ns() - began)
        if allocated is None:
            raise UsageError(f"vLLM has no room for {missing} tokens")
        began = perf_counter_ns()
        manager.free(request)
        taken.unlock.append(perf_counter_ns() - began)
        return hit

    def find(self, prompt: ListPrompt, taken: StepTimes) -> int:
        """Look up a prompt without serving it."""
        return self._match(prompt, taken)[2] if prompt.whole else 0

    def _match(self, prompt: ListPrompt, taken: StepTimes) -> tuple[Any, Any, int]:
        """Return a request, its cached blocks, and how many tokens they have."""
        name, salt = str(next(self._numbers)), prompt.cache_salt
        request = self._request(name, prompt.whole, self._sampling, None, cache_salt=salt)
        began = perf_counter_ns()
        request.block_hashes = self._hasher(request)
        taken.hash.append(perf_counter_ns() - began)
        began = perf_counter_ns()
        blocks, hit, _ = self._manager.get_computed_blocks(request, prompt.reusable)
        blocks.get_block_ids()
        taken.match.append(perf_counter_ns() - began)
        return request, blocks, hit

    def take_events(self, taken: StepTimes) -> EventCounts:
        """Take the events since the last call."""
        began = perf_counter_ns()
        events = self._manager.take_events()
        taken.events.append(perf_counter_ns() - began)
        # Only events of full data, which is the first group.
        full_events = [event for event in events if not getattr(event, "group_idx", 0)]
        stored = sum(
            len(event.block_hashes) for event in full_events if hasattr(event, "token_ids")
        )
        return EventCounts(
            stored, sum(len(getattr(each, "block_hashes", ())) for each in full_events) - stored
        )


def _manager(cell: BenchCell) -> Any:  # noqa: ANN401 # vLLM's.
    interface = import_module("vllm.v1.kv_cache_interface")
    shape = {
        "block_size": cell.page_size,
        "num_kv_heads": 1,
        "head_size": 1,
        "dtype": import_module("torch").float16,
    }
    groups = [interface.KVCacheGroupSpec(["full"], interface.FullAttentionSpec(**shape))]
    if cell.window_tokens:
        window = interface.SlidingWindowSpec(**shape, sliding_window=cell.window_tokens)
        groups.append(interface.KVCacheGroupSpec(["window"], window))
    # vLLM never allocates the first block.
    blocks = (cell.pool_tokens + cell.swa_tokens) // cell.page_size + 1
    return import_module(f"{CORE}.kv_cache_manager").KVCacheManager(
        interface.KVCacheConfig(blocks, kv_cache_tensors=[], kv_cache_groups=groups),
        max_model_len=LONGEST_TOKENS,
        scheduler_block_size=cell.page_size,
        hash_block_size=cell.page_size,
        enable_kv_cache_events=cell.events,
    )


def make_driver(cell: BenchCell, options: Mapping[str, str]) -> Driver[ListPrompt]:  # noqa: ARG001 # None.
    """Make a driver of the manager. Raises: ImportError: vLLM is not installed."""
    return VLLMDriver(cell)
