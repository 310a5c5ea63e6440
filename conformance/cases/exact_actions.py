"""Exact actions: operations on a key that the action itself encodes.

A drawn action picks its key among those that were used before. An exploration has to try every
possible key once, whatever was done before; so its actions carry their key: `a` is the number of
pages, and page `i` consists of the letter `b // 4**i % 4` only. `c` is `namespace + 8 *
(start_pages + 16 * bare_pages)`: an insert begins at page `start_pages`, and its first `bare_pages`
pages have no window data.

An exact action neither evicts nor locks first: the cache may refuse it for lack of slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import ActionKind, Client, ClientRequest, enter
from kvcanon.conformance.cases.prompts import LONGEST_PAGES, page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import MAMBA, SWA, Counts, Key

LETTERS = 4
"""The number of different pages that may follow a prefix."""

_NAMESPACES = 8
_PAGES = 16

EXACT: dict[str, ActionKind] = {}
"""Every exact action by name."""


def exact_action(
    name: str,
    letters: Sequence[int],
    namespace: int = 0,
    *,
    start_pages: int = 0,
    bare_pages: int = 0,
) -> Action:
    """Enter an action on a key, which is given by the letter of each of its pages."""
    b = sum(letter * LETTERS**page for page, letter in enumerate(letters))
    c = namespace + _NAMESPACES * (start_pages + _PAGES * bare_pages)
    return Action(name, len(letters), b, c)


@enter(EXACT, 0)
def match_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Match a key."""
    client.cache.match(_key(client, a, b, c))


@enter(EXACT, 0)
def lock_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Lock a key without a request."""
    client.receipts.append(client.cache.lock(_key(client, a, b, c)))


@enter(EXACT, 0)
def allocate_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Start a request: allocate the slots of a key's new pages, and write them."""
    _compute(client, a, b, c)


@enter(EXACT, 0)
def insert_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request: allocate, write and insert; free the slots if the insert is refused."""
    request = _compute(client, a, b, c)
    try:
        client.insert(request, priority=0)
    except CacheError:
        client.abort(request)
        raise


@enter(EXACT, 0, Capability.LOAD_BACK, host=True)
def load_back_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Load a key back to the device."""
    client.cache.load_back(_key(client, a, b, c))


@enter(EXACT, 0, Capability.INSERT_HOST, host=True)
def insert_host_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Insert pages of a key on the host, as if fetched from storage."""
    key = _key(client, a, b, c)
    start, windowed = _handed_over(key, c)
    client.fetch(key, start, windowed)


def _compute(client: Client, a: int, b: int, c: int) -> ClientRequest:
    key = _key(client, a, b, c)
    start, windowed = _handed_over(key, c)
    wanted = Counts(
        len(key) - start,
        windowed if SWA in client.components else 0,
        int(MAMBA in client.components and len(key) > 0),
    )
    slots = client.cache.allocate(wanted)
    client.write(key, slots)
    request = ClientRequest(key, None, start, slots)
    client.requests.append(request)
    return request


def _key(client: Client, a: int, b: int, c: int) -> Key:
    config = client.cache.config
    pages = tuple(
        page_of(b // LETTERS**page % LETTERS, config.page_size, bigram=config.bigram)
        for page in range(a % (LONGEST_PAGES + 1))
    )
    return Key(pages, client.namespaces[c % _NAMESPACES % len(client.namespaces)])


def _handed_over(key: Key, c: int) -> tuple[int, int]:
    """Return the first page that is inserted, and how many pages have window data."""
    start = c // _NAMESPACES % _PAGES % (len(key) + 1)
    bare = c // (_NAMESPACES * _PAGES) % _PAGES
    return start, max(0, len(key) - start - bare)
