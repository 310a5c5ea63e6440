"""Added actions: drawn into small cases besides the others, so that the others stay as they are.

Each makes a situation that the other actions reach too seldom: two requests that compute the same
pages at once, several mamba states in one call, a full event log that is cleared, copies that are
polled before they end, and calls that must be refused for reasons which are rare by chance.

An action is only drawn for a configuration in which it does something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from random import Random

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import PICKS, Action
from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.invalid_calls import Call, wrong_fetches, wrong_slot
from kvcanon.conformance.cases.partial_actions import evict_above_a_host_leaf
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.cases.wait_actions import break_off_load, can_break_off
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError, OutOfSlots
from kvcanon.spec.operations import Receipt
from kvcanon.spec.types import GPU, MAMBA, SWA, Counts, Key, Page, Slots, WritePolicy

ADDED: dict[str, ActionKind] = {}
"""Every added action by name."""

TOGETHER, STATES, LOGGED, POLLED, ODD = range(400, 480, 16)
"""The first letter of the keys of each action."""
LOG, MOST_LOGGED = 12, 16
"""The longest event log that is filled, and the most pages that are inserted for it."""


UNISSUED = 1 << 20
"""A receipt's number that no case reaches."""


@enter(ADDED, 0)
def compute_twice(client: Client, a: int, b: int, c: int) -> None:
    """Run two requests for one prompt at once: each computes its pages, and inserts them."""
    key, longer = prompts_together(client.prompt(a, b, c), client.cache.config, b)
    client.keys += [key, longer]
    start = client.cache.match(key).device_pages
    requests = [client.start(each, start, counted_pages=0) for each in (key, longer)]
    for request in requests if c % 2 else reversed(requests):
        client.insert(request, priority=0)
    client.cache.match(longer)


