"""What the engine calls of a connector: the scheduler's half, and the worker's half of each rank.

Names and order are those of vLLM's `KVConnectorBase_V1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from attrs import Factory, frozen

from kvcanon.lab.connectors.block_tables import BlocksByGroup
from kvcanon.lab.connectors.engine_request import StandInRequest

Metadata = Any
"""What the scheduler's half tells the workers about a step; a connector's own."""
WorkerMetadata = Any
"""What a worker's half tells the scheduler's; a connector's own, with `aggregate`."""


class ConnectorOfScheduler(Protocol):
    """The scheduler's half."""

    def on_new_request(self, request: StandInRequest) -> None: ...  # noqa: D102  # vLLM's.

    def get_num_new_matched_tokens(  # noqa: D102
        self, request: StandInRequest, num_computed_tokens: int
    ) -> tuple[int | None, bool]: ...

    def update_state_after_alloc(  # noqa: D102
        self, request: StandInRequest, blocks: BlocksByGroup, num_external_tokens: int
    ) -> None: ...

    def build_connector_meta(self, scheduler_output: Any) -> Metadata: ...  # noqa: ANN401, D102

    def update_connector_output(self, connector_output: Any) -> None: ...  # noqa: ANN401, D102

    def request_finished_all_groups(  # noqa: D102
        self, request: StandInRequest, block_ids: tuple[list[int], ...]
    ) -> tuple[bool, Mapping[str, object] | None]: ...

    def has_pending_push_work(self) -> bool: ...  # noqa: D102

    def take_events(self) -> Iterable[Any]: ...  # noqa: D102

    def reset_cache(self) -> bool | None: ...  # noqa: D102


class ConnectorOfWorker(Protocol):
    """The worker's half of a rank."""

    def register_kv_caches(self, kv_caches: Mapping[str, Any]) -> None: ...  # noqa: D102

    def handle_preemptions(self, kv_connector_metadata: Metadata) -> None: ...  # noqa: D102

    def bind_connector_metadata(self, connector_metadata: Metadata) -> None: ...  # noqa: D102

    def start_load_kv(self, forward_context: object) -> None: ...  # noqa: D102

    def wait_for_save(self) -> None: ...  # noqa: D102

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any: ...  # noqa: ANN401, D102

    def get_block_ids_with_load_errors(self) -> set[int]: ...  # noqa: D102

    def build_connector_worker_meta(self) -> WorkerMetadata | None: ...  # noqa: D102

    def clear_connector_metadata(self) -> None: ...  # noqa: D102


@frozen
class TransferResults:
    """What a rank has finished, as vLLM's `KVConnectorTransferResults`."""

    finished_sending: frozenset[str] = frozenset()
    finished_recving: frozenset[str] = frozenset()
    failed_recving: frozenset[str] = frozenset()


@frozen
class ConnectorReport:
    """What all ranks have finished in a step, as vLLM's `KVConnectorOutput`."""

    finished_sending: set[str] | None = None
    finished_recving: set[str] | None = None
    failed_recving: set[str] = Factory(set)
    invalid_block_ids: set[int] = Factory(set)
    kv_connector_worker_meta: WorkerMetadata | None = None
    kv_connector_stats: object | None = None
    kv_cache_events: object | None = None
    expected_finished_count: int = 0


@frozen
class ConnectorHalves:
    """A connector: both halves, which share nothing but metadata."""

    scheduler: ConnectorOfScheduler
    workers: Sequence[ConnectorOfWorker]
    """One a rank."""
    hash_of_event: Callable[[bytes], object] = lambda block_hash: block_hash
    """The form in which its events have the hash of a block."""
    at_end: Callable[[], None] = lambda: None
    """Ends its threads."""
    next_process: Callable[[], ConnectorHalves] | None = None
    """Makes its halves in the process after this one, whatever is in flight. None for a connector
    whose pages do not outlive a process; what does is announced by no event."""
