"""Observed state of a request cache: its block tables, and what was computed.

The client computes a page as soon as it has a slot for it. So the content and the owner of every
slot are known, and which pages were ever computed.

A cache that keeps few pages is lawful if it was short of slots: a prefix hit is required only while
no call could have needed a slot that was used before.
"""

from __future__ import annotations

from collections import Counter

from attrs import Factory, define, evolve, field, frozen

from kvcanon.conformance.judge.from_outside.checks import Checks
from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot
from kvcanon.spec.views import PageNumber, PageNumbers

Place = tuple[Component, Slot]


@frozen(eq=False)
class Prompt:
    """A key with the numbers and hashes of its pages."""

    key: Key
    numbers: tuple[PageNumber, ...]
    hashes: tuple[bytes, ...]

    def prefix(self, pages: int) -> Prompt:
        """The prompt of its first pages."""
        return Prompt(self.key.prefix(pages), self.numbers[:pages], self.hashes[:pages])


@frozen(eq=False)
class Running:
    """A running request and its block table."""

    prompt: Prompt
    table: dict[Place, PageNumber]
    """What each slot holds: a page, or the mamba state at the end of a page."""
    reused: frozenset[bytes]
    """Hashes of the pages that it reused; it holds them until its end."""


@define(eq=False)
class ObservedRequests:
    """What the answers of a cache have shown."""

    config: CacheConfig
    checks: Checks
    one_pool: bool = False
    """Whether all components share one pool, whose size is the sum of their pools."""
    moves: bool = False
    """Whether data may move to other slots, so that only its bytes show what a slot holds."""
    running: dict[RequestId, Running] = Factory(dict)
    content: dict[Place, PageNumber] = Factory(dict)
    """The last page that was computed in each slot."""
    computed: set[PageNumber] = Factory(set)
    forgotten: set[PageNumber] = Factory(set)
    """Pages that a reset removed and that no request has computed since."""
    computed_hashes: set[bytes] = Factory(set)
    """Hashes of all pages that any request had."""
    computed_anywhere: set[PageNumber] = Factory(set)
    """Pages that were ever computed, by the numbers of their tokens without a namespace."""
    due: list[Prompt] = Factory(list)
    """Finished prompts, without the pages that the cache had a reason to evict."""
    has_evicted: bool = False
    """Whether evictions took pages of those."""
    touched: dict[Component, set[Slot]] = field(init=False)
    """Slots that any request ever had."""
    taken: Counter[Component] = Factory(Counter)
    """An upper bound of the slots that were allocated for requests, visible in a table or not."""
    numbers: PageNumbers = Factory(PageNumbers)

    def __attrs_post_init__(self) -> None:
        self.touched = {component: set() for component in self.config.components}

    def check(self, law_id: str, text: str | None, *, met: bool = True) -> None:
        """Note what is wrong, if anything; `met` says whether a faulty cache could have failed."""
        self.checks.note(law_id, text, met=met)

    def prompt(self, key: Key) -> Prompt:
        """Return a key with the numbers and hashes of its pages."""
        hashes = page_hashes(namespace_seed(key.namespace), key.pages)
        return Prompt(key, tuple(self.numbers.of_key(key)), hashes)

    def anywhere(self, key: Key) -> list[PageNumber]:
        """Return the numbers of the pages of a key, without its namespace."""
        return self.numbers.of_key(Key(key.pages))

    def window_from(self, end: int) -> int:
        """Return the first page of the window that ends at a page."""
        if self.config.window_tokens is None:
            return end
        return window_start(end, self.config.window_tokens, self.config.page_size)

    @property
    def full_only(self) -> bool:
        """Whether the only component is full data, so that all prefixes of a prefix are usable."""
        return self.config.components == (FULL,)

    # Slots.

    def others(self, place: Place) -> list[Place]:
        """Return the same slot of each other component, if they share one pool."""
        if not self.one_pool:
            return []
        return [(each, place[1]) for each in self.config.components if each is not place[0]]

    def capacity(self, component: Component) -> int:
        """Return how many slots a component may use."""
        if self.one_pool and component in self.config.components:
            return sum(self.config.capacity(each, GPU) for each in self.config.components)
        return self.config.capacity(component, GPU)

    def held(self) -> set[Slot]:
        """Return the full slots of running requests."""
        return {
            slot
            for request in self.running.values()
            for component, slot in request.table
            if component is FULL
        }

    def may_need_used_slots(self, prompt: Prompt) -> bool:
        """Whether a prompt may need more slots than have never been used."""
        after: Counter[Component] = Counter()
        for component in self.config.components:
            used = len(self.touched[FULL]) if component is FULL else self.taken[component]
            pool = FULL if self.one_pool else component
            after[pool] += used + (2 if component is MAMBA else len(prompt.key))
        return any(slots > self.capacity(pool) for pool, slots in after.items())

    def note_demand(self, prompt: Prompt) -> None:
        """Note a demand for slots of a whole prompt; due prompts may be evicted for it."""
        if self.may_need_used_slots(prompt):
            self.due.clear()
            self.has_evicted = False
        for component in self.config.components:
            self.taken[component] += 2 if component is MAMBA else len(prompt.key)

    def note_evicted(self, freed: Counts) -> None:
        """Note an eviction: of each due prompt it may have taken as many pages, from its end."""
        if not self.full_only or self.one_pool or self.config.host_tier:
            self.due.clear()
        left = [(each, len(each.key) - freed.full) for each in self.due]
        self.due = [each.prefix(pages) for each, pages in left if pages > 0]
        self.has_evicted = bool(self.due) and (self.has_evicted or freed.full > 0)

    # Operations.

    def compute(
        self, request_id: RequestId, prompt: Prompt, table: dict[Place, PageNumber], start: int
    ) -> None:
        """Record a request's new table, and that it computes its pages from `start` on."""
        before = self.running.get(request_id)
        reused = before.reused if before is not None else frozenset(prompt.hashes[:start])
        self.running[request_id] = Running(prompt, table, reused)
        new = set(prompt.numbers[start:])
        for place, number in table.items():
            self.touched[place[0]].add(place[1])
            if number in new:
                for other in self.others(place):
                    self.content.pop(other, None)
                self.content[place] = number
        self.computed |= new
        self.computed_hashes.update(prompt.hashes)
        self.computed_anywhere.update(self.anywhere(prompt.key))
        self.forgotten -= new

    def let_windows_go(self, request_id: RequestId) -> None:
        """Note that a refused request may have lost window data outside its window."""
        running = self.running.get(request_id)
        if running is None:
            return
        numbers = running.prompt.numbers
        window = set(numbers[self.window_from(len(numbers)) :])
        table = {
            place: number
            for place, number in running.table.items()
            if place[0] is not SWA or number in window
        }
        self.running[request_id] = evolve(running, table=table)

    def clear(self) -> None:
        """Forget all pages that no running request holds."""
        tables = [request.table for request in self.running.values()]
        self.content = {place: number for table in tables for place, number in table.items()}
        running = {number for request in self.running.values() for number in request.prompt.numbers}
        self.forgotten |= self.computed - running
        self.computed = running
        self.due.clear()
        self.has_evicted = False
        for component, touched in self.touched.items():
            touched.clear()
            touched.update(slot for kind, slot in self.content if kind is component)
            # A request may hold invisible slots, at most one for each of its pages.
            self.taken[component] = sum(2 + len(r.prompt.key) for r in self.running.values())
