"""State actions: inserts that hand over mamba states at several pages of their key.

They are drawn besides all other actions, into cases with mamba states, for a cache that offers to
take such inserts (`Offer.states_within`); with any other cache they do nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

from kvcanon.conformance.cases.case import PICKS, Action
from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.invalid_calls import Call
from kvcanon.conformance.cases.prompts import page_of
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import GPU, MAMBA, SWA, Counts, Key, Slots

STATES: dict[str, ActionKind] = {}
"""Every state action by name."""

PARTED, ODD = 480, 496
"""The first letter of the pages at which prompts part, and of keys of wrong calls."""
MOST_STATES = 4
"""The most states that one insert hands over."""


@enter(STATES, 0)
def serve_in_chunks(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request that hands over the states at a grid of pages and where its key parts."""
    if _takes_states(client):
        key = client.known(a, 1) if c % 3 == 0 and client.keys else client.prompt(a, b, c)
        _serve(client, key, 1 + b % 3, cached_too=c % 4 == 0)


@enter(STATES, 0)
def part_from_cached(client: Client, a: int, b: int, c: int) -> None:
    """Serve two prompts that share a cached beginning, with a state where they part."""
    if not _takes_states(client) or not client.keys:
        return
    known = client.keys[a % len(client.keys)]
    shared = known.prefix(min(len(known), 1 + b % 6))
    for letter in (PARTED + c % 3, PARTED + 3 + c % 3):
        page = page_of(letter, client.cache.config.page_size, bigram=client.cache.config.bigram)
        _serve(client, Key((*shared.pages, page), shared.namespace), len(shared) + 1)


@enter(STATES, 0)
def misplace_states(client: Client, a: int, b: int, _c: int) -> None:
    """Insert states at pages that the key lacks, out of order, twice, or of another number."""
    if not _takes_states(client) or client.cache.config.capacity(MAMBA, GPU) < 2:
        return
    config = client.cache.config
    page = page_of(ODD + a % 8, config.page_size, bigram=config.bigram)
    key = Key((page,) * 2)
    slots = client.take(key, Counts(2, 2 * (SWA in client.components), 2), (1, 2))
    calls = list(_wrong_inserts(client, key, slots))
    for at in range(len(calls)):
        try:
            calls[(b + at) % len(calls)]()
        except CacheError:
            continue
        return  # Served, by a cache that does not check this: then the cache has the slots.
    client.cache.free(slots)


def _wrong_inserts(client: Client, key: Key, slots: Slots) -> Iterator[Call]:
    for pages in ((1,), (1, 3), (0, 2), (2, 1), (2, 2), (-1, 2)):
        yield partial(client.cache.insert, key, 0, slots, state_pages=pages)


def _takes_states(client: Client) -> bool:
    """Whether the cache takes several states of an insert, and has states."""
    return client.states_within and MAMBA in client.components


def _serve(client: Client, key: Key, chunk: int, *, cached_too: bool = False) -> None:
    """Run a request; its states are at every `chunk` pages, where it parts, and at its end.

    Those in the cached prefix are handed over only if `cached_too` says so.
    """
    client.keys.append(key)
    found = client.cache.match(key)
    start, branch = found.device_pages, found.branch_pages
    first = 1 if cached_too else start + 1
    wanted = {*range(chunk, len(key), chunk), *(() if branch is None else (branch,)), len(key)}
    pages = sorted(page for page in wanted if first <= page <= len(key))
    most = min(MOST_STATES, client.cache.config.capacity(MAMBA, GPU))
    request = client.start(key, start, 0, tuple(pages[len(pages) - min(most, len(pages)) :]))
    try:
        client.insert(request, priority=0)
    except CacheError:
        # No other action goes on with states at several pages.
        client.abort(request)
        raise


def with_states(random: Random, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions of a small case with mamba states, with state actions among them."""
    mixed = list(actions)
    for name in STATES:
        for _ in range(random.choice((0, 0, 1, 2))):
            picks = [random.randrange(PICKS) for _ in range(3)]
            mixed.insert(random.randrange(len(mixed) + 1), Action(name, *picks))
    return tuple(mixed)
