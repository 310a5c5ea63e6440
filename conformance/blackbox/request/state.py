"""Observed state of a request cache: its block tables, beside what was computed.

The client computes a page as soon as it has a slot for it. So the contents and the owner of every
slot are known, and which pages have ever been computed.

A cache that keeps few pages is lawful as long as it was short of slots: a prefix hit is required
only while no call could have needed a slot that was used before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from attrs import Factory, define, evolve, field, frozen

from kvcanon.conformance.blackbox.checks import Checks
from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.types import FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot, Slots
from kvcanon.spec.views import PageNumber, PageNumbers

Place = tuple[Component, Slot]


@frozen(eq=False)
class Prompt:
    """A key with the numbers and names of its pages."""

    key: Key
    numbers: tuple[PageNumber, ...]
    names: tuple[bytes, ...]


@frozen(eq=False)
class Running:
    """A request, and what it has."""

    prompt: Prompt
    table: dict[Place, PageNumber]
    """What it has in which slot: a page, or the state at the end of one."""
    reused: frozenset[bytes]
    """Names of the pages that it did not compute: it holds them until its end."""


@define(eq=False)
class ObservedRequests:
    """All that is known of a cache from its answers."""

    config: CacheConfig
    checks: Checks
    one_pool: bool = False
    """Whether all components share one pool, as large as theirs together."""
    running: dict[RequestId, Running] = Factory(dict)
    content: dict[Place, PageNumber] = Factory(dict)
    """The page that was computed last in a slot."""
    computed: set[PageNumber] = Factory(set)
    forgotten: set[PageNumber] = Factory(set)
    """Pages that a reset did away with, and that nobody computed since."""
    computed_names: set[bytes] = Factory(set)
    """Names of all pages that requests ever had."""
    computed_anywhere: set[PageNumber] = Factory(set)
    """Pages that were ever computed, by the numbers that their tokens have in no namespace."""
    due: list[Prompt] = Factory(list)
    """Finished prompts that the cache had no reason to let go of."""
    touched: dict[Component, set[Slot]] = field(init=False)
    """Slots that requests were ever given."""
    taken: Counter[Component] = Factory(Counter)
    """At most so many slots were taken for requests, those that no table shows included."""
    numbers: PageNumbers = Factory(PageNumbers)

    def __attrs_post_init__(self) -> None:
        self.touched = {component: set() for component in self.config.components}

    def check(self, law_id: str, text: str | None, *, met: bool = True) -> None:
        """Note what is wrong, if anything, and whether a faulty cache could have broken the law."""
        self.checks.note(law_id, text, met=met)

    def prompt(self, key: Key) -> Prompt:
        """A key, numbered and named."""
        names = page_hashes(namespace_seed(key.namespace), key.pages)
        return Prompt(key, tuple(self.numbers.of_key(key)), names)

    def anywhere(self, key: Key) -> list[PageNumber]:
        """The numbers of the pages of a key, whatever its namespace."""
        return self.numbers.of_key(Key(key.pages))

    def window_from(self, end: int) -> int:
        """The first page of the window that ends at a page."""
        if self.config.window_tokens is None:
            return end
        return window_start(end, self.config.window_tokens, self.config.page_size)

    @property
    def full_only(self) -> bool:
        """Whether there is nothing but full data, so that all prefixes of a prefix are usable."""
        return self.config.components == (FULL,)

    # Room.

    def others(self, place: Place) -> list[Place]:
        """What a slot is to the other components, where they share one pool."""
        if not self.one_pool:
            return []
        return [(each, place[1]) for each in self.config.components if each is not place[0]]

    def capacity(self, component: Component) -> int:
        """Slots that a component may be in."""
        if self.one_pool and component in self.config.components:
            return sum(self.config.capacity(each, GPU) for each in self.config.components)
        return self.config.capacity(component, GPU)

    def held(self) -> set[Slot]:
        """Full slots of running requests."""
        return {
            slot
            for request in self.running.values()
            for component, slot in request.table
            if component is FULL
        }

    def may_need_used_slots(self, prompt: Prompt) -> bool:
        """Whether room for a whole prompt may be more than the slots that nobody had before."""
        after: Counter[Component] = Counter()
        for component in self.config.components:
            used = len(self.touched[FULL]) if component is FULL else self.taken[component]
            pool = FULL if self.one_pool else component
            after[pool] += used + (2 if component is MAMBA else len(prompt.key))
        return any(slots > self.capacity(pool) for pool, slots in after.items())

    def make_room(self, prompt: Prompt) -> None:
        """Room was asked for a whole prompt: what was due may have had to go for it."""
        if self.may_need_used_slots(prompt):
            self.due.clear()
        for component in self.config.components:
            self.taken[component] += 2 if component is MAMBA else len(prompt.key)

    # What was done.

    def compute(
        self, request_id: RequestId, prompt: Prompt, table: dict[Place, PageNumber], start: int
    ) -> None:
        """A request has a new table, and computes its pages from some page on."""
        before = self.running.get(request_id)
        reused = before.reused if before is not None else frozenset(prompt.names[:start])
        self.running[request_id] = Running(prompt, table, reused)
        new = set(prompt.numbers[start:])
        for place, number in table.items():
            self.touched[place[0]].add(place[1])
            if number in new:
                for other in self.others(place):
                    self.content.pop(other, None)
                self.content[place] = number
        self.computed |= new
        self.computed_names.update(prompt.names)
        self.computed_anywhere.update(self.anywhere(prompt.key))
        self.forgotten -= new

    def let_windows_go(self, request_id: RequestId) -> None:
        """A request was refused room: window data that it does not need may have gone for it."""
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
        """The cache forgot all but what running requests hold."""
        tables = [request.table for request in self.running.values()]
        self.content = {place: number for table in tables for place, number in table.items()}
        running = {number for request in self.running.values() for number in request.prompt.numbers}
        self.forgotten |= self.computed - running
        self.computed = running
        self.due.clear()
        for component, touched in self.touched.items():
            touched.clear()
            touched.update(slot for kind, slot in self.content if kind is component)
            # What a request holds out of sight is at most a slot for each of its pages.
            self.taken[component] = sum(2 + len(r.prompt.key) for r in self.running.values())


def table_of(seen: ObservedRequests, prompt: Prompt, slots: Slots) -> dict[Place, PageNumber]:
    """A block table, slot by slot, as far as it has the form of one."""
    size = len(prompt.key)
    for text in _malformed(seen, size, slots):
        seen.check("ALLOC-5", text)
    seen.check("ALLOC-5", None, met=size > 0)
    return {
        (component, slot): number
        for component, some in slots
        for slot, number in zip(reversed(some), reversed(prompt.numbers), strict=False)
    }


def check_owners(
    seen: ObservedRequests, request_id: RequestId, table: dict[Place, PageNumber]
) -> None:
    """No slot is two running requests' own; a page that both have they may share."""
    text = None
    crosswise = {other for place in table for other in seen.others(place)}
    for _, slot in table.keys() & crosswise:
        text = f"request {request_id} was given slot {slot} of the one pool for two components"
    for other_id, other in seen.running.items():
        for place in table.keys() & other.table.keys() if other_id != request_id else ():
            if place[0] is MAMBA or table[place] != other.table[place]:
                text = (
                    f"request {request_id} was given {place[0]} slot {place[1]}, which is in the "
                    f"block table of request {other_id} for something else"
                )
        for _, slot in crosswise & other.table.keys() if other_id != request_id else ():
            text = (
                f"request {request_id} was given slot {slot} of the one pool, which is in the "
                f"block table of request {other_id} for another component"
            )
    others = seen.running.keys() - {request_id}
    seen.check("ALLOC-1", text, met=bool(table) and (bool(others) or seen.one_pool))


