"""Invalid calls: calls that must be refused because of a wrong or missing argument.

The reasons are those of `spec.refusals`. Each action makes one mistake at a time, so that a missing
check is found even if the cache checks all other arguments.

Some caches may lawfully serve such a call. The laws say which; an action only calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from attrs import evolve

from kvcanon.conformance.cases.client import ActionKind, Client, ClientRequest, enter
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import HostPayload, Receipt
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Key, Slot, Slots

NONSENSE: dict[str, ActionKind] = {}
"""Every action that makes a mistake, by name."""

Call = Callable[[], object]


@enter(NONSENSE, 2)
def ask_nonsense(client: Client, a: int, b: int, c: int) -> None:
    """Make a call with one wrong argument."""
    wrong = wrong_calls(client, client.known(a, b), c)
    wrong[(b + c) % len(wrong)]()


def wrong_calls(client: Client, key: Key, c: int) -> list[Call]:
    """Calls with one wrong argument, for which no request is needed."""
    wrong = [
        *_wrong_slots(client, key, c),
        *_wrong_counts(client, c),
        *_wrong_accesses(client, c),
        *wrong_fetches(client, key),
    ]
    if Capability.LOAD_BACK in client.can:
        wrong.append(lambda: client.cache.load_back(key, quota_pages=-1 - c % 3))
    return wrong


@enter(NONSENSE, 1)
def ask_in_vain(client: Client, a: int, b: int, c: int) -> None:
    """Call an operation that may have to be refused in the cache's current state."""
    key = client.known(a, b)
    beyond = Key((*key.pages, *client.prompt(a, b, c).pages, *key.pages), key.namespace)
    cache, can = client.cache, client.can
    calls: list[Call] = [
        lambda: client.receipts.append(cache.lock(beyond)),
        lambda: _insert_beyond(client, beyond),
    ]
    if Capability.UNLOCK_WINDOW in can and client.spent:
        calls.append(lambda: cache.unlock_window(client.spent[a % len(client.spent)]))
    if Capability.RESET in can and (client.receipts or client.requests):
        calls.append(cache.reset)
    if cache.config.host_tier and Capability.LOAD_BACK in can:
        calls.append(lambda: cache.load_back(beyond))
    if cache.config.host_tier and Capability.INSERT_HOST in can:
        calls.append(lambda: cache.insert_host(beyond, len(beyond), HostPayload()))
    calls[c % len(calls)]()


@enter(NONSENSE, 1)
def free_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Free all slots of a request together with one that it does not hold, or holds only once."""
    if client.requests:
        slots = client.requests[a % len(client.requests)].slots
        component, at = _place(client.components, b)
        some = list(slots[component])
        some.insert(at % (len(some) + 1), wrong_slot(client, component, some, c))
        client.cache.free(evolve(slots, **{component.value: tuple(some)}))


@enter(NONSENSE, 1)
def insert_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Insert what a request computed, with one of its slots replaced by a wrong one."""
    if not client.requests:
        return
    request = client.requests[a % len(client.requests)]
    having = [component for component, some in request.slots if some]
    if having:
        component, at = _place(having, b)
        some = list(request.slots[component])
        at %= len(some)
        some[at] = wrong_slot(client, component, some[:at] + some[at + 1 :], c)
        slots = evolve(request.slots, **{component.value: tuple(some)})
        client.cache.insert(request.key, request.start_pages, slots)


@enter(NONSENSE, 1)
def misfit(client: Client, a: int, b: int, _c: int) -> None:
    """Insert what a request computed, with slots or numbers that do not fit its pages."""
    if client.requests:
        request = client.requests[a % len(client.requests)]
        wrong = list(misfits(client, request))
        wrong[b % len(wrong)]()
        # Served, by a cache that does not check this: then the cache has the slots.
        client.end(request)


