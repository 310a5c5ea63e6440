"""The door of the plain cache: what comes in is checked, and a refusal leaves all as it was."""

from __future__ import annotations

import pytest

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.types import Key, Page
from scenes import compute, new_cache, prompt, put, refused

MALFORMED: dict[str, tuple[Page, ...]] = {
    "other_page_size": ((1, 2, 3),),
    "ragged": ((1, 2), (3,)),
    "empty_page": ((1, 2), ()),
    "negative_token": ((1, 2), (3, -1)),
    "token_too_large": ((1, 2), (3, 1 << 32)),
    "bigrams": ((1, 2), ((2, 3), (3, 4))),
}


@pytest.mark.parametrize("pages", MALFORMED.values(), ids=MALFORMED)
def test_malformed_key_is_refused(pages: tuple[Page, ...]) -> None:
    """A key whose pages are not those of this cache gets in, or breaks the call half way."""
    cache, _ = new_cache(CacheConfig(page_size=2))
    put(cache, [1, 2])
    slots = compute(cache, prompt(cache, [5, 6, 7, 8]))
    key = Key(pages)
    for call in (
        lambda: cache.match(key),
        lambda: cache.lock(key),
        lambda: cache.insert(key, 0, slots),
        lambda: cache.load_back(key),
    ):
        with refused(cache, BadArgument, match="key"):
            call()


def test_malformed_bigram_key_is_refused() -> None:
    """Where keys are made of bigrams, one of tokens or of triples gets in."""
    cache, _ = new_cache(CacheConfig(page_size=2, bigram=True))
    triples: tuple[Page, ...] = (((1, 2), (2, 3, 4)),)  # type: ignore[assignment]
    for pages in (((1, 2),), (((1, 2), (2, 1 << 32)),), (((1, 2), 3),), triples):
        with refused(cache, BadArgument, match="bigrams"):
            cache.match(Key(pages))
