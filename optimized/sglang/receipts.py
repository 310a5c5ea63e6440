"""Receipts of locks that SGLang gives back: one that does not fit is an AssertionError there."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from sglang.srt.mem_cache import base_prefix_cache as calls

from kvcanon.spec.errors import CacheError


def release(unlock: Callable[[int, int], None], node_id: int, receipt: int) -> None:
    """Release what a receipt holds. Raises: AssertionError."""
    try:
        unlock(node_id, receipt)
    except CacheError as error:
        raise AssertionError(f"lock receipt {receipt} on node {node_id}: {error}") from error


def refuse_anchor(node_id: int, params: calls.DecLockRefParams) -> NoReturn:
    """Refuse a receipt that was given for another node. Raises: AssertionError."""
    raise AssertionError(
        f"lock receipt anchored on node {params.node_id} released on node {node_id}"
    )
