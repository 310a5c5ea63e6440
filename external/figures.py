"""What an external store has done, in numbers, for logs and metrics."""

from __future__ import annotations

from attrs import define


@define
class ExternalFigures:
    """Counts of one client since it was made."""

    written_pages: int = 0
    kept_pages: int = 0
    """Puts of pages that were there already, which send no bytes."""
    refused_pages: int = 0
    """Puts that were answered with no: the server has no room, or takes no value so large."""
    read_pages: int = 0
    missed_pages: int = 0
    damaged_pages: int = 0
    """Values that did not prove to be the page that was asked for, and were removed."""