def check_reuse(seen: ObservedRequests, prompt: Prompt, reused: int) -> None:
    """What is reused was computed, in the same namespace; what is due is reused."""
    if not 0 <= reused <= len(prompt.key):
        seen.check("MATCH-2", f"{reused} pages of {len(prompt.key)} are said to be reused")
        return
    seen.check("MATCH-2", None, met=reused > 0)
    for page, number in enumerate(prompt.numbers[:reused]):
        if number not in seen.computed:
            _check_uncomputed(seen, prompt, page)
            return
    seen.check("MATCH-1", None)
    due = max((_due_pages(seen, prompt, known) for known in seen.due), default=0)
    seen.check(
        "MATCH-6",
        f"{reused} pages are reused of a prompt that begins with {due} pages of a finished one, "
        "and no room was needed since"
        if reused < due
        else None,
        met=due > 0,
    )


def check_contents(seen: ObservedRequests, prompt: Prompt, slots: Slots, pages: int) -> None:
    """Behind the slots of the first pages is what was computed for them, their window included.

    Only a cache with a host tier moves bytes; of that, what is where is seen by reading alone.
    """
    if SWA in seen.config.components:
        first = len(prompt.key) - len(slots.swa)
        needed = seen.window_from(pages)
        seen.check(
            "MATCH-3",
            f"{pages} pages are not computed, and the table lacks page {needed}, in their window"
            if needed < min(first, pages)
            else None,
            met=pages > 0,
        )
    if seen.config.host_tier:
        return
    for component, page, slot in computed_slots(seen, prompt, slots, pages):
        found = seen.content.get((component, slot))
        text = None
        if found != prompt.numbers[page]:
            what = "nothing" if found is None else "another page"
            text = f"page {page} is said to be in {component} slot {slot}, which holds {what}"
        seen.check("MATCH-3", text)