@enter(NONSENSE, 1, Capability.WRITE)
def write_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Write to a slot that is not held, or too few bytes to one that is."""
    component, at = _place(client.components, b)
    size = client.cache.config.slot_bytes
    holding = [*client.blocks, *(request.slots for request in client.requests)]
    held = [slot for slots in holding for slot in slots[component]]
    if a % 2 and held:
        client.cache.write(component, held[at % len(held)], bytes(size - 1))
    else:
        client.cache.write(component, wrong_slot(client, component, (), c), bytes(size))


@enter(NONSENSE, 1, Capability.WRITE)
def write_too_much(client: Client, a: int, b: int, c: int) -> None:
    """Write more bytes than a slot has to one that is held."""
    component, at = _place(client.components, b)
    holding = [*client.blocks, *(request.slots for request in client.requests)]
    held = [slot for slots in holding for slot in slots[component]]
    if held:
        size = client.cache.config.slot_bytes
        client.cache.write(component, held[(a + at) % len(held)], bytes(size * (2 + c % 2) - c % 2))


@enter(NONSENSE, 1)
def release_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Release a receipt with another key or number than one that was given, or that of a copy."""
    issued = [*client.receipts, *(each.receipt for each in client.requests if each.receipt)]
    issued += client.spent[-2:]
    copies = [] if client.copies is None else list(client.copies.open_transfer_ids)
    numbers = [receipt.receipt_id for receipt in issued]
    numbers += [copy + near for copy in copies for near in (-1, 0, 1)]
    if not numbers:
        return
    key = client.known(a, 1)
    other = key if c % 2 else Key(key.pages, client.namespaces[c % len(client.namespaces)])
    if not len(key):
        return  # Nothing tells empty keys apart.
    receipt = Receipt(numbers[a % len(numbers)], other)
    if receipt in issued:
        # Caches number receipts and copies as they like, so that here the next one's may be wrong.
        receipt = Receipt(1 << 20, other)
    releases = [client.cache.unlock]
    if Capability.UNLOCK_WINDOW in client.can:
        releases.append(client.cache.unlock_window)
    releases[b % len(releases)](receipt)


