"""What a tier has done, in pages and requests: counters that only grow."""

from __future__ import annotations

from attrs import asdict, define


@define
class TierCounts:
    """Counters of the scheduler's half."""

    asked_pages: int = 0
    """Pages beyond the local hit that prompts asked for, each time they asked."""
    answered_pages: int = 0
    loads: int = 0
    loaded_pages: int = 0
    failed_loads: int = 0
    stored_pages: int = 0
    late_pages: int = 0
    """Stored pages whose block was already given to a request, so that its step waited."""
    lost_pages: int = 0
    """Pages that were not stored because every row was held."""
    failed_stores: int = 0
    """Pages whose copy to the host failed."""
    evicted_pages: int = 0
    refused_requests: int = 0
    """Requests with media or embeddings."""
    resets: int = 0

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)
