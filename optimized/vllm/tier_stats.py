"""What the tier counts, in vLLM's log and in its Prometheus metrics."""

from __future__ import annotations

from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1.metrics import (
    KVConnectorPromMetrics,
    KVConnectorStats,
)

GAUGES = {
    "host_pages": "Pages on the host.",
    "host_rows": "Pages that the host has room for.",
    "pinned_pages": "Pages on the host that answers or loads hold.",
    "storing_pages": "Pages whose copy to the host is in flight.",
    "loading_requests": "Requests that pages are loaded for.",
    "disk_pages": "Pages on the disks of all ranks.",
    "disk_writing_pages": "Pages that are being written to the disk.",
}
COUNTERS = {
    "asked_pages": "Pages beyond the local hit that prompts asked for, each time they asked.",
    "answered_pages": "Pages that were answered as loadable.",
    "loads": "Loads that began.",
    "loaded_pages": "Pages of those loads.",
    "failed_loads": "Loads that failed; their requests compute themselves.",
    "stored_pages": "Pages that came to the host.",
    "late_pages": "Pages stored from blocks that were given away already: the step waited.",
    "lost_pages": "Pages that were not stored because all rows were held.",
    "failed_stores": "Pages whose copy to the host failed.",
    "evicted_pages": "Pages that left the host for others.",
    "refused_requests": "Questions of requests with media or embeddings, which are not served.",
    "resets": "Resets of the cache.",
    "disk_written_pages": "Pages that came to the disks of all ranks.",
    "disk_passed_pages": "Pages not written: the disk was slow, full or resting, or they had left.",
    "disk_read_pages": "Pages that were read from the disk into the host.",
    "disk_failed_reads": "Pages of reads that failed; their requests compute themselves.",
}


class TierStats(KVConnectorStats):  # type: ignore[misc]  # vLLM has no types here.
    """What was counted since the last report, and present sizes."""

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        super().__init__(data=dict(data or {}))

    def reset(self) -> None:
        """Forget all."""
        self.data: dict[str, Any] = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """Add counts, and take over sizes."""
        for name, value in other.data.items():
            self.data[name] = value if name in GAUGES else self.data.get(name, 0) + value
        return self

    def reduce(self) -> dict[str, int | float]:
        """What a line of the log says."""
        return {f"kvcanon {name}": value for name, value in self.data.items() if value}

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class TierMetrics(KVConnectorPromMetrics):  # type: ignore[misc]  # As above.
    """Metrics `kvcanon_vllm_...`."""

    documentation: ClassVar = {**GAUGES, **COUNTERS}

    def __init__(
        self,
        vllm_config: Any,  # noqa: ANN401  # vLLM's.
        metric_types: Any,  # noqa: ANN401
        labelnames: list[str],
        per_engine_labelvalues: dict[int, list[object]],
    ) -> None:
        super().__init__(vllm_config, metric_types, labelnames, per_engine_labelvalues)
        self._metrics = {name: self._metric(name, labelnames) for name in self.documentation}

    def observe(self, transfer_stats_data: dict[str, Any], engine_idx: int = 0) -> None:
        """Take one report over."""
        labels = self.per_engine_labelvalues[engine_idx]
        for name, value in transfer_stats_data.items():
            if name in GAUGES:
                self._metrics[name].labels(*labels).set(value)
            else:
                self._metrics[name].labels(*labels).inc(value)

    def _metric(self, name: str, labelnames: list[str]) -> Any:  # noqa: ANN401
        words = self.documentation[name]
        if name in GAUGES:
            return self._gauge_cls(
                name=f"kvcanon_vllm_{name}",
                documentation=words,
                labelnames=labelnames,
                multiprocess_mode="mostrecent",
            )
        return self._counter_cls(
            name=f"kvcanon_vllm_{name}_total", documentation=words, labelnames=labelnames
        )
