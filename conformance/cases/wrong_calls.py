"""Wrong calls, many in a row: each must be refused, and none may change anything.

The actions of `invalid_calls` make one wrong call of dozens that are possible. So they draw a
single reason for a refusal seldom. These make several, beginning at one that is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial

from attrs import evolve

from kvcanon.conformance.cases.client import ActionKind, Client, ClientRequest, enter
from kvcanon.conformance.cases.invalid_calls import Call, misfits, wrong_calls, wrong_slot
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.transfer import Completion
from kvcanon.spec.types import Key, Page, Slots, make_key

WRONG: dict[str, ActionKind] = {}
"""The actions that are drawn as the others are."""
OF_KEYS: dict[str, ActionKind] = {}
"""What is asked of caches that check the pages of keys, and offer it."""

IN_A_ROW, HANDED_OVER = 6, 5
"""How many wrong calls an action makes."""
LETTER = 96
"""The letter of the keys whose copies are settled wrongly."""


@enter(WRONG, 2)
def ask_in_a_row(client: Client, a: int, b: int, c: int) -> None:
    """Call several times, each time with an argument that is wrong."""
    wrong = wrong_calls(client, client.known(a, b), c)
    for at in range(IN_A_ROW):
        with suppress(CacheError):
            wrong[(a + b + at) % len(wrong)]()


@enter(WRONG, 2)
def hand_over_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Insert and free what a request computed, several times, with slots that are not right."""
    for pick in range(2 - len(client.requests)):
        key = client.prompt(a + pick, b, c)
        client.keys.append(key)
        client.start(key, client.cache.match(key).device_pages, counted_pages=0)
    request = client.requests[a % len(client.requests)]
    wrong = [*misfits(client, request), *_with_wrong_slots(client, request, c)]
    for at in range(HANDED_OVER):
        try:
            wrong[(b + at) % len(wrong)]()
        except CacheError:
            continue
        # Served, by a cache that does not check this: then the cache has the slots.
        client.end(request)
        return


def _with_wrong_slots(client: Client, request: ClientRequest, c: int) -> Iterator[Call]:
    """Frees and inserts of a request's slots with a wrong one, of each component."""
    cache, key, start = client.cache, request.key, request.start_pages
    for component, held in request.slots:
        if component not in client.components:
            continue
        wrong = wrong_slot(client, component, held, c)
        yield partial(cache.free, Slots(**{component.value: (*held, wrong)}))
        if held:
            others = held[:-1]
            wrong = wrong_slot(client, component, others, c)
            slots = evolve(request.slots, **{component.value: (*others, wrong)})
            yield partial(cache.insert, key, start, slots)


@enter(WRONG, 2, Capability.SETTLE, Capability.ARRIVED, host=True)
def settle_each_wrongly(client: Client, a: int, b: int, c: int) -> None:
    """Begin two backups, let them end, perhaps fail, and settle them in each wrong way."""
    config = client.cache.config
    page = page_of(LETTER + a % 4, config.page_size, bigram=config.bigram)
    both = Key((page, page))
    for part in (both.prefix(1), both):
        client.keys.append(part)
        client.put(part)
    client.hit(both, priority=0)
    copies = client.copies
    if copies is None:
        return
    flying = list(copies.open_transfer_ids)
    for at, transfer_id in enumerate(flying[: len(flying) - b % 2]):
        decide = copies.fail if (at + c) % 2 else copies.acknowledge
        decide(transfer_id)
    arrived = client.cache.arrived()
    for wrong in _wrong_settlements(client, arrived, c):
        try:
            client.cache.settle(wrong)
        except CacheError:
            continue
        return  # After none of its direction, a copy is named rightly.
    client.cache.settle(arrived)


def _wrong_settlements(
    client: Client, arrived: Sequence[Completion], c: int
) -> Iterator[Sequence[Completion]]:
    yield (Completion(1 << 20, ok=bool(c % 2)),)
    for each in arrived[:1]:
        yield (each, each)
    if not client.on_ranks:  # The others would settle what failed on one of them alone.
        for each in arrived:
            if not each.ok:
                yield tuple([evolve(one, ok=True) for one in arrived])
                break
    for flying in () if client.copies is None else client.copies.open_transfer_ids[:1]:
        yield (*arrived, Completion(flying, ok=True))
    yield arrived[1:] or (Completion(1 << 21, ok=True),)


@enter(OF_KEYS, 1)
def ask_of_other_keys(client: Client, a: int, b: int, c: int) -> None:
    """Call with keys whose pages are of another size, or whose units are of another kind."""
    cache, can, namespace = client.cache, client.can, client.known(a, b).namespace
    host = cache.config.host_tier
    for key in _other_keys(client, b, c):
        other = evolve(key, namespace=namespace)
        calls: list[Call] = [
            partial(cache.match, other),
            partial(cache.lock, other),
            partial(cache.insert, other, len(other), Slots()),
        ]
        if host and Capability.LOAD_BACK in can:
            calls.append(partial(cache.load_back, other))
        if host and Capability.INSERT_HOST in can:
            calls.append(partial(cache.insert_host, other, len(other), HostPayload()))
        with suppress(CacheError):
            calls[(a + b) % len(calls)]()


def _other_keys(client: Client, b: int, c: int) -> Iterator[Key]:
    """Keys of another cut, of the other kind of units, and with tokens that are none."""
    config, letter = client.cache.config, b % 3
    size, bigram = config.page_size, config.bigram
    right = page_of(letter, size, bigram=bigram)
    yield Key((right, page_of(letter, size + 1, bigram=bigram)))
    yield Key((right[: size - 1] or right * 2, right))
    yield Key((right, page_of(letter, size, bigram=not bigram)))
    yield make_key([letter] * (2 * size + 2), size, bigram=not bigram)
    yield make_key([letter] * (2 * size + 2), size + 1, bigram=bigram)
    for token in (-1, 1 << 32):
        page: Page = ((token, letter) if bigram else token,) * size
        yield Key((right, page) if c % 2 else (page,))
