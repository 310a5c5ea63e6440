"""Grounds of calls on a key: matches, locks and load-backs.

Each function returns what stands against a call in a state, as a clause, or None.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

from kvcanon.spec.config import CacheConfig, Limit
from kvcanon.spec.operations import LoadBack, Lock, Match
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.transfer import Direction
from kvcanon.spec.types import CPU, GPU, Key
from kvcanon.spec.views import path_of, present_pages, usable_pages


def wrong_key(config: CacheConfig, key: Key) -> str | None:
    """Pages of another size than the cache keeps, or units that are no tokens (or bigrams)."""
    if any(len(page) != config.page_size for page in key.pages):
        return f"the key has pages that are not of {config.page_size} units"
    units: Sequence[Any] = list(chain.from_iterable(key.pages))
    try:
        array("I", [token for pair in units for token in _pair(pair)] if config.bigram else units)
    except (TypeError, ValueError, OverflowError):
        return f"the key is not made of {'bigrams' if config.bigram else 'tokens'}"
    return None


def _pair(unit: tuple[int, int]) -> tuple[int, int]:
    first, second = unit
    return first, second


def bad_key(state: Snapshot, call: Match | Lock) -> str | None:
    """A key cut into other pages, or made of other units, than the cache keeps."""
    return wrong_key(state.config, call.key)


def limit_of_lock(state: Snapshot, call: Lock) -> str | None:
    """By `Limit.NODE_HANDLES`: a key at which no match on the device ends."""
    return _no_handle(state, call.key, on_device=True)


def bad_load(state: Snapshot, call: LoadBack) -> str | None:
    """A negative quota, or a wrong key."""
    if call.quota_pages is not None and call.quota_pages < 0:
        return f"the quota is {call.quota_pages} pages"
    return wrong_key(state.config, call.key)


def limit_of_load(state: Snapshot, call: LoadBack) -> str | None:
    """By `Limit.NO_QUOTA`: a quota. By `Limit.NODE_HANDLES`: a key at which no match ends."""
    if call.quota_pages is not None and Limit.NO_QUOTA in state.profile.limits:
        return "a quota is given"
    return _no_handle(state, call.key, on_device=False)


def _no_handle(state: Snapshot, key: Key, *, on_device: bool) -> str | None:
    """By `Limit.NODE_HANDLES`: why the cache has no handle for a key, as no match ends with it."""
    if Limit.NODE_HANDLES not in state.profile.limits or not len(key):
        return None
    path = path_of(state, key)
    if path and path[-1].shared_pages < len(path[-1].node.pages):
        return "the key ends inside a node"
    media = (GPU,) if on_device else (GPU, CPU)
    return "no match ends with the key" if usable_pages(state, key, media) < len(key) else None


def not_cached(state: Snapshot, call: Lock | LoadBack) -> str | None:
    """Pages of the key that are not in the tree."""
    there = present_pages(state, call.key)
    return None if there >= len(call.key) else f"only {there} pages of the key are in the tree"


def other_load(state: Snapshot, _: LoadBack) -> str | None:
    """By `Limit.ONE_LOAD`: another load-back in flight."""
    if Limit.ONE_LOAD not in state.profile.limits:
        return None
    loads = [t for t in state.transfers if t.direction is Direction.LOAD_BACK]
    return f"transfer {loads[0].transfer_id} is loading" if loads else None
