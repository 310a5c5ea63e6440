"""Prompts: new keys that share beginnings with known ones, picked by numbers.

What readers get wrong: the alphabet is tiny and the keys are short, on purpose. Prompts that share
nothing ask a cache nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Key, Namespace, make_key

LONGEST_PAGES = 12


def known_key(keys: Sequence[Key], a: int, b: int) -> Key:
    """A key that was used before, or a prefix of it; the empty key at the start."""
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
    """A new prompt: some pages of a known key, and a few tokens of a tiny alphabet."""
    a, b, c = picks
    # Most prompts are of the default namespace, so that they share prefixes.
    namespace = namespaces[max(0, c % (2 * len(namespaces)) - len(namespaces))]
    tail = [(b >> shift) % 3 for shift in range(0, 2 * (1 + c % 6 * config.page_size), 2)]
    made = make_key([*tail, 0], config.page_size, namespace, bigram=config.bigram)
    known = [key for key in keys if key.namespace == namespace]
    if not known:
        # The same tokens in another namespace are other pages.
        elsewhere = keys[a % len(keys)].pages if keys and b % 2 else ()
        return Key((*elsewhere, *made.pages)[:LONGEST_PAGES], namespace)
    base = known[a % len(known)]
    shared = base if b % 2 else base.prefix(b % (len(base) + 1))
    return Key((*shared.pages, *made.pages)[:LONGEST_PAGES], namespace)
