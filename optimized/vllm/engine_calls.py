"""What the scheduler's half reads of vLLM's objects, so that it runs and is tested without vLLM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol


class LoraRequest(Protocol):
    """An adapter."""

    @property
    def lora_name(self) -> str: ...  # noqa: D102  # vLLM's names, here and below.

    @property
    def lora_int_id(self) -> int: ...  # noqa: D102


class VllmRequest(Protocol):
    """A request."""

    request_id: str
    num_computed_tokens: int
    cache_salt: str | None
    skip_reading_prefix_cache: bool | None

    @property
    def num_tokens(self) -> int: ...  # noqa: D102

    @property
    def all_token_ids(self) -> Sequence[int]: ...  # noqa: D102

    @property
    def block_hashes(self) -> list[bytes]: ...  # noqa: D102

    @property
    def lora_request(self) -> LoraRequest | None: ...  # noqa: D102

    @property
    def mm_features(self) -> Sequence[object]: ...  # noqa: D102

    @property
    def prompt_embeds(self) -> object | None: ...  # noqa: D102

    @property
    def num_output_placeholders(self) -> int: ...  # noqa: D102

    def is_finished(self) -> bool: ...  # noqa: D102


class VllmBlock(Protocol):
    """A block of the device, in the list of free blocks where nothing holds it."""

    block_id: int
    block_hash: bytes | None

    @property
    def next_free_block(self) -> VllmBlock | None: ...  # noqa: D102


class VllmFreeQueue(Protocol):
    """The free blocks, the one that is evicted next first."""

    @property
    def fake_free_list_head(self) -> VllmBlock: ...  # noqa: D102


class VllmBlockPool(Protocol):
    """All blocks of the device."""

    @property
    def blocks(self) -> Sequence[VllmBlock]: ...  # noqa: D102

    @property
    def null_block(self) -> VllmBlock: ...  # noqa: D102

    def get_num_free_blocks(self) -> int: ...  # noqa: D102

    @property
    def free_block_queue(self) -> VllmFreeQueue: ...  # noqa: D102


class KVCacheManager(Protocol):
    """What has the pool."""

    @property
    def block_pool(self) -> VllmBlockPool: ...  # noqa: D102


class BlocksOfRequest(Protocol):
    """The blocks of a request."""

    def get_block_ids(self) -> tuple[list[int], ...]: ...  # noqa: D102


class NewRequest(Protocol):
    """A request that computes for the first time."""

    @property
    def req_id(self) -> str: ...  # noqa: D102

    @property
    def block_ids(self) -> Sequence[Sequence[int]]: ...  # noqa: D102

    @property
    def num_computed_tokens(self) -> int: ...  # noqa: D102


class CachedRequests(Protocol):
    """Requests that go on, each at the same place of every list."""

    @property
    def req_ids(self) -> Sequence[str]: ...  # noqa: D102

    @property
    def resumed_req_ids(self) -> AbstractSet[str]: ...  # noqa: D102

    @property
    def new_block_ids(self) -> Sequence[Sequence[Sequence[int]] | None]: ...  # noqa: D102

    @property
    def num_computed_tokens(self) -> Sequence[int]: ...  # noqa: D102


class SchedulerOutput(Protocol):
    """What a step computes."""

    @property
    def scheduled_new_reqs(self) -> Sequence[NewRequest]: ...  # noqa: D102

    @property
    def scheduled_cached_reqs(self) -> CachedRequests: ...  # noqa: D102

    @property
    def num_scheduled_tokens(self) -> Mapping[str, int]: ...  # noqa: D102

    @property
    def scheduled_spec_decode_tokens(self) -> Mapping[str, Sequence[int]]: ...  # noqa: D102

    @property
    def preempted_req_ids(self) -> Iterable[str] | None: ...  # noqa: D102


class ConnectorOutput(Protocol):
    """What all ranks have finished."""

    @property
    def finished_recving(self) -> AbstractSet[str] | None: ...  # noqa: D102

    @property
    def failed_recving(self) -> AbstractSet[str] | None: ...  # noqa: D102

    @property
    def kv_connector_worker_meta(self) -> object | None: ...  # noqa: D102