@enter(NONSENSE, 1, Capability.SETTLE, Capability.ARRIVED, host=True)
def settle_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Settle copies by a wrong name, twice, before they end, before others, or as done."""
    arrived = client.cache.arrived()
    copies = () if client.copies is None else client.copies.open_transfer_ids
    wrong: list[tuple[Completion, ...]] = [(Completion(1 << 20, ok=bool(c % 2)),)]
    wrong += [(*arrived, each) for each in arrived]
    wrong += [(Completion(each, ok=bool(c % 2)),) for each in copies]
    wrong += [(each,) for each in arrived[1:]]
    if not client.on_ranks:  # The others would settle what failed on one of them alone.
        wrong += [(evolve(each, ok=True),) for each in arrived if not each.ok]
    # After none of its direction, a copy is named rightly: then it is served.
    client.cache.settle(wrong[(a + b) % len(wrong)])


def _wrong_slots(client: Client, key: Key, c: int) -> Iterator[Call]:
    """Calls with slots outside the pools or of missing components, or a wrong first page."""
    cache = client.cache
    nowhere = cache.config.capacity(FULL, GPU) + c
    foreign = Slots(full=tuple(range(nowhere, nowhere + max(1, len(key)))))
    yield lambda: cache.free(foreign)
    yield lambda: cache.insert(key, 0, foreign)
    yield lambda: cache.insert(key, len(key) + 1, Slots())
    for component in set(Component).difference(client.components):
        alien = Slots(**{component.value: (c % 4,)})
        yield partial(cache.free, alien)


def _wrong_counts(client: Client, c: int) -> Iterator[Call]:
    """Calls with negative or too large counts, missing components, or window slots alone."""
    cache, less = client.cache, -1 - c % 3
    yield lambda: cache.allocate(Counts(full=1 << 20))
    yield lambda: cache.allocate(Counts(full=c % 2, swa=c % 2 + 1))
    for component in Component:
        fewer = Counts(**{component.value: less})
        yield partial(cache.allocate, fewer)
        if component not in client.components:
            yield partial(cache.allocate, Counts(**{component.value: 1}))
        if Capability.EVICT in client.can:
            yield partial(cache.evict, fewer)
        if Capability.EVICT_HOST in client.can and cache.config.host_tier:
            yield partial(cache.evict_host, fewer)


def _wrong_accesses(client: Client, c: int) -> Iterator[Call]:
    """Reads and writes of slots outside the pools, or without data."""
    cache = client.cache
    if Capability.WRITE in client.can:
        yield lambda: cache.write(FULL, c, b"")
    if Capability.READ in client.can:
        component, medium = tuple(Component)[c % 3], (GPU, CPU)[c // 3 % 2]
        capacity = cache.config.capacity(component, medium)
        yield lambda: cache.read(component, medium, -1)
        yield lambda: cache.read(component, medium, capacity)


def wrong_fetches(client: Client, key: Key) -> Iterator[Call]:
    """Host inserts whose data does not fit the pages, or is of a missing component."""
    cache, size, pages = client.cache, client.cache.config.slot_bytes, len(key)
    if Capability.INSERT_HOST not in client.can:
        return
    if not cache.config.host_tier:
        # Empty calls, so that they do not count as an operation that is never served.
        yield lambda: cache.insert_host(key.prefix(0), 0, HostPayload())
        return
    whole = HostPayload((bytes(size),) * pages)
    yield lambda: cache.insert_host(key, pages + 1, HostPayload())
    yield lambda: cache.insert_host(key, -1, HostPayload((bytes(size),) * (pages + 1)))
    yield lambda: cache.insert_host(key, 0, HostPayload((bytes(size),) * (pages + 1)))
    for component in (SWA, MAMBA):
        there, one = component in client.components, (bytes(size),)
        most = (pages if component is SWA else min(1, pages)) if there else 0
        more = evolve(whole, **{component.value: one * (most + 1)})
        yield partial(cache.insert_host, key, 0, more)
    for component in client.components:
        short = evolve(whole, **{component.value: (bytes(size - 1),) * min(1, pages)})
        if component is not FULL or pages == 1:
            yield partial(cache.insert_host, key, 0, short)


def misfits(client: Client, request: ClientRequest) -> Iterator[Call]:
    """Inserts of a request, each with one argument that does not fit."""
    key, start, slots = request.key, request.start_pages, request.slots

    def insert(given: Slots = slots, start: int = start, counted: int = 0) -> Call:
        return partial(client.cache.insert, key, start, given, counted_pages=counted)

    yield insert(start=-1)
    yield insert(counted=-1)
    yield insert(counted=len(key) + 1)
    if slots.full:
        yield insert(evolve(slots, full=slots.full[:-1]))
    if slots.swa:
        yield insert(evolve(slots, swa=slots.swa[:-1]))
    if len(slots.swa) > 1:
        yield insert(evolve(slots, swa=(*slots.swa[1:], slots.swa[0])))
    others = [other.slots for other in client.requests if other is not request]
    for component in Component:
        more = [slot for other in others for slot in other[component]]
        if component is MAMBA and not slots.mamba:
            continue  # The state of another request fits.
        if more:
            longer = evolve(slots, **{component.value: (*more[:1], *slots[component])})
            yield insert(longer)
            if component is FULL and start == 0:
                yield insert(longer, start=-1)
    foreign = [slot for other in others for slot in other.swa]
    if len(slots.swa) > 1 and foreign:
        yield insert(evolve(slots, swa=_with_a_foreign_slot(slots.swa, foreign)))


def _with_a_foreign_slot(swa: tuple[Slot, ...], foreign: Sequence[Slot]) -> tuple[Slot, ...]:
    """Replace a slot by another request's, numbered next after its neighbor if there is one.

    Consecutive slots look like one range, whichever pages they belong to.
    """
    following = [at for at in range(1, len(swa)) if swa[at - 1] + 1 in foreign]
    at = following[0] if following else 1
    slot = swa[at - 1] + 1 if following else foreign[0]
    return (*swa[:at], slot, *swa[at + 1 :])


def _insert_beyond(client: Client, key: Key) -> None:
    """Insert the last page of a key, whose earlier pages may not be cached."""
    slots = client.cache.allocate(Counts(full=min(1, len(key))))
    try:
        client.cache.insert(key, len(key) - len(slots.full), slots)
    except CacheError:
        client.cache.free(slots)
        raise


def _place(among: Sequence[Component], b: int) -> tuple[Component, int]:
    """Pick a component, and a position among its slots."""
    return among[b % len(among)], b // len(among)


def wrong_slot(client: Client, component: Component, others: Sequence[Slot], c: int) -> Slot:
    """Return a slot that makes an insert wrong: one used twice, or one that is not held."""
    if c % 2 and others:
        return others[c // 2 % len(others)]
    holding = [*client.blocks, *(request.slots for request in client.requests)]
    held = {slot for slots in holding for slot in slots[component]}
    # A faulty cache may have allocated slots outside the pool, so some of these may be held.
    slots = range(client.cache.config.capacity(component, GPU) + len(held) + 1)
    not_held = [slot for slot in slots if slot not in held]
    return not_held[c // 2 % len(not_held)]
