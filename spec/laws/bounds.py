"""Bounds: when a law can come up at all, as predicates for `enabled_if`.

A law of load-backs has nothing to check in a run without a host tier. Each law names its predicate
here, or writes it out where no other law has the same one.
"""

from __future__ import annotations

from kvcanon.spec.law import Bounds
from kvcanon.spec.types import WritePolicy


def has_windows(run: Bounds) -> bool:
    """The cache keeps window data."""
    return run.config.window_tokens is not None


def has_windows_or_states(run: Bounds) -> bool:
    """The cache keeps window data or mamba states."""
    return has_windows(run) or run.config.mamba


def has_requests_with_windows(run: Bounds) -> bool:
    """The cache keeps window data, and requests hold slots between calls."""
    return has_windows(run) and run.requests > 0


def has_pages_beyond_the_window(run: Bounds) -> bool:
    """A prompt can be so long that its end does not reach the window data of its first page."""
    config = run.config
    if config.window_tokens is None:
        return False
    reach_tokens = config.window_tokens + config.page_size
    return (run.pages - 1) * config.page_size >= reach_tokens


def has_host_tier(run: Bounds) -> bool:
    """The cache has slots on the host."""
    return run.config.host_tier


def fetches_pages(run: Bounds) -> bool:
    """Pages come from storage to the host by host inserts."""
    return run.config.host_tier and run.fetches


def backs_up_inserts(run: Bounds) -> bool:
    """Inserts copy pages to the host once they have enough hits."""
    return run.config.backup_hits is not None


def writes_back(run: Bounds) -> bool:
    """Evictions copy their victims to the host."""
    return run.config.write_policy is WritePolicy.WRITE_BACK


def has_receipts(run: Bounds) -> bool:
    """Requests hold locks."""
    return run.receipts > 0


def has_locks(run: Bounds) -> bool:
    """Something holds locks: a request, or a copy to or from the host."""
    return has_receipts(run) or has_host_tier(run)
