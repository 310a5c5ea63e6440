"""What a tier has done, in pages and requests: counters that only grow."""

from __future__ import annotations

from attrs import asdict, define


@define
class TierCounts:
    """Counters of requests and loads; `HashedPages.counts` has those of stores."""

    asked_pages: int = 0
    """Pages beyond the local hit that prompts asked for, each time they asked."""
    answered_pages: int = 0
    loads: int = 0
    loaded_pages: int = 0
    failed_loads: int = 0
    refused_requests: int = 0
    """Requests with media or embeddings."""
    resets: int = 0
    disk_written_pages: int = 0
    """Pages that came to the disks of all ranks."""
    disk_passed_pages: int = 0
    """Pages that were not written: the disk was slow, full or left alone, or they had left."""
    disk_read_pages: int = 0
    disk_failed_reads: int = 0
    """Pages of reads that failed."""

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)
