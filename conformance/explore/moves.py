"""Moves: every action that may come next in a scope.

A prefix is continued by a page that followed it before, or by one new page: a second new page would
only rename the first. In the same way one of several equal receipts is enough.

A move that is refused, or changes nothing, is a move too: the laws check that nothing changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.exact_actions import exact_action
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.explore.plain_cache import performed_by
from kvcanon.conformance.explore.product import Product
from kvcanon.conformance.explore.scope import Scope
from kvcanon.conformance.explore.stored import whole_records
from kvcanon.reference.store_queue import ManualQueue
from kvcanon.spec.operations import Receipt
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import GPU, SWA, Key, Namespace, Page
from kvcanon.spec.views import present_pages, usable_pages

Letters: TypeAlias = tuple[int, ...]

ACKNOWLEDGE, PERFORM, FAIL = 0, 2, 3
"""The meaning of the second pick of the action `copy`."""
ONE_PAGE, NO_MORE = (2, 1), (0, 0)
"""The meaning of the later picks of the action `carry_out`."""
FLIPPED, MIXED_UP = 20, 8
"""The meaning of the second pick of the action `damage_stored`: a bit of the page is flipped, or
the page before or behind it is given in its place."""


def moves(scope: Scope, product: Product, state: Snapshot) -> Iterator[Action]:
    """Every action that may come next, in a fixed order."""
    prompts = Prompts(scope, product, state)
    idle = len(state.transfers) < scope.in_flight
    yield from _exactly("match_exactly", (*prompts.there, *prompts.gone))
    yield from _locks(scope, prompts, product, state)
    if idle:
        yield from _inserts(scope, prompts, product, state)
    yield from _requests(product, idle=idle)
    for counts in scope.evictions:
        yield Action("evict", counts.full, counts.swa, counts.mamba)
    if scope.config.host_tier:
        yield from _host(scope, prompts, state, idle=idle)
        yield from _copies(scope, product, state)
    if product.queue is not None:
        yield from _orders(scope, prompts, product, product.queue, state)
    yield Action("reset")
    yield Action("take_events")


class Prompts:
    """The prompts of a scope that differ from each other in a state."""

    def __init__(self, scope: Scope, product: Product, state: Snapshot) -> None:
        self._scope = scope
        self._known = product.client.namespaces
        self._config = scope.config
        numbers = {self._known[number]: number for number in scope.namespaces}
        self._in_tree: dict[tuple[int, Letters], set[int]] = {}
        self._asked: dict[tuple[int, Letters], set[int]] = {}
        stack: list[tuple[NodeState, Letters]] = [
            (child, ()) for child in state.children(state.root)
        ]
        prefixes: list[tuple[Namespace, Letters, tuple[Page, ...]]] = []
        while stack:
            node, before = stack.pop()
            prefixes.append((node.namespace, before, node.pages))
            letters = (*before, *map(_letter, node.pages))
            stack.extend((child, letters) for child in state.children(node))
        for namespace, before, pages in prefixes:
            _enter(self._in_tree, numbers[namespace], before, pages)
            _enter(self._asked, numbers[namespace], before, pages)
        for request in product.client.requests:
            _enter(self._asked, numbers[request.key.namespace], (), request.key.pages)
        used = [number for number in scope.namespaces if (number, ()) in self._asked]
        unused = [number for number in scope.namespaces if number not in used]
        self._namespaces = [*used, *unused[:1]]
        self.all = tuple(self._reachable())
        """Every prompt, with its namespace."""
        self.there = tuple(each for each in self.all if self._has(*each))
        """Every prefix in the tree."""
        self.gone = tuple(
            (number, letters)
            for number, letters in self.all
            if not self._has(number, letters)
            and (len(letters) == 1 or self._has(number, letters[:-1]))
        )
        """Every prompt of which only the last page is not in the tree."""

    def _reachable(self) -> Iterator[tuple[int, Letters]]:
        stack: list[tuple[int, Letters]] = [(number, ()) for number in reversed(self._namespaces)]
        while stack:
            number, letters = stack.pop()
            if letters:
                yield number, letters
            stack.extend((number, (*letters, one)) for one in self._next(number, letters))

    def key(self, number: int, letters: Letters) -> Key:
        """The key of a prompt."""
        size, bigram = self._config.page_size, self._config.bigram
        pages = tuple(page_of(letter, size, bigram=bigram) for letter in letters)
        return Key(pages, self._known[number])

    def _has(self, number: int, letters: Letters) -> bool:
        return letters[-1] in self._in_tree.get((number, letters[:-1]), ())

    def _next(self, number: int, letters: Letters) -> list[int]:
        """Letters that may follow a prefix: those that did before and a new one; highest first."""
        if len(letters) == self._scope.pages:
            return []
        known = self._asked.get((number, letters), set())
        fan = range(self._scope.fans[len(letters)])
        new = [letter for letter in fan if letter not in known]
        # A store knows pages that are not in the tree: there a second new page is another.
        return sorted({*known, *(new if self._scope.store is not None else new[:1])}, reverse=True)


def _enter(
    table: dict[tuple[int, Letters], set[int]],
    number: int,
    before: Letters,
    pages: tuple[Page, ...],
) -> None:
    for page in pages:
        letter = _letter(page)
        table.setdefault((number, before), set()).add(letter)
        before = (*before, letter)


def _letter(page: Page) -> int:
    unit = page[0]
    return unit[0] if isinstance(unit, tuple) else unit


def _exactly(name: str, prompts: Iterable[tuple[int, Letters]]) -> Iterator[Action]:
    return (exact_action(name, letters, number) for number, letters in prompts)


def _locks(scope: Scope, prompts: Prompts, product: Product, state: Snapshot) -> Iterator[Action]:
    if len(product.client.receipts) < scope.receipts:
        yield from _exactly("lock_exactly", (*prompts.there, *prompts.gone[:1]))
    for index in _different(product.client.receipts, state):
        yield Action("unlock", index, 0, 1)
        yield Action("unlock_window", index)


def _different(receipts: list[Receipt], state: Snapshot) -> list[int]:
    """Indexes of receipts, one for each group of receipts that hold the same."""
    holds = {hold.receipt_id: hold for hold in state.holds}
    seen: dict[object, int] = {}
    for index, receipt in enumerate(receipts):
        hold = holds.get(receipt.receipt_id)
        held = None if hold is None else (hold.node_id, hold.window_from_pages, hold.state_held)
        seen.setdefault(held, index)
    return list(seen.values())


def _inserts(scope: Scope, prompts: Prompts, product: Product, state: Snapshot) -> Iterator[Action]:
    name = "allocate_exactly" if len(product.client.requests) < scope.requests else "insert_exactly"
    for number, letters in prompts.all:
        usable = usable_pages(state, prompts.key(number, letters), (GPU,))
        starts = {usable, 0} if scope.from_first else {usable}
        yield from _inserts_from(scope, name, number, letters, starts)


def _inserts_from(
    scope: Scope, name: str, number: int, letters: Letters, starts: set[int]
) -> Iterator[Action]:
    """Inserts of a prompt from each of these pages on, with and without window data."""
    windowed = SWA in scope.config.components
    for start in sorted(starts):
        for bare in scope.bare_pages if windowed else (0,):
            if bare <= len(letters) - start:
                yield exact_action(name, letters, number, start_pages=start, bare_pages=bare)


def _requests(product: Product, *, idle: bool) -> Iterator[Action]:
    for index, request in enumerate(product.client.requests):
        if idle:
            yield Action("finish", index)
        yield Action("abort", index)
        if request.slots.swa:
            yield Action("slide", index, 1)


def _host(scope: Scope, prompts: Prompts, state: Snapshot, *, idle: bool) -> Iterator[Action]:
    for counts in scope.evictions if scope.host_evictions else ():
        yield Action("evict_host", counts.full, counts.swa, counts.mamba)
    if idle:
        yield from _exactly("load_back_exactly", (*prompts.there, *prompts.gone[:1]))
    if not scope.fetches:
        return
    for number, letters in prompts.all:
        there = present_pages(state, prompts.key(number, letters))
        starts = {0, there} - {len(letters)}
        yield from _inserts_from(scope, "insert_host_exactly", number, letters, starts)


def _copies(scope: Scope, product: Product, state: Snapshot) -> Iterator[Action]:
    performed = performed_by(product.engine)
    for index, transfer_id in enumerate(product.engine.open_transfer_ids):
        yield Action("copy", index, ACKNOWLEDGE)
        yield Action("copy", index, FAIL)
        if scope.early_bytes and transfer_id not in performed:
            yield Action("copy", index, PERFORM)
    yield Action("poll")
    if state.transfers:
        yield Action("flush")


def _orders(
    scope: Scope, prompts: Prompts, product: Product, queue: ManualQueue, state: Snapshot
) -> Iterator[Action]:
    """Orders to the store, how far they go, and what becomes of its pages."""
    store = state.store
    if store is not None and len(store.orders) < scope.orders:
        yield from _exactly("store_exactly", prompts.there)
        yield from _exactly("prefetch_exactly", prompts.all)
    for index in range(len(queue.open_order_ids)):
        yield Action("carry_out", index, *ONE_PAGE)
        yield Action("carry_out", index, *NO_MORE)
    yield Action("poll_store")
    for index in range(len(product.client.prefetches)):
        yield Action("end_prefetch", index)
    is_open = store is not None and store.is_open
    for index, is_whole in enumerate(whole_records(queue) if is_open else ()):
        yield Action("lose_stored", index)
        if is_whole and scope.damage:
            yield Action("damage_stored", index, FLIPPED)
            if len(queue.records) > 1:
                yield Action("damage_stored", index, MIXED_UP)
    yield Action("restart_exactly")
