"""The client of a request cache, and what each action does for it.

It holds its running requests and the keys that it used. As soon as it has a block table it writes
the stamps of all pages that are not reused.

One case can be played on both kinds of caches. Actions that call operations of a tree do nothing
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from random import Random

from attrs import define, field

from kvcanon.conformance.cases.added_actions import prompts_together
from kvcanon.conformance.cases.client import NAMESPACES, Stamps
from kvcanon.conformance.cases.exact_actions import MOST_NAMESPACES, exact_key
from kvcanon.conformance.cases.long_actions import ABORTED, ROUNDS, SETTLED, lived_prompts
from kvcanon.conformance.cases.prompts import (
    branches_of,
    known_key,
    long_prompt,
    new_prompt,
    points_of,
    twin,
)
from kvcanon.conformance.cases.wide_actions import HITS
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.conformance.protocol.request import FullRequestCache, RequestId
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import GPU, MAMBA, SWA, Component, Counts, Key, Namespace, Slots, make_key


@define(eq=False)
class RequestClient:
    """All requests and keys that the users of one request cache hold."""

    cache: FullRequestCache
    can: frozenset[Capability]
    stamps: Stamps
    namespaces: tuple[Namespace, ...] = NAMESPACES
    keys: list[Key] = field(factory=list)
    running: dict[RequestId, Key] = field(factory=dict)
    started: int = 0

    def prompt(self, a: int, b: int, c: int) -> Key:
        """Return a new prompt that shares its beginning with a known key."""
        return new_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def long_prompt(self, a: int, b: int, c: int) -> Key:
        """Return a new prompt that is as long as the pools allow."""
        return long_prompt(self.keys, self.namespaces, self.cache.config, (a, b, c))

    def exact(self, a: int, b: int, c: int) -> Key:
        """Return the key of an exact action with these picks."""
        return exact_key(self.cache.config, self.namespaces, (a, b, c))

    def some(self, a: int) -> RequestId | None:
        """Return a running request, if there is one."""
        return list(self.running)[a % len(self.running)] if self.running else None

    def admit(self, key: Key) -> RequestId:
        """Start a request, and compute the pages that it does not reuse. Raises: CacheError."""
        self.started += 1
        admitted = self.cache.admit(self.started, key)
        self.running[self.started] = key
        self.compute(key, admitted.reused_pages, admitted.slots)
        return self.started

    def extend(self, request_id: RequestId, key: Key) -> None:
        """Extend a request, and compute its new pages. Raises: CacheError."""
        computed = len(self.running[request_id])
        table = self.cache.extend(request_id, key)
        self.running[request_id] = key
        self.compute(key, computed, table)

    def compute(self, key: Key, computed_pages: int, table: Slots) -> None:
        """Write the stamps of the pages after the first `computed_pages`."""
        if Capability.WRITE not in self.can or computed_pages >= len(key):
            return
        for component, slots in table:
            first = len(key) - len(slots)
            stamps = self.stamps.of_key(component, key) if slots else []
            for page, slot in enumerate(slots, first):
                if page >= computed_pages:
                    self.cache.write(component, slot, stamps[page])

    def end(self, request_id: RequestId, call: Callable[[RequestId], None]) -> None:
        """Finish or abort a request."""
        del self.running[request_id]
        call(request_id)

    def drain(self, order: Iterable[Component]) -> None:
        """End every request, evict slot by slot, and check that the whole pool is free again.

        Nothing is evicted from a cache with a host tier, whose copies may still be in flight.

        Raises: CacheError: the pool cannot be allocated; slots have leaked.
        """
        for request_id in list(self.running):
            self.end(request_id, self.cache.abort)
        if Capability.EVICT in self.can:
            for component in order:
                self._evict_all(component)
        if not self.cache.config.host_tier:
            self.end(self.admit(self.whole_pool()), self.cache.abort)
        if Capability.TAKE_EVENTS in self.can:
            self.cache.take_events()

    def _evict_all(self, component: Component) -> None:
        """Evict slot by slot; stops once more slots were freed than exist."""
        capacity = self.cache.config.capacity(component, GPU)
        for _ in range(capacity + 1 if component in self.cache.config.components else 0):
            if not self.cache.evict(Counts(**{component.value: 1})).freed[component]:
                return

    def whole_pool(self) -> Key:
        """Return a key that shares no prefix with any other, and needs every slot of the pool."""
        config = self.cache.config
        pages = config.device_slots.full
        if SWA in config.components:
            pages = min(pages, config.device_slots.swa)
        if MAMBA in config.components and not config.device_slots.mamba:
            pages = 0
        tokens = range(100, 100 + pages * config.page_size + config.bigram)
        return make_key(tokens, config.page_size, bigram=config.bigram)


# The actions.


def serve(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run a whole request: a known prompt again, or a new one."""
    key = known_key(client.keys, a, 1) if c % 3 == 0 and client.keys else client.prompt(a, b, c)
    client.keys.append(key)
    client.end(client.admit(key), client.cache.finish)