def prompts_together(known: Key, config: CacheConfig, b: int) -> tuple[Key, Key]:
    """Return two prompts of requests that compute the same pages; the second may be longer."""
    page = _page(config, TOGETHER + b // 4 % 4)
    key = Key((*known.pages[: b % 4], page), known.namespace)
    return key, key if b // 16 % 3 else Key((*key.pages, page), known.namespace)


@enter(ADDED, 0)
def take_states(client: Client, a: int, b: int, c: int) -> None:
    """Insert pages with a mamba state each, and allocate two states or more at once."""
    config = client.cache.config
    most = config.capacity(MAMBA, GPU)
    if MAMBA not in client.components or most < 2:
        return
    for at in range(min(most, 2 + b % 3)):
        key = Key((_page(config, STATES + at),))
        client.keys.append(key)
        with suppress(CacheError):  # What is locked may leave no slots.
            client.put(key)
    wanted = Counts(mamba=2 + a % (most - 1))
    try:
        slots = client.cache.allocate(wanted)
    except OutOfSlots:
        if Capability.EVICT not in client.can:
            raise
        client.cache.evict(wanted)
        slots = client.cache.allocate(wanted)
    at = c % (len(slots.mamba) + 1)
    client.cache.free(Slots(mamba=slots.mamba[at:]))
    client.cache.free(Slots(mamba=slots.mamba[:at]))


@enter(ADDED, 0, Capability.RESET, Capability.TAKE_EVENTS)
def clear_a_full_log(client: Client, a: int, _b: int, c: int) -> None:
    """Insert more pages than events may wait, and reset."""
    config = client.cache.config
    for at in range(min(MOST_LOGGED, config.max_pending_events + 1)):
        key = Key((_page(config, LOGGED + (a + at) % 8),) * (1 + at // 8))
        client.keys.append(key)
        with suppress(CacheError):  # What is locked may leave no slots.
            client.put(key)
    for receipt in list(client.receipts):
        client.unlock(receipt)
    for request in client.requests:
        client.let_go(request)
    client.settle()
    client.cache.reset()
    if c % 2:
        client.cache.take_events()


@enter(ADDED, 0, Capability.POLL, host=True)
def poll_early(client: Client, a: int, b: int, c: int) -> None:
    """Begin backups or loads, and poll twice, while one has ended at most."""
    config = client.cache.config
    keys = [Key((_page(config, POLLED + (a + at) % 8),)) for at in range(2)]
    client.keys += keys
    for key in keys:
        with suppress(CacheError):  # What is locked may leave no slots.
            client.put(key)
            client.hit(key, priority=0)
    if {Capability.LOAD_BACK, Capability.INSERT_HOST} <= client.can:
        fetched = Key((_page(config, POLLED + b % 8),) * 2)
        client.keys.append(fetched)
        with suppress(CacheError):  # The host may have no free slots.
            client.fetch(fetched, 0, swa_pages=2)
        with suppress(CacheError):
            client.cache.load_back(fetched)
    copies = client.copies
    if copies is not None and copies.open_transfer_ids and c % 2:
        copies.acknowledge(copies.open_transfer_ids[0])
    client.cache.poll()
    client.cache.poll()


@enter(ADDED, 0, host=True)
def unlock_copy(client: Client, a: int, b: int, _c: int) -> None:
    """Unlock with numbers that may be those of the lock of a copy in flight."""
    # A number that a receipt of ours has is passed over for one that none has: caches that number
    # copies and receipts otherwise get equally many calls.
    copies = client.copies
    if copies is None or not copies.open_transfer_ids or not client.keys:
        return
    transfer_id = copies.open_transfer_ids[a % len(copies.open_transfer_ids)]
    key = client.known(b, 0)
    of_requests = [each.receipt for each in client.requests if each.receipt is not None]
    issued = [*client.receipts, *client.spent, *of_requests]
    for near in (-1, 0, 1):
        receipt = Receipt(transfer_id + near, key)
        if receipt in issued:
            receipt = evolve(receipt, receipt_id=UNISSUED)
        with suppress(CacheError):
            client.cache.unlock(receipt)


@enter(ADDED, 0)
def hand_over_oddly(client: Client, a: int, b: int, c: int) -> None:
    """Insert and free held slots wrongly: two states, a slot twice, wrong pairs."""
    windowed, stated = (int(each in client.components) for each in (SWA, MAMBA))
    slots = client.cache.allocate(Counts(3, windowed, 2 * stated))
    client.blocks.append(slots)
    key = Key((_page(client.cache.config, ODD + a % 8),) * 3)
    calls = list(_odd_calls(client, key, slots, c))
    for at in range(len(calls)):
        try:
            calls[(b + at) % len(calls)]()
        except CacheError:
            continue
        # Served, by a cache that does not check this: then the cache has the slots.
        client.blocks.remove(slots)
        return
    client.blocks.remove(slots)
    client.cache.free(slots)


def _odd_calls(client: Client, key: Key, slots: Slots, c: int) -> Iterator[Call]:
    """Wrong calls on the slots of three pages, of which the last may have a window slot."""
    cache, (first, second, last) = client.cache, slots.full
    yield partial(cache.free, Slots(full=(first, last, first)))
    if slots.mamba:
        state = slots.mamba[0]
        yield partial(cache.free, Slots(mamba=(state, wrong_slot(client, MAMBA, (), 2 * c))))
        yield partial(cache.free, Slots(mamba=(state, state)))
        yield partial(cache.insert, key, 0, slots)
    if slots.swa:
        two = key.prefix(2)
        yield partial(cache.insert, two, 0, Slots((first, second), slots.swa))
        yield partial(cache.insert, two, 0, Slots((last, first), slots.swa))
        yield partial(cache.insert, two, 0, Slots((second, last), slots.swa * 2))


@enter(ADDED, 0, Capability.INSERT_HOST, host=True)
def fetch_wrongly(client: Client, a: int, b: int, _c: int) -> None:
    """Insert on the host, several times, what does not fit the pages or the cache."""
    for call in wrong_fetches(client, client.known(a, b)):
        with suppress(CacheError):
            call()


def _page(config: CacheConfig, letter: int) -> Page:
    return page_of(letter, config.page_size, bigram=config.bigram)


# How they are drawn.


@frozen
class _Drawn:
    """How often an action is drawn, and for which configurations."""

    share: float
    does_something: Callable[[CacheConfig], bool] = lambda _config: True


DRAWN = {
    compute_twice.__name__: _Drawn(1 / 6),
    take_states.__name__: _Drawn(1 / 6, lambda config: config.mamba),
    clear_a_full_log.__name__: _Drawn(
        1 / 3, lambda config: config.events and config.max_pending_events <= LOG
    ),
    poll_early.__name__: _Drawn(1 / 12, lambda config: config.host_tier),
    hand_over_oddly.__name__: _Drawn(
        1 / 6, lambda config: config.mamba or config.window_tokens is not None
    ),
    fetch_wrongly.__name__: _Drawn(1 / 8, lambda config: config.host_tier),
    break_off_load.__name__: _Drawn(1, can_break_off),
    evict_above_a_host_leaf.__name__: _Drawn(
        1 / 3,
        lambda config: config.write_policy is WritePolicy.WRITE_BACK and len(config.components) > 1,
    ),
    unlock_copy.__name__: _Drawn(1 / 4, lambda config: config.host_tier),
}
"""The share of the small cases with such a configuration that have each action once."""
BY_REQUESTS = (compute_twice.__name__,)
"""Those that request caches know."""


def with_added(
    random: Random, config: CacheConfig, actions: tuple[Action, ...], *, by_requests: bool
) -> tuple[Action, ...]:
    """The actions of a small case, with those among them that are drawn."""
    mixed = list(actions)
    for name, drawn in DRAWN.items():
        known = not by_requests or name in BY_REQUESTS
        if known and drawn.does_something(config) and random.random() < drawn.share:
            mixed.insert(random.randrange(len(mixed) + 1), _drawn_action(random, name))
    return tuple(mixed)


def with_early_polls(random: Random, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions of a case of ranks, with copies that are polled while some rank waits."""
    at = random.randrange(len(actions) + 1)
    return (*actions[:at], _drawn_action(random, poll_early.__name__), *actions[at:])


def _drawn_action(random: Random, name: str) -> Action:
    return Action(name, *(random.randrange(PICKS) for _ in range(3)))
