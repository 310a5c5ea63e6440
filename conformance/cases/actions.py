"""The actions: what clients of a cache may try, by name.

Each action takes a client and three picks, and calls the cache accordingly. A refusal is an answer
like any other, and is returned.

Names of actions are written into vectors and reports, which outlive this file. So a name keeps its
meaning forever; a new meaning gets a new name.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.cases.added_actions import ADDED
from kvcanon.conformance.cases.client import ActionKind, Client, Do, enter
from kvcanon.conformance.cases.corner_actions import CORNER
from kvcanon.conformance.cases.exact_actions import EXACT
from kvcanon.conformance.cases.exact_store_actions import EXACT_STORES
from kvcanon.conformance.cases.invalid_calls import NONSENSE
from kvcanon.conformance.cases.long_actions import LONG
from kvcanon.conformance.cases.partial_actions import PARTIAL
from kvcanon.conformance.cases.rare_actions import RARE
from kvcanon.conformance.cases.state_actions import STATES
from kvcanon.conformance.cases.store_actions import STORES
from kvcanon.conformance.cases.wait_actions import WAITS
from kvcanon.conformance.cases.wide_actions import WIDE
from kvcanon.conformance.cases.wrong_calls import OF_KEYS, WRONG
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import MAMBA, SWA, Counts, Key, Slots

ACTIONS: dict[str, ActionKind] = {}
"""Every drawn action by name; those of other modules come last."""


def action(weight: int, *needs: Capability, host: bool = False) -> Callable[[Do], Do]:
    """Enter a drawn action into the table."""
    return enter(ACTIONS, weight, *needs, host=host)


# Actions of requests.


@action(5)
def serve(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request, from match to insert: a known prompt again, or a new one."""
    key = client.known(a, 1) if c % 3 == 0 and client.keys else client.prompt(a, b, c)
    client.keys.append(key)
    request = client.start(key, client.cache.match(key).device_pages, counted_pages=0)
    client.insert(request, priority=0)


@action(2)
def admit(client: Client, a: int, b: int, c: int) -> None:
    """Match, lock the device prefix, and allocate slots for the rest."""
    key = client.prompt(a, b, c)
    client.keys.append(key)
    client.start(key, client.cache.match(key).device_pages, counted_pages=0)


@action(1)
def slide(client: Client, a: int, b: int, _c: int) -> None:
    """Slide a request's window: free window slots of its oldest pages."""
    if client.requests:
        request = client.requests[a % len(client.requests)]
        gone = b % (len(request.slots.swa) + 1)
        client.cache.free(Slots(swa=request.slots.swa[:gone]))
        slots = request.slots
        request.slots = Slots(slots.full, slots.swa[gone:], slots.mamba)


@action(3)
def finish(client: Client, a: int, _b: int, c: int) -> None:
    """Insert all pages that a request computed, and end it."""
    if client.requests:
        client.insert(client.requests[a % len(client.requests)], priority=c % 3)


@action(2)
def grow(client: Client, a: int, b: int, c: int) -> None:
    """Insert the pages that a request computed, and continue with a longer prompt."""
    if not client.requests:
        return
    request = client.requests[a % len(client.requests)]
    client.insert(request, priority=0)
    more = client.prompt(a, b, c).pages[-1:]
    longer = Key((*request.key.pages, *more), request.key.namespace)
    client.keys.append(longer)
    start = client.cache.match(longer).device_pages
    client.start(longer, start, counted_pages=min(len(request.key), start))


@action(1)
def abort(client: Client, a: int, _b: int, _c: int) -> None:
    """End a request without an insert."""
    if client.requests:
        client.abort(client.requests[a % len(client.requests)])


# Single operations.


@action(1)
def match(client: Client, a: int, b: int, _c: int) -> None:
    """Match a known key, or a part of it."""
    client.cache.match(client.known(a, b))


@action(1)
def lock(client: Client, a: int, b: int, _c: int) -> None:
    """Lock a known key, which may be evicted by now."""
    client.receipts.append(client.cache.lock(client.known(a, b)))


@action(2)
def unlock(client: Client, a: int, _b: int, c: int) -> None:
    """Unlock; sometimes a receipt that was spent before."""
    if client.spent and c % 5 == 0:
        client.cache.unlock(client.spent[a % len(client.spent)])
    elif client.receipts:
        client.unlock(client.receipts[a % len(client.receipts)])