def admit(client: RequestClient, a: int, b: int, c: int) -> None:
    """Admit a request."""
    key = client.prompt(a, b, c)
    client.keys.append(key)
    client.admit(key)


def serve_twin(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run a whole request for a known key with other high bits in one token."""
    key = twin(known_key(client.keys, a, 1), b, c)
    client.keys.append(key)
    client.end(client.admit(key), client.cache.finish)


def serve_long(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run a whole request for a long prompt."""
    key = client.long_prompt(a, b, c)
    client.keys.append(key)
    client.end(client.admit(key), client.cache.finish)


def admit_long(client: RequestClient, a: int, b: int, c: int) -> None:
    """Admit a request with a long prompt."""
    key = client.long_prompt(a, b, c)
    client.keys.append(key)
    client.admit(key)


def grow(client: RequestClient, a: int, b: int, c: int) -> None:
    """Extend a running request by a page, or a few."""
    request_id = client.some(a)
    if request_id is None:
        return
    key = client.running[request_id]
    more = client.prompt(a, b, c).pages[-1 - c % 2 :]
    if more:
        longer = Key((*key.pages, *more), key.namespace)
        client.keys.append(longer)
        client.extend(request_id, longer)


def finish(client: RequestClient, a: int, _b: int, _c: int) -> None:
    """Finish a request."""
    request_id = client.some(a)
    if request_id is not None:
        client.end(request_id, client.cache.finish)


def abort(client: RequestClient, a: int, _b: int, _c: int) -> None:
    """Abort a request."""
    request_id = client.some(a)
    if request_id is not None:
        client.end(request_id, client.cache.abort)


def evict(client: RequestClient, a: int, b: int, c: int) -> None:
    """Evict from the pools."""
    components = client.cache.config.components
    client.cache.evict(Counts(a % 4, b % 4 * (SWA in components), c % 2 * (MAMBA in components)))


def reset(client: RequestClient, a: int, b: int, _c: int) -> None:
    """Sometimes reset; may be refused while a request runs."""
    if a % 12:
        return
    if b % 2:
        for request_id in list(client.running):
            client.end(request_id, client.cache.abort)
    client.cache.reset()


def lock_parts(client: RequestClient, a: int, b: int, c: int) -> None:
    """Admit requests for prefixes of a known prompt, and for all of it."""
    key = known_key(client.keys, a, 1)
    for at in (len(key), *points_of(key, b, c)):
        client.admit(key.prefix(at))


def unlock_some(client: RequestClient, a: int, b: int, _c: int) -> None:
    """Abort a few requests."""
    for at in range(1 + b % 4):
        request_id = client.some(a + at)
        if request_id is not None:
            client.end(request_id, client.cache.abort)


def start_over(client: RequestClient, a: int, _b: int, _c: int) -> None:
    """Sometimes end every request, and reset."""
    if a % 2:
        return
    for request_id in list(client.running):
        client.end(request_id, client.cache.abort)
    client.cache.reset()


def hit_again(client: RequestClient, a: int, b: int, c: int) -> None:
    """Serve a known prompt several times."""
    key = known_key(client.keys, a, b)
    for _ in range(HITS[c % len(HITS)]):
        client.end(client.admit(key), client.cache.finish)


def branch(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run whole requests for prompts that branch off a known one at three points."""
    for key in branches_of(known_key(client.keys, a, 1), client.cache.config, b, c):
        client.keys.append(key)
        client.end(client.admit(key), client.cache.finish)


def compute_twice(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run two requests for one prompt at once, and admit one more after they have finished."""
    if a % 4:
        for request_id in list(client.running):
            client.end(request_id, client.cache.abort)
    keys = prompts_together(client.prompt(a, b, c), client.cache.config, b)
    client.keys += keys
    running = [client.admit(key) for key in keys]
    for request_id in running if c % 2 else reversed(running):
        client.end(request_id, client.cache.finish)
    client.admit(keys[-1])


def live_on(client: RequestClient, a: int, b: int, c: int) -> None:
    """Run requests for a few prompts again and again."""
    random, prompts = Random(a << 24 | b << 12 | c), lived_prompts(client.cache.config)
    for _ in range(ROUNDS):
        with suppress(CacheError):
            request_id = client.admit(random.choice(prompts))
            aborted = random.random() < ABORTED
            client.end(request_id, client.cache.abort if aborted else client.cache.finish)
        if Capability.TAKE_EVENTS in client.can and random.random() < SETTLED:
            client.cache.take_events()


def take_events(client: RequestClient, _a: int, _b: int, _c: int) -> None:
    """Take the events."""
    client.cache.take_events()


def ask_nonsense(client: RequestClient, _a: int, _b: int, c: int) -> None:
    """Call with the id of a request that does not run."""
    unknown = client.started + 1
    wrong: tuple[Callable[[], object], ...] = (
        lambda: client.cache.finish(unknown),
        lambda: client.cache.abort(unknown),
        lambda: client.cache.extend(unknown, Key(())),
    )
    wrong[c % len(wrong)]()


# Single calls, of which cases are reduced.


def allocate_exactly(client: RequestClient, a: int, b: int, c: int) -> None:
    """Admit a request for the key that the picks encode."""
    client.admit(client.exact(a, b, c))


def extend_exactly(client: RequestClient, a: int, b: int, c: int) -> None:
    """Extend request `c // 8` to the key that the picks encode, if that goes on from its key."""
    request_id = client.some(c // MOST_NAMESPACES)
    if request_id is None:
        return
    key, before = client.exact(a, b, c), client.running[request_id]
    # No engine makes another call: where keys are reduced, a sound cache would break a law by it.
    if len(key) > len(before) and key.prefix(len(before)) == before:
        client.extend(request_id, key)


def know_exactly(client: RequestClient, a: int, b: int, c: int) -> None:
    """Call nothing, and add a key to those that other actions pick."""
    client.keys.append(client.exact(a, b, c))


def evict_exactly(client: RequestClient, a: int, b: int, c: int) -> None:
    """Evict `a` full slots, `b` window slots and `c` mamba states."""
    client.cache.evict(Counts(a, b, c))


Do = Callable[[RequestClient, int, int, int], None]

ACTIONS: dict[str, tuple[Do, frozenset[Capability]]] = {
    "serve": (serve, frozenset()),
    "admit": (admit, frozenset()),
    "serve_twin": (serve_twin, frozenset()),
    "serve_long": (serve_long, frozenset()),
    "admit_long": (admit_long, frozenset()),
    "grow": (grow, frozenset()),
    "finish": (finish, frozenset()),
    "finish_ranked": (finish, frozenset()),
    "hit_again": (hit_again, frozenset()),
    "branch": (branch, frozenset()),
    "lock_parts": (lock_parts, frozenset()),
    "unlock_some": (unlock_some, frozenset()),
    "abort": (abort, frozenset()),
    "start_over": (start_over, frozenset({Capability.RESET})),
    "evict": (evict, frozenset({Capability.EVICT})),
    "reset": (reset, frozenset({Capability.RESET})),
    "compute_twice": (compute_twice, frozenset()),
    "live_on": (live_on, frozenset()),
    "take_events": (take_events, frozenset({Capability.TAKE_EVENTS})),
    "ask_nonsense": (ask_nonsense, frozenset()),
}
"""What each action does here, and what it needs; all other actions do nothing."""

EXACT: dict[str, tuple[Do, frozenset[Capability]]] = {
    "allocate_exactly": (allocate_exactly, frozenset()),
    "extend_exactly": (extend_exactly, frozenset()),
    "know_exactly": (know_exactly, frozenset()),
    "evict_exactly": (evict_exactly, frozenset({Capability.EVICT})),
}
"""What each exact action does here, and what it needs."""

NOTHING: tuple[Do, frozenset[Capability]] = (lambda _client, _a, _b, _c: None, frozenset())


def act_by_requests(client: RequestClient, name: str, a: int, b: int, c: int) -> CacheError | None:
    """Do one action, unless the cache lacks what it needs; returns the refusal, if any."""
    do, needs = ACTIONS.get(name) or EXACT.get(name, NOTHING)
    if not needs <= client.can:
        return None
    try:
        do(client, a, b, c)
    except CacheError as refusal:
        return refusal
    return None