def computed_slots(
    seen: ObservedRequests, prompt: Prompt, slots: Slots, pages: int
) -> Iterator[tuple[Component, int, Slot]]:
    """The slots in which the first pages of a table must be, as far as they are of use."""
    for component, begin in ((FULL, 0), (SWA, seen.window_from(pages))):
        first = len(prompt.key) - len(slots[component])
        for page, slot in enumerate(slots[component], first):
            if begin <= page < pages:
                yield component, page, slot


def check_refused(seen: ObservedRequests, request_id: RequestId, prompt: Prompt) -> None:
    """A request was not given room: there was too little beside what running ones hold.

    What they hold of window data and states is not seen; when none runs it is nothing. A request
    may need two states, the one that it starts from and its own.
    """
    states = seen.config.device_slots.mamba if MAMBA in seen.config.components else 2
    if seen.config.host_tier or states < 2 or (seen.running and not seen.full_only):
        return
    before = seen.running.get(request_id)
    missing = len(prompt.key) - (len(before.prompt.key) if before is not None else 0)
    room = seen.config.device_slots.full - len(seen.held())
    if SWA in seen.config.components:
        room = min(room, seen.config.device_slots.swa)
    seen.check(
        "REFUSE-1",
        f"room for {missing} pages was refused, and running requests leave {room} slots"
        if missing <= room
        else None,
    )


def check_freed(seen: ObservedRequests, asked: Counts, freed: Counts) -> None:
    """An eviction frees no more slots than a pool has."""
    text = None
    for component in Component:
        if not 0 <= freed[component] <= seen.capacity(component):
            text = f"an eviction of {asked} is said to have freed {freed[component]} {component}"
    seen.check("ALLOC-3", text, met=bool(asked))


def _malformed(seen: ObservedRequests, size: int, slots: Slots) -> Iterator[str]:
    window = size - seen.window_from(size)
    bounds = {
        FULL: (size, size),
        SWA: (window, size),
        MAMBA: (min(1, size), min(1, size)),
    }
    for component, some in slots:
        least, most = bounds[component] if component in seen.config.components else (0, 0)
        if not least <= len(some) <= most:
            yield f"a block table of {size} pages has {len(some)} {component} slots"
        if len(set(some)) < len(some):
            yield f"a block table has a {component} slot twice: {list(some)}"
        foreign = [s for s in some if not 0 <= s < seen.capacity(component)]
        if foreign:
            yield f"a block table has {component} slots {foreign}, which no pool has"


def _check_uncomputed(seen: ObservedRequests, prompt: Prompt, page: int) -> None:
    """Say what is wrong with the reuse of a page that nobody computed."""
    if prompt.numbers[page] in seen.forgotten:
        seen.check("ALLOC-7", f"page {page} is reused, which was computed before the reset only")
    elif seen.anywhere(prompt.key)[page] in seen.computed_anywhere:
        seen.check(
            "MATCH-1",
            f"page {page} is reused in {prompt.key.namespace}, where nobody computed it; "
            "in another namespace the same tokens were",
        )
    else:
        seen.check("MATCH-2", f"page {page} is reused, and nobody has ever computed it")


def _due_pages(seen: ObservedRequests, prompt: Prompt, known: Prompt) -> int:
    """Pages of a prompt that must be reused, because a finished one has them."""
    shared = 0
    for ours, theirs in zip(prompt.numbers, known.numbers, strict=False):
        if ours != theirs:
            break
        shared += 1
    if not seen.full_only and shared < len(known.key):
        # Window data and states are at the end of what was finished, and maybe nowhere else.
        return 0
    due = min(shared, len(prompt.key) - 1)
    return due if seen.full_only or due == shared else 0
