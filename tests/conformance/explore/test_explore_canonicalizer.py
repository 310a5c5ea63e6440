"""The canonical form: renaming does not change it, everything else does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from attrs import evolve

from exploring import FULL, NAMESPACES, STATES, TINY, WINDOW, expander, paths_in
from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.exact_actions import EXACT, LETTERS, exact_action
from kvcanon.conformance.explore.canonicalizer import digest
from kvcanon.conformance.explore.expansion import Expander, Expansion
from kvcanon.conformance.explore.form import Form
from kvcanon.conformance.explore.frontier import Path
from kvcanon.conformance.explore.plain_cache import hidden_in
from kvcanon.conformance.explore.product import Product
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.lab.variants import numbers
from kvcanon.lab.variants.override import Plant, overriding
from kvcanon.reference import ReferenceCache
from kvcanon.reference.state import Node, State
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL as FULL_DATA
from kvcanon.spec.types import GPU, SWA, Counts
from nights import at_night

each_scope = pytest.mark.parametrize(
    "scope", [*TINY[:2], *at_night(*TINY[2:])], ids=[scope.name for scope in TINY]
)


def form_at(by: Expander, path: Path) -> Form:
    """Return the form of the state at the end of a path."""
    return form_of(by, by.origin.at(path))


def form_of(by: Expander, product: Product) -> Form:
    """Return the form of a state."""
    return by.canon.form(product, product.subject.cache.snapshot())


def named_otherwise(path: Path, rename: Callable[[int, int], int], namespace: int = 0) -> Path:
    """Rename the pages of a path's prompts, by position and letter, in another namespace."""
    return tuple(
        Action(
            each.name,
            each.a,
            sum(
                rename(page, each.b // LETTERS**page % LETTERS) * LETTERS**page
                for page in range(each.a)
            ),
            each.c + namespace,
        )
        if each.name in EXACT
        else each
        for each in path
    )


@each_scope
def test_tokens_have_no_names(scope: Scope) -> None:
    """States that differ only in token values have one form."""
    by = expander(scope)
    for path in paths_in(scope)[:60]:
        other = named_otherwise(path, lambda page, letter: (letter + page + 1) % LETTERS)
        assert form_at(by, other) == form_at(by, path)


def test_pages_are_known_by_what_comes_before_them() -> None:
    """A token below two prefixes may be renamed differently in each."""
    by = expander(evolve(FULL, config=CacheConfig(device_slots=Counts(4)), fans=(2, 2)))
    one, other = (
        (exact_action("insert_exactly", (0, 0)), exact_action("insert_exactly", (1, letter)))
        for letter in (0, 1)
    )
    assert form_at(by, one) == form_at(by, other)
    apart = (exact_action("insert_exactly", (0, 0)), exact_action("insert_exactly", (0, 1)))
    assert form_at(by, apart) != form_at(by, one)


def test_namespaces_have_no_names() -> None:
    """States that differ only in the order of tenants have one form."""
    by = expander(NAMESPACES)
    for path in paths_in(NAMESPACES)[:60]:
        swapped = tuple(
            each._replace(c=3 - each.c % 8 + each.c // 8 * 8) if each.name in EXACT else each
            for each in path
        )
        assert form_at(by, swapped) == form_at(by, path)


RENAMED: tuple[Plant, ...] = (
    numbers.high_slots_first,
    numbers.scattered_ids,
    numbers.upper_parts_keep_ids,
)


@pytest.mark.parametrize("plant", RENAMED, ids=[plant.__name__ for plant in RENAMED])
@each_scope
def test_slots_and_ids_have_no_names(scope: Scope, plant: Plant) -> None:
    """States that differ only in the numbers of slots, nodes, receipts or copies have one form."""
    plain, renamed = expander(scope), expander(scope, Adapter("renamed", overriding(plant)))
    for path in paths_in(scope)[:60]:
        assert form_at(renamed, path) == form_at(plain, path)


def test_ticks_count_by_their_order_alone() -> None:
    """Only the order of last uses is in the form."""
    by = expander(FULL)
    used = (Action("insert_exactly", 1, 0), Action("insert_exactly", 1, 1))
    later = (
        Action("insert_exactly", 1, 0),
        *[Action("match_exactly", 1, 0)] * 5,
        Action("insert_exactly", 1, 1),
    )
    order = (*used, Action("match_exactly", 1, 0))
    assert form_at(by, later) == form_at(by, used)
    # Which of two equal ones is older does not matter; of two different ones it does.
    assert form_at(by, order) == form_at(by, used)
    longer = (Action("insert_exactly", 2, 0), Action("insert_exactly", 1, 1))
    assert form_at(by, (*longer, Action("match_exactly", 2, 0))) != form_at(by, longer)


def test_hits_count_up_to_what_waits_for_them() -> None:
    """Hits are in the form up to the threshold that uses them."""
    put, again = (
        exact_action("insert_exactly", (0,)),
        exact_action("insert_exactly", (0,), start_pages=1),
    )

    def forms(eviction_policy: str = "lru", write_policy: str = "none") -> list[Form]:
        config = CacheConfig(
            device_slots=Counts(3), eviction_policy=eviction_policy, write_policy=write_policy
        )
        by = expander(evolve(FULL, config=config))
        return [form_at(by, (put, *[again] * times)) for times in range(4)]

    assert len(set(forms())) == 1
    assert len(set(forms(eviction_policy="lfu"))) == 4
    once, twice, *more = forms(eviction_policy="slru")
    assert once != twice
    assert set(more) == {twice}
    # The host has no free slots, so that nothing else can differ.
    once, twice, *more = forms(write_policy="write_through_selective")
    assert once != twice
    assert set(more) == {twice}


@pytest.mark.parametrize(("policy", "is_seen"), [("lru", False), ("fifo", True), ("filo", True)])
def test_ages_count_where_a_policy_looks_at_them(policy: str, *, is_seen: bool) -> None:
    """Ages are in the form if the eviction policy uses them."""
    by = expander(evolve(FULL, config=evolve(FULL.config, eviction_policy=policy)))
    first, second = exact_action("insert_exactly", (0, 0)), exact_action("insert_exactly", (1,))
    long, short = exact_action("match_exactly", (0, 0)), exact_action("match_exactly", (1,))
    one = form_at(by, (first, second, long, short))
    other = form_at(by, (second, first, long, short))
    assert (one != other) is is_seen


@each_scope
def test_forms_and_digests_tell_the_same(scope: Scope) -> None:
    """Two states have one digest exactly if they have one form."""
    by = expander(scope)
    forms: dict[Form, bytes] = {}
    for path in paths_in(scope):
        form = form_at(by, path)
        forms[form] = digest(form)
    assert len(forms) == len(set(forms.values())) == len(paths_in(scope))


@each_scope
def test_states_of_one_form_lead_to_the_same(scope: Scope) -> None:
    """Each move leads states of one form to states of one form."""
    by = expander(scope)
    first: dict[bytes, Path] = {}
    looked = 0
    for path in paths_in(scope):
        first[digest(form_at(by, path))] = path
    for path in list(first.values())[:60]:
        for _, edge in by.expand([path]).edges:
            other = (*path, edge.action)
            if first[edge.digest] != other and looked < 200:
                looked += 1
                assert following(by, other) == following(by, first[edge.digest])
    assert looked > 20


def following(by: Expander, path: Path) -> Counter[bytes]:
    """Return the forms of the next states, with the number of moves to each."""
    return Counter(edge.digest for edge in by.edges(path, Expansion()))


Spoil = Callable[[State, Node], None]


def wrong_bytes(state: State, node: Node) -> None:
    """A slot has the bytes of another page."""
    (slot, *_) = node.data[FULL_DATA].device or ()
    state.pools[FULL_DATA, GPU].payloads[slot] = b"other"


def wrong_name(state: State, node: Node) -> None:
    """A page has the hash of another page."""
    node.hashes = (b"other",) * len(node.pages)


def two_owners(state: State, node: Node) -> None:
    """A slot is free, and a node has it."""
    (slot, *_) = node.data[FULL_DATA].device or ()
    state.pools[FULL_DATA, GPU].returned.append(slot)
    state.pools[FULL_DATA, GPU].untouched += 1


def lost_slot(state: State, node: Node) -> None:
    """A slot is missing from a pool, which may have no free ones."""
    state.pools[SWA, GPU].capacity -= 1


def extra_lock(state: State, node: Node) -> None:
    """A node is locked without a receipt."""
    node.data[FULL_DATA].lock_refs += 1


def wrong_mapping(state: State, node: Node) -> None:
    """A full slot maps to no window slot."""
    state.swa_of_full.clear()


@pytest.mark.parametrize(
    "spoil", [wrong_bytes, wrong_name, two_owners, lost_slot, extra_lock, wrong_mapping]
)
def test_what_is_wrong_is_seen_in_the_form(spoil: Spoil) -> None:
    """A faulty state has another form than the sound one."""
    by, spoilt = expander(WINDOW), 0
    for path in paths_in(WINDOW)[1:40]:
        product = by.origin.at(path)
        state = plain_state(product)
        node = next((n for n in state.nodes.values() if n.data[SWA].device), None)
        if node is not None and not state.holds:
            before = form_of(by, product)
            spoil(state, node)
            assert form_of(by, product) != before
            spoilt += 1
    assert spoilt > 10


def test_what_no_snapshot_shows_is_in_the_form() -> None:
    """Data that no snapshot shows and that later steps depend on is in the form."""
    by = expander(STATES)
    path = (exact_action("insert_exactly", (0,)), exact_action("match_exactly", (0,)))
    product = by.origin.at(path)
    hidden = hidden_in(product.subject.cache)
    assert hidden is not None
    snapshot, form = product.subject.cache.snapshot(), form_of(by, product)
    product.decided.clear()
    plain_state(product).arrived[7] = True
    assert product.subject.cache.snapshot() == snapshot
    assert form_of(by, product) != form


def plain_state(product: Product) -> State:
    """Return the state of the plain cache."""
    cache = product.subject.cache
    assert isinstance(cache, ReferenceCache)
    return cache._state
