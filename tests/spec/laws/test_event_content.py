"""EVENT-6, EVENT-7 and EVENT-9: what a store says of its page."""

from __future__ import annotations

import pytest
from attrs import evolve

from event_cases import BACK, CONFIG, EMPTY, INSERT, UPPER, state
from kvcanon.spec.operations import (
    Evict,
    Insert,
)
from kvcanon.spec.types import (
    CPU,
    Counts,
    Namespace,
    Slots,
    make_key,
)
from states import node, on, state_of
from telling import ask, names_of, step, stores, stream


def test_hashes_chain_holds_in_a_namespace() -> None:
    """Hashes follow the parent hash, or the seed of the namespace."""
    tenant = node(1, 0, UPPER, full=on((0, 1)), page_size=2, namespace=Namespace("tenant"))
    there = state_of(CONFIG, tenant)
    assert ask("EVENT-6", stream(there, *stores(there, 1))) == []


def test_hashes_chain_sees_a_name_without_its_namespace() -> None:
    """A hash that leaves out the namespace is reported (sgl#24568)."""
    there = state()
    first = stores(there, 1)[0]
    (said,) = ask("EVENT-6", stream(there, evolve(first, namespace=Namespace("tenant"))))
    assert "after the seed of Namespace(extra_key='tenant'" in said


def test_hashes_chain_sees_a_name_after_the_wrong_parent() -> None:
    """A hash that does not follow its own parent hash is reported."""
    there = state()
    (child,) = stores(there, 2)
    (said,) = ask("EVENT-6", stream(there, evolve(child, parent_hash=names_of(there, 1)[0])))
    assert f"was stored as {child.block_hash.hex()[:8]}" in said


def test_hashes_chain_sees_a_seed_for_a_parent() -> None:
    """The namespace's seed as the parent of a first page is reported."""
    there = state()
    (said,) = ask("EVENT-6", stream(there, evolve(stores(there, 1)[0], parent_hash=b"")))
    assert "seed as its parent" in said


def test_parent_is_the_page_before_holds_across_a_cut() -> None:
    """The parent of a new branch is the last page that the branches share (sgl#24718)."""
    before = state_of(CONFIG, node(1, 0, (1, 2, 3, 4), full=on((0, 1)), page_size=2))
    after = state_of(
        CONFIG,
        node(2, 0, (1, 2), full=on((0,)), page_size=2),
        node(1, 2, (3, 4), full=on((1,)), page_size=2),
        node(3, 2, (7, 8), full=on((2,)), page_size=2),
    )
    branch = Insert(make_key([1, 2, 7, 8], 2), 0, Slots((3, 2)))
    assert ask("EVENT-7", step(before, branch, after, events=stores(after, 3))) == []
    wrong = evolve(stores(after, 3)[0], parent_hash=names_of(after, 1)[-1])
    (said,) = ask("EVENT-7", step(before, branch, after, events=(wrong,)))
    assert "tokens 2..4 (node 3)" in said
    assert f"the page before it is {names_of(after, 2)[0].hex()[:8]}" in said


def test_parent_is_the_page_before_sees_other_tokens() -> None:
    """A store with other tokens or another namespace than its page's is reported."""
    after = state(lower=None)
    first, second = stores(after, 1)
    wrong = evolve(second, page=(9, 9))
    (said,) = ask("EVENT-7", step(EMPTY, INSERT, after, events=(first, wrong)))
    assert "tokens 2..4 (node 1) was stored as (9, 9)" in said


def test_parent_is_the_page_before_looks_at_what_is_gone_too() -> None:
    """A page that a step stored and removed again is checked where it was before the step."""
    before, after = state(BACK), state(BACK, lower=None)
    (copied,) = stores(before, 2, CPU)
    evict = Evict(Counts(1))
    assert ask("EVENT-7", step(before, evict, after, events=(copied,))) == []
    assert ask("EVENT-7", step(before, evict, after, events=(evolve(copied, parent_hash=None),)))


def test_one_page_an_event_holds() -> None:
    """A store of `page_size` tokens holds."""
    there = state()
    assert ask("EVENT-9", stream(there, *stores(there, 1))) == []


def test_one_page_an_event_sees_a_whole_node() -> None:
    """A store of more than one page is reported."""
    there = state()
    (said,) = ask("EVENT-9", stream(there, evolve(stores(there, 1)[0], page=UPPER)))
    assert "with 4 units; a page has 2" in said


@pytest.mark.parametrize("bigram", [False, True])
def test_one_page_an_event_sees_the_wrong_units(bigram: bool) -> None:
    """Single tokens in a cache of bigrams are reported, and pairs in any other."""
    there = evolve(state(), config=evolve(CONFIG, bigram=bigram))
    (first, _) = stores(state(), 1)
    pairs = evolve(first, page=((1, 2), (2, 3)))
    right, wrong = (pairs, first) if bigram else (first, pairs)
    assert ask("EVENT-9", stream(there, right)) == []
    (said,) = ask("EVENT-9", stream(there, wrong))
    assert ("units are pairs" in said) is bigram
