"""States, steps and streams made by hand: snapshots here, events and judging beside them."""

from states.snapshots import (
    EVERYTHING,
    POOLS,
    ROOT,
    copy,
    having,
    node,
    on,
    state_of,
    with_node,
    with_pool,
    without,
)

__all__ = [
    "EVERYTHING",
    "POOLS",
    "ROOT",
    "copy",
    "having",
    "node",
    "on",
    "state_of",
    "with_node",
    "with_pool",
    "without",
]
