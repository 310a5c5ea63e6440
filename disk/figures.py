"""What a store has done and holds, in numbers, for logs and metrics."""

from __future__ import annotations

from attrs import define


@define
class DiskFigures:
    """Counts since the store was opened, and what it holds now."""

    pages: int = 0
    """Records of pages that are there."""
    used_bytes: int = 0
    """Room of the slots that hold pages."""
    slab_bytes: int = 0
    """The size of the slab."""
    capacity_bytes: int = 0
    written_pages: int = 0
    written_bytes: int = 0
    kept_pages: int = 0
    """Puts of pages that were there already."""
    refused_pages: int = 0
    """Puts that were answered with no."""
    read_pages: int = 0
    read_bytes: int = 0
    missed_pages: int = 0
    damaged_pages: int = 0
    """Pages that did not prove to be what was put, and were dropped."""
    evicted_pages: int = 0
    failed_calls: int = 0
    """Reads and writes that the disk refused."""
