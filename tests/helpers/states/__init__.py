"""States, steps and streams made by hand, and tables of what laws say of them."""

from states.events import BACK, MUTE, PAGED, THROUGH, UPPER, names_of, paged, removes, stores
from states.judging import Answer, Table, ask, assert_says, step, still, stream, table
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
    "BACK",
    "EVERYTHING",
    "MUTE",
    "PAGED",
    "POOLS",
    "ROOT",
    "THROUGH",
    "UPPER",
    "Answer",
    "Table",
    "ask",
    "assert_says",
    "copy",
    "having",
    "names_of",
    "node",
    "on",
    "paged",
    "removes",
    "state_of",
    "step",
    "still",
    "stores",
    "stream",
    "table",
    "with_node",
    "with_pool",
    "without",
]
