"""Prompts: new keys that share beginnings with known ones, picked by numbers.

Most are short, of an alphabet of three tokens, since prompts without shared prefixes test little.
`long_prompt` makes longer ones, as the pools allow, and `twin` changes the high bits of a token, so
that tokens of the whole range are used.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import FULL, GPU, SWA, Key, Namespace, Page, Unit, make_key

LONGEST_PAGES = 12
LONGEST_LONG_TOKENS = 1 << 12
LONGEST_LONG_PAGES = 1 << 8
"""The most tokens, and the most pages, of a long prompt."""

FIRST_BRANCH = 3
"""The letters of branches, which no other prompt has."""
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
    # Most prompts are in the default namespace, so that they share prefixes.
    namespace = namespaces[max(0, c % (2 * len(namespaces)) - len(namespaces))]
    tail = [(b >> shift) % 3 for shift in range(0, 2 * (1 + c % 6 * config.page_size), 2)]
    made = make_key([*tail, 0], config.page_size, namespace, bigram=config.bigram)
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
    namespace = namespaces[max(0, c % (2 * len(namespaces)) - len(namespaces))]
    known = [key for key in keys if key.namespace == namespace]
    base = known[a % len(known)] if known and b % 4 else Key((), namespace)
    shared = base.prefix(len(base) - a % (len(base) + 1) // 2)
    longest = longest_pages(config)
    pages = 1 + b % max(1, longest >> c % 4)
    tokens = [(b >> at % 11) % 3 for at in range(pages * config.page_size)]
    made = make_key([*tokens, 0], config.page_size, namespace, bigram=config.bigram)
    return Key((*shared.pages, *made.pages)[:longest], namespace)


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
    letters = range(FIRST_BRANCH + c % 2 * 3, FIRST_BRANCH + c % 2 * 3 + 3)
    return [
        Key(
            (*key.pages[:at], page_of(letter, config.page_size, bigram=config.bigram)),
            key.namespace,
        )
        for at, letter in zip(points_of(key, b, c), letters, strict=False)
    ]


def points_of(key: Key, b: int, c: int) -> list[int]:
    """Return up to three positions in a key: from the front, the end, or the middle."""
    places = range(1, len(key))
    if not places:
        return []
    found = dict.fromkeys(places[(b + at * (1 + c % 7)) % len(places)] for at in range(3))
    points = sorted(found)
    return (points, points[::-1], list(found))[b % 3]


def _with_other_bits(unit: Unit, bits: int) -> Unit:
    return unit ^ bits if isinstance(unit, int) else (unit[0], unit[1] ^ bits)
