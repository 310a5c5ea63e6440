"""Keys of `kvcanon.spec`, whose pages are tuples of numbers, from the words of the fast cache."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Key, Namespace, Page


def key_of(config: CacheConfig, words: bytes, namespace: Namespace) -> Key:
    """The key of whole pages of words: uint32, one a token, or two a bigram."""
    return Key(pages_of(words, config.page_size, config.bigram), namespace, checked=True)


@lru_cache(maxsize=1 << 14)
def pages_of(words: bytes, page_size: int, bigram: bool) -> tuple[Page, ...]:
    """Pages of units; kept, because a snapshot meets the same ones again and again."""
    numbers = np.frombuffer(words, dtype=np.uint32)
    if bigram:
        pairs = numbers.reshape(-1, page_size, 2).tolist()
        return tuple(tuple((first, second) for first, second in page) for page in pairs)
    return tuple(map(tuple, numbers.reshape(-1, page_size).tolist()))
