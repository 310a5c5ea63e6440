"""The prompts, identities and bytes of a case: which pages there are, and what is in them.

Prompts share prefixes, as requests do. Every content is drawn from the names that it depends on, so
that it shows whose it is: no two names and no two versions have the same bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any

from attrs import evolve

from kvcanon.conformance.stores.case import StoreCase
from kvcanon.spec.stores.pages import PageKey, StoreIdentity, identity_digest, page_digest
from kvcanon.spec.types import Namespace

PAGES = 8
"""Pages of a prompt, or more in a case that stretches them."""
POOLS = ("kv", "index")
FORKS = ((0, 0), (0, 3), (0, 6), (1, 5))
"""For each prompt the prompt that it shares its first pages with, and how many."""
NAMESPACES = (
    Namespace(),
    Namespace(cache_salt="tenant"),
    Namespace(lora="tenant"),
    Namespace(extra_key="a", cache_salt="bc"),
    Namespace(extra_key="ab", cache_salt="c"),
)
"""Namespaces: prompts from the number of forks on are the first one again, in each of these."""
PROMPTS = len(FORKS) + len(NAMESPACES) - 1
OTHER_VALUES: Mapping[str, Any] = {
    "model": "model-2",
    "weights": "weights-2",
    "config": "rope-2",
    "kv_dtype": "bfloat16",
    "layout": "page_first",
    "page_size": 8,
    "rank": 1,
    "ranks": 2,
}
SMALL_POOL = 8
"""The second pool has this part of the bytes of the first."""


def identity_of(case: StoreCase, writer: int) -> StoreIdentity:
    """The identity with which a writer opens the store."""
    base = StoreIdentity(pools=POOLS[: case.pools])
    if not case.other or writer != case.writers - 1 or case.writers == 1:
        return base
    if case.other == "kv_dtype" and case.page_bytes % 4 == 0:
        return evolve(base, kv_dtype="float32")
    return evolve(base, **{case.other: OTHER_VALUES[case.other]})


def page_key(prompt: int, page: int, page_size: int, pool: str = "kv") -> PageKey:
    """A page of a prompt, by its number, from 0 on."""
    number = prompt % PROMPTS
    space = Namespace() if number < len(FORKS) else NAMESPACES[number - len(FORKS) + 1]
    chosen = number if number < len(FORKS) else 0
    return PageKey(_tokens(chosen, (page + 1) * page_size), space, pool)


@cache
def _tokens(prompt: int, count: int) -> tuple[int, ...]:
    """The first tokens of a prompt; forks are at pages of four tokens."""
    from_prompt, pages = FORKS[prompt]
    shared = _tokens(from_prompt, min(count, pages * 4)) if pages else ()
    return shared + tuple(1000 * (prompt + 1) + at for at in range(len(shared), count))


def keys_of(
    identity: StoreIdentity, prompt: int, first: int, count: int, *, pools: int = 0, stretch: int
) -> tuple[PageKey, ...]:
    """Consecutive pages of a prompt in all pools, or in one; each pick stands for `stretch`."""
    chosen = identity.pools if not pools else (identity.pools[(pools - 1) % len(identity.pools)],)
    begin = first % PAGES
    end = min(PAGES, begin + 1 + (count - 1) % PAGES)
    return tuple(
        page_key(prompt, page, identity.page_size, pool)
        for page in range(begin * stretch, end * stretch)
        for pool in chosen
    )


def size_of(case: StoreCase, identity: StoreIdentity, pool: str) -> int:
    """The bytes of a page."""
    width = 2 if identity.kv_dtype == "float32" else 1
    size = case.page_bytes * width * identity.page_size // 4
    return size if pool == POOLS[0] else max(16, size // SMALL_POOL)


@cache
def content_of(identity: StoreIdentity, key: PageKey, size: int, version: int) -> bytes:
    """The bytes of a page."""
    seed = identity_digest(identity) + page_digest(key, identity.page_size)
    return hashlib.shake_128(seed + bytes([version])).digest(size)
