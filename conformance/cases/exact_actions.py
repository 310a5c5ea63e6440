"""Exact actions: operations on a key that the action itself encodes.

A drawn action picks its key among those that were used before. An exploration has to try every
possible key once, whatever was done before; so its actions carry their key: `a` is the number of
pages, and page `i` consists of the letter `b // 4**i % 4` only. `c` is `namespace + 8 *
(start_pages + 16 * bare_pages)`: an insert begins at page `start_pages`, and its first `bare_pages`
pages have no window data.

Others carry numbers: how many slots are asked for, or which request is meant. To reduce a case, its
actions are replaced by exact ones that make one call each (`check/single_calls.py`).

An exact action neither evicts nor locks first: the cache may refuse it for lack of slots.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.conformance.cases.case import Action
from kvcanon.conformance.cases.client import ActionKind, Client, ClientRequest, enter
from kvcanon.conformance.cases.prompts import LONGEST_PAGES, page_of
from kvcanon.conformance.protocol.adapter import Capability
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.types import MAMBA, SWA, Counts, Key, Namespace, Slots

LETTERS = 4
"""The number of different pages that may follow a prefix."""

MOST_NAMESPACES = 8
"""How many namespaces an action can name."""
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
    c = namespace + MOST_NAMESPACES * (start_pages + _PAGES * bare_pages)
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


# Single calls, of which cases are reduced.


@enter(EXACT, 0)
def know_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Call nothing, and add a key to those that other actions pick."""
    client.keys.append(_key(client, a, b, c))


@enter(EXACT, 0)
def hit_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Insert a key without slots; the priority is `c // 8`."""
    key = _key(client, a, b, c)
    client.cache.insert(key, len(key), Slots(), priority=c // MOST_NAMESPACES)


@enter(EXACT, 0)
def finish_counted(client: Client, a: int, b: int, c: int) -> None:
    """Insert what request `a` computed, of which `b` pages are counted, with priority `c`."""
    if client.requests:
        request = client.requests[a % len(client.requests)]
        request.counted_pages = b
        client.insert(request, priority=c)


@enter(EXACT, 0)
def extend_exactly(_client: Client, _a: int, _b: int, _c: int) -> None:
    """Call nothing; extends request `c // 8` of a cache that is used by requests."""


@enter(EXACT, 0)
def hold_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Allocate `a` full slots, `b` window slots and `c` mamba states for no request."""
    client.blocks.append(client.cache.allocate(Counts(a, b, c)))


@enter(EXACT, 0)
def free_held(client: Client, a: int, _b: int, _c: int) -> None:
    """Free slots that no request holds."""
    if client.blocks:
        client.cache.free(client.blocks.pop(a % len(client.blocks)))


@enter(EXACT, 0, Capability.EVICT)
def evict_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Evict `a` full slots, `b` window slots and `c` mamba states from the device."""
    client.cache.evict(Counts(a, b, c))


@enter(EXACT, 0, Capability.EVICT_HOST, host=True)
def evict_host_exactly(client: Client, a: int, b: int, c: int) -> None:
    """Evict `a` full slots, `b` window slots and `c` mamba states from the host."""
    client.cache.evict_host(Counts(a, b, c))


@enter(EXACT, 0, Capability.LOAD_BACK, host=True)
def load_back_within(client: Client, a: int, b: int, c: int) -> None:
    """Load a key back to the device, with a quota of `c // 8` pages."""
    client.cache.load_back(_key(client, a, b, c), quota_pages=c // MOST_NAMESPACES)


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
    return exact_key(client.cache.config, client.namespaces, (a, b, c))


def exact_key(
    config: CacheConfig, namespaces: Sequence[Namespace], picks: tuple[int, int, int]
) -> Key:
    """The key of an exact action with these picks."""
    a, b, c = picks
    pages = tuple(
        page_of(b // LETTERS**page % LETTERS, config.page_size, bigram=config.bigram)
        for page in range(a % (LONGEST_PAGES + 1))
    )
    return Key(pages, namespaces[c % MOST_NAMESPACES % len(namespaces)])


def _handed_over(key: Key, c: int) -> tuple[int, int]:
    """Return the first page that is inserted, and how many pages have window data."""
    start = c // MOST_NAMESPACES % _PAGES % (len(key) + 1)
    bare = c // (MOST_NAMESPACES * _PAGES) % _PAGES
    return start, max(0, len(key) - start - bare)
