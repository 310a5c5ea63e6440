"""Prompts: new keys that share beginnings with known ones, picked by numbers.

Most are short, of an alphabet of three tokens, since prompts without shared prefixes test little.
`long_prompt` makes longer ones, as the pools allow, and `twin` changes the high bits of a token, so
that tokens of the whole range are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, GPU, SWA, Key, Namespace, Page, Unit, make_key

ALPHABET = 3
"""The different tokens of most prompts."""
LONGEST_PAGES, MOST_ADDED_PAGES = 12, 5
"""The most pages of a short prompt, and the most that it adds, beside two tokens."""
LONGEST_LONG_TOKENS = 1 << 12
LONGEST_LONG_PAGES = 1 << 8
"""The most tokens, and the most pages, of a long prompt."""
LONG_PERIOD = 11
"""After so many tokens those of a long prompt repeat: no page size is a multiple of it."""

BRANCHES = 3
"""The most keys that branch off one at a time."""
FIRST_BRANCH = ALPHABET
"""The first letter of branches, which no other prompt has."""
HIGH_BITS = (1 << 16, 1 << 24, 1 << 31, (1 << 32) - 1)
"""The bits in which a token differs from its twin's."""


def page_of(letter: int, page_size: int, *, bigram: bool) -> Page:
    """Return the page of one letter."""
    return ((letter, letter) if bigram else letter,) * page_size


def known_key(keys: Sequence[Key], a: int, b: int) -> Key:
    """Return a key that was used before, or a prefix of it; the empty key at the start."""
    if not keys:
        return Key(())
    key = keys[-1 - a % len(keys)]
    return key if b % 3 else key.prefix(len(key) - b % (len(key) + 1))


def new_prompt(
    keys: Sequence[Key],
    namespaces: Sequence[Namespace],
    config: CacheConfig,
    picks: tuple[int, int, int],
) -> Key:
    """Return a new prompt: some pages of a known key, and a few tokens of a tiny alphabet."""
    a, b, c = picks
    namespace = _namespace(namespaces, c)
    added_pages = c % (MOST_ADDED_PAGES + 1)
    tokens = [(b >> 2 * at) % ALPHABET for at in range(1 + added_pages * config.page_size)]
    made = make_key([*tokens, 0], config.page_size, namespace, bigram=config.bigram)
    known = [key for key in keys if key.namespace == namespace]
    if not known:
        # The same tokens in another namespace are different pages.
        elsewhere = keys[a % len(keys)].pages if keys and b % 2 else ()
        return Key((*elsewhere, *made.pages)[:LONGEST_PAGES], namespace)
    base = known[a % len(known)]
    shared = base if b % 2 else base.prefix(b % (len(base) + 1))
    return Key((*shared.pages, *made.pages)[:LONGEST_PAGES], namespace)


def long_prompt(
    keys: Sequence[Key],
    namespaces: Sequence[Namespace],
    config: CacheConfig,
    picks: tuple[int, int, int],
) -> Key:
    """Return a new prompt of up to half a pool: some pages of a known key, and many new ones."""
    a, b, c = picks
    namespace = _namespace(namespaces, c)
    known = [key for key in keys if key.namespace == namespace]
    base = known[a % len(known)] if known and b % 4 else Key((), namespace)
    shared = base.prefix(len(base) - a % (len(base) + 1) // 2)
    longest = longest_pages(config)
    pages = 1 + b % max(1, longest >> c % 4)
    tokens = [(b >> at % LONG_PERIOD) % ALPHABET for at in range(pages * config.page_size)]
    made = make_key([*tokens, 0], config.page_size, namespace, bigram=config.bigram)
    return Key((*shared.pages, *made.pages)[:longest], namespace)


def _namespace(namespaces: Sequence[Namespace], c: int) -> Namespace:
    """Pick a namespace: the first for half of all prompts, so that these share prefixes."""
    picked = c % (2 * len(namespaces)) - len(namespaces)
    return namespaces[max(0, picked)]


def longest_pages(config: CacheConfig) -> int:
    """Return the pages of the longest prompt: half of the smaller pool, within a limit."""
    slots = config.capacity(FULL, GPU)
    if SWA in config.components:
        slots = min(slots, config.capacity(SWA, GPU))
    return max(1, min(slots // 2, LONGEST_LONG_PAGES, LONGEST_LONG_TOKENS // config.page_size))


def twin(key: Key, b: int, c: int) -> Key:
    """Return the key with other high bits in one token; the twin of a twin is the key."""
    if not len(key):
        return key
    at, bits = c % len(key), HIGH_BITS[b % len(HIGH_BITS)]
    page = list(key.pages[at])
    place = b // len(HIGH_BITS) % len(page)
    page[place] = _with_other_bits(page[place], bits)
    pages: tuple[Page, ...] = (*key.pages[:at], tuple(page), *key.pages[at + 1 :])
    return Key(pages, key.namespace)


def branches_of(key: Key, config: CacheConfig, b: int, c: int) -> list[Key]:
    """Return keys that branch off a known one at three points, each with a page of its own."""
    first = FIRST_BRANCH + c % 2 * BRANCHES
    branches = []
    for letter, at in enumerate(points_of(key, b, c), first):
        page = page_of(letter, config.page_size, bigram=config.bigram)
        branches.append(Key((*key.pages[:at], page), key.namespace))
    return branches


def points_of(key: Key, b: int, c: int) -> list[int]:
    """Return up to three positions in a key: from the front, the end, or the middle."""
    places = range(1, len(key))
    if not places:
        return []
    step = 1 + c % 7
    found = dict.fromkeys(places[(b + at * step) % len(places)] for at in range(BRANCHES))
    points = sorted(found)
    orders = (points, points[::-1], list(found))
    return orders[b % len(orders)]


def _with_other_bits(unit: Unit, bits: int) -> Unit:
    return unit ^ bits if isinstance(unit, int) else (unit[0], unit[1] ^ bits)
