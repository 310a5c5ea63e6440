"""Oracle functions against their second definitions, on inputs that a solver draws.

The backend `crosshair` of Hypothesis runs a property on symbols, and looks for inputs that take a
path that was not taken yet. It proves nothing, but finds what chance does not, and draws larger
inputs than a proof.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvcanon.lab.prove import second_definitions
from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.eviction import policy_key, pre_evict_need, refresh
from kvcanon.spec.oracle.folding import fold_page, is_alternating
from kvcanon.spec.oracle.pages import pages_covering, split, whole_pages
from kvcanon.spec.oracle.prefix import usable_prefix
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.types import EvictionPolicy

PATHS = 12
"""How many paths through a property are searched; each takes some hundredths of a second."""


def symbolically(property_of: Callable[..., None], *arguments: st.SearchStrategy[Any]) -> None:
    """Check a property on inputs that the solver draws."""
    run = settings(
        backend="crosshair",
        max_examples=PATHS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run(given(*arguments)(property_of))()


@frozen
class Pair:
    """An oracle function, its second definition, and the arguments of both."""

    function: Callable[..., object]
    second: Callable[..., object]
    arguments: st.SearchStrategy[tuple[Any, ...]]


FLAGS = st.lists(st.booleans(), min_size=1, max_size=10).map(tuple)
MANY = st.integers(0, 1 << 40)
SEGMENTS = st.lists(
    st.tuples(st.integers(1, 1 << 30), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=6,
).map(lambda rows: tuple(zip(*rows, strict=True)))
NODE = st.tuples(st.integers(0, 9), MANY, MANY, st.integers(-9, 9))

PAIRS = {
    "whole_pages": Pair(
        whole_pages,
        second_definitions.whole_pages,
        st.tuples(st.integers(0, 60), st.integers(1, 60)),
    ),
    "pages_covering": Pair(
        pages_covering,
        second_definitions.pages_covering,
        st.tuples(st.integers(0, 60), st.integers(1, 60)),
    ),
    "usable_prefix": Pair(
        usable_prefix,
        second_definitions.usable_prefix,
        st.builds(lambda columns, window: (*columns, window), SEGMENTS, st.integers(1, 1 << 30)),
    ),
    "window_nodes": Pair(
        window_nodes,
        second_definitions.window_nodes,
        st.tuples(
            st.lists(st.integers(1, 1 << 30), max_size=12).map(tuple),
            st.integers(1, 1 << 30),
            st.integers(1, 1 << 30),
        ),
    ),
    "window_start": Pair(
        window_start,
        second_definitions.window_start,
        st.tuples(st.integers(0, 30), st.integers(1, 60), st.integers(1, 60)),
    ),
    "backup_chain": Pair(
        backup_chain, second_definitions.backup_chain, st.tuples(FLAGS, st.booleans())
    ),
    "split": Pair(
        split,
        second_definitions.split,
        st.tuples(st.lists(MANY, max_size=10).map(tuple), st.integers(0, 10)),
    ),
    "pre_evict_need": Pair(
        pre_evict_need,
        second_definitions.pre_evict_need,
        st.tuples(st.integers(0, 60), st.integers(0, 60)),
    ),
    "policy_key": Pair(
        lambda policy, one, other: policy_key(policy, *one) < policy_key(policy, *other),
        second_definitions.leaves_before,
        st.tuples(st.sampled_from(EvictionPolicy), NODE, NODE),
    ),
    "fold_page": Pair(fold_page, second_definitions.fold_page, st.tuples(st.booleans(), FLAGS)),
    "is_alternating": Pair(
        is_alternating, second_definitions.is_alternating, st.tuples(st.booleans(), FLAGS)
    ),
    "refresh": Pair(
        refresh,
        second_definitions.refresh,
        st.tuples(*[st.lists(MANY, max_size=4, unique=True).map(tuple)] * 2),
    ),
}


def agree(pair: Pair) -> None:
    """Compare an oracle function with its second definition."""

    def agrees(arguments: tuple[Any, ...]) -> None:
        assert pair.function(*arguments) == pair.second(*arguments)

    symbolically(agrees, pair.arguments)


@pytest.mark.parametrize("name", PAIRS)
def test_oracle_functions_are_their_second_definitions(name: str) -> None:
    """Both give equal answers on every path that the solver finds."""
    agree(PAIRS[name])


def test_a_needle_is_found() -> None:
    """The solver finds one wrong input of a billion, so it does not draw by chance."""

    def wrong(lengths: tuple[int, ...], window_tokens: int, page_size: int) -> int:
        needle = window_tokens * 3 + page_size == 917_331_205
        return window_nodes(lengths, window_tokens, page_size) + needle

    sound = PAIRS["window_nodes"]
    with pytest.raises(AssertionError):
        agree(Pair(wrong, sound.second, sound.arguments))