@action(2, Capability.UNLOCK_WINDOW)
def unlock_window(client: Client, a: int, b: int, _c: int) -> None:
    """Release the window of a lock early, of a new one if there is none; sometimes twice."""
    of_requests = [request.receipt for request in client.requests if request.receipt is not None]
    held = [*client.receipts, *of_requests]
    if not held:
        key = client.known(a, b)
        there = client.cache.match(key).device_pages
        held = [client.cache.lock(key.prefix(there))]
        client.receipts += held
    client.cache.unlock_window(held[a % len(held)])


@action(3, Capability.EVICT)
def evict(client: Client, a: int, b: int, c: int) -> None:
    """Evict from the device pools."""
    client.cache.evict(_pressure(client, a, b, c))


@action(1, Capability.EVICT_HOST, host=True)
def evict_host(client: Client, a: int, b: int, c: int) -> None:
    """Evict from the host pools."""
    client.cache.evict_host(_pressure(client, a, b, c))


@action(2, Capability.LOAD_BACK, host=True)
def load_back(client: Client, a: int, b: int, c: int) -> None:
    """Load back a known key; prefers one that is usable from the host."""
    client.cache.load_back(client.on_host(a, b, 8), quota_pages=None if c % 4 else c % 7)


@action(1, Capability.INSERT_HOST, host=True)
def insert_host(client: Client, a: int, b: int, c: int) -> None:
    """Insert pages of a key on the host, as if fetched from storage."""
    _fetch(client, client.known(a, 0) if c % 2 else client.prompt(a, b, c), b, c)


@action(1, Capability.INSERT_HOST, Capability.LOAD_BACK, host=True)
def fetch_and_load(client: Client, a: int, b: int, c: int) -> None:
    """Insert all of a key on the host, load it back, and match it: a complete prefetch."""
    key = client.prompt(a, b, c)
    _fetch(client, key, 0, c)
    client.cache.load_back(key)
    if Capability.FLUSH in client.can and b % 2:
        client.cache.flush()
    client.cache.match(key)


@action(3, host=True)
def copy(client: Client, a: int, b: int, _c: int) -> None:
    """Perform, acknowledge or fail a copy in flight, in any order."""
    copies = client.copies
    if copies is None or not copies.open_transfer_ids:
        return
    transfer_id = copies.open_transfer_ids[a % len(copies.open_transfer_ids)]
    decide = (copies.acknowledge, copies.perform, copies.fail)
    decide[(0, 0, 1, 2)[b % 4]](transfer_id)


@action(3, Capability.POLL, host=True)
def poll(client: Client, _a: int, _b: int, _c: int) -> None:
    """Settle the transfers that are acknowledged."""
    client.cache.poll()


@action(1, Capability.FLUSH, host=True)
def flush(client: Client, a: int, _b: int, _c: int) -> None:
    """Sometimes wait for all copies."""
    if a % 4 == 0:
        client.cache.flush()


@action(1, Capability.RESET)
def reset(client: Client, a: int, b: int, _c: int) -> None:
    """Sometimes reset; first releases some locks, since a reset is refused while a lock is held.

    Requests keep their allocated slots: a later insert may use slots from before the reset.
    """
    if a % 12:
        return
    if b % 2:
        for receipt in list(client.receipts):
            client.unlock(receipt)
        for request in client.requests:
            client.let_go(request)
    client.cache.reset()


@action(1, Capability.TAKE_EVENTS)
def take_events(client: Client, _a: int, _b: int, _c: int) -> None:
    """Take the events."""
    client.cache.take_events()


ACTIONS |= NONSENSE | WIDE | RARE | CORNER | PARTIAL | WRONG

UNDRAWN = EXACT | EXACT_STORES | LONG | WAITS | OF_KEYS | ADDED | STATES | STORES
"""Actions that are not drawn as the others are."""


def act(client: Client, name: str, a: int, b: int, c: int) -> CacheError | None:
    """Do one action, unless the cache lacks what it needs; returns the refusal, if there was one.

    Raises: KeyError: there is no action of this name.
    """
    kind = ACTIONS.get(name) or UNDRAWN[name]
    if not kind.needs <= client.can or (kind.host and not client.cache.config.host_tier):
        return None
    try:
        kind.do(client, a, b, c)
    except CacheError as refusal:
        return refusal
    return None


def _pressure(client: Client, a: int, b: int, c: int) -> Counts:
    return Counts(a % 4, b % 4 * (SWA in client.components), c % 2 * (MAMBA in client.components))


def _fetch(client: Client, key: Key, b: int, c: int) -> None:
    """Insert stamped bytes of a key into the host tier, from some page on."""
    client.keys.append(key)
    start = b % (len(key) + 1)
    client.fetch(key, start, swa_pages=c % (len(key) - start + 1))
