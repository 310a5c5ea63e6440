"""The one error of the disk tier: a folder that cannot be used. All else is a no or a miss."""

from __future__ import annotations


class DiskUnusable(Exception):
    """A folder or a setting with which no store can be opened; the message says what to do."""
