"""Helpers for tests of the plain cache: insert prompts, and see where their pages are.

A request writes the bytes of its page to every slot, so that a test can check them at its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import TypeVar

import pytest

from kvcanon.conformance.judge.judges import make_judged
from kvcanon.conformance.protocol.adapter import WatchedCopies
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.lab.variants.variant import varied
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import HostInserted, HostPayload, Inserted, Receipt
from kvcanon.spec.snapshot import NodeState
from kvcanon.spec.types import (
    DEFAULT_NAMESPACE,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Counts,
    Key,
    Medium,
    Namespace,
    Slot,
    Slots,
    Unit,
    make_key,
)
from kvcanon.spec.views import COLUMN, PageRow, path_of, rows_along

Refusal = TypeVar("Refusal", bound=CacheError)


def new_cache(config: CacheConfig) -> tuple[ReferenceCache, ManualEngine]:
    """A cache of this configuration, and its engine, which copies when the test says so."""
    engine = ManualEngine()
    return ReferenceCache(config, engine), engine


BOTH_CACHES = ("reference", "optimized")


def judged_cache(name: str, config: CacheConfig) -> tuple[Cache, WatchedCopies]:
    """A cache whose every step is judged by all laws, and the control of its copies.

    `name` is one of our caches, or a variant of the plain cache.
    """
    adapter = load_adapter(name) if name in BOTH_CACHES else varied(name, [name])
    subject, judge = make_judged(adapter, config)
    assert subject.copies is not None
    return judge, subject.copies


def prompt(cache: Cache, tokens: Sequence[int], namespace: Namespace = DEFAULT_NAMESPACE) -> Key:
    """The key of a prompt, divided into this cache's pages."""
    config = cache.config
    return make_key(tokens, config.page_size, namespace, bigram=config.bigram)


def page_bytes(key: Key, page: int, component: Component) -> bytes:
    """The bytes of a page, different for every prefix, namespace and component."""
    text = f"{key.namespace} {key.pages[: page + 1]} {component}"
    return sha256(text.encode()).digest()[:8]


def put(
    cache: Cache,
    tokens: Sequence[int],
    *,
    namespace: Namespace = DEFAULT_NAMESPACE,
    start_pages: int | None = None,
    window_pages: int | None = None,
    counted_pages: int = 0,
    priority: int = 0,
) -> Inserted:
    """Insert a prompt as an engine does: reuse the prefix hit, compute the rest, insert.

    The request computes from `start_pages` on (default: the end of the device prefix), and still
    owns the window data of its last `window_pages` (default: all computed pages).
    """
    key = prompt(cache, tokens, namespace)
    if start_pages is None:
        start_pages = cache.match(key).device_pages
    receipt = cache.lock(key.prefix(start_pages))
    slots = compute(cache, key, start_pages, window_pages)
    inserted = cache.insert(key, start_pages, slots, counted_pages=counted_pages, priority=priority)
    cache.unlock(receipt)
    return inserted


def compute(cache: Cache, key: Key, start_pages: int = 0, window_pages: int | None = None) -> Slots:
    """Allocate slots for the pages of a key from `start_pages` on, and fill them."""
    count = len(key) - start_pages
    components = cache.config.components
    window = count if SWA in components else 0
    slots = cache.allocate(Counts(count, window, int(MAMBA in components and count > 0)))
    for component, some in slots:
        for at, slot in enumerate(some, start=len(key) - len(some)):
            cache.write(component, slot, page_bytes(key, at, component))
    if window_pages is None or window_pages >= window:
        return slots
    gone = window - window_pages
    cache.free(Slots(swa=slots.swa[:gone]))
    return Slots(slots.full, slots.swa[gone:], slots.mamba)


def fetch(
    cache: Cache,
    tokens: Sequence[int],
    start_pages: int = 0,
    *,
    window_pages: int = 0,
    state: bool = False,
) -> HostInserted:
    """Prefetch a prompt's pages, the window data of the last ones, and its mamba state."""
    key = prompt(cache, tokens)
    last = len(key) - 1

    def some(component: Component, first: int) -> tuple[bytes, ...]:
        return tuple(page_bytes(key, at, component) for at in range(first, len(key)))

    payload = HostPayload(
        some(FULL, start_pages),
        some(SWA, len(key) - window_pages),
        some(MAMBA, last) if state else (),
    )
    return cache.insert_host(key, start_pages, payload)


def lock(cache: Cache, tokens: Sequence[int]) -> Receipt:
    """Lock a prompt that is completely in the tree."""
    return cache.lock(prompt(cache, tokens))


def cached_pages(
    cache: Cache, tokens: Sequence[int], namespace: Namespace = DEFAULT_NAMESPACE
) -> int:
    """The prefix hit of a prompt in pages."""
    return cache.match(prompt(cache, tokens, namespace)).prefix_pages


def shown(
    cache: Cache, tokens: Sequence[int], component: Component = FULL, medium: Medium = GPU
) -> str:
    """A prompt's data on a medium, one sign per page: `#` present, `~` pending, `.` absent."""

    def sign(row: PageRow) -> str:
        if row.slot(component, medium) is None:
            return "."
        pending = (row.loading if medium is GPU else row.backing)[COLUMN[component]]
        return "#" if pending is None else "~"

    key = prompt(cache, tokens)
    return "".join(sign(row) for row in rows_along(cache.snapshot(), key)).ljust(len(key), ".")


def slots_of(
    cache: Cache, tokens: Sequence[int], component: Component = FULL, medium: Medium = GPU
) -> list[Slot | None]:
    """The slot of each page of a prompt in a pool."""
    return [
        row.slot(component, medium) for row in rows_along(cache.snapshot(), prompt(cache, tokens))
    ]


def lock_refs(cache: Cache, tokens: Sequence[int], component: Component = FULL) -> list[int]:
    """The lock refs of each page of a prompt; those of a mamba state are at its page."""
    rows = rows_along(cache.snapshot(), prompt(cache, tokens))
    return [row.lock_refs[COLUMN[component]] or 0 for row in rows]


def node_of(cache: Cache, tokens: Sequence[int]) -> NodeState:
    """The node in which a prompt ends."""
    return path_of(cache.snapshot(), prompt(cache, tokens))[-1].node


def node_ends(cache: Cache, tokens: Sequence[int]) -> list[int]:
    """The ends of the nodes on a prompt's path, in pages."""
    state = cache.snapshot()
    return [state.end(stop.node) for stop in path_of(state, prompt(cache, tokens))]


def free_slots(cache: Cache, component: Component = FULL, medium: Medium = GPU) -> int:
    """How many slots of a pool are free."""
    return len(cache.snapshot().pools[component, medium].free)


def heard(cache: Cache, *prompts: Sequence[int]) -> list[tuple[str, Medium, Unit]]:
    """The events since the last call: what happened, the medium, and the page's first token.

    Events have page hashes; `prompts` are the prompts whose pages may occur.
    """
    first_tokens: dict[bytes, Unit] = {}
    for tokens in prompts:
        key = prompt(cache, tokens)
        names = page_hashes(namespace_seed(key.namespace), key.pages)
        first_tokens.update(zip(names, [page[0] for page in key.pages], strict=True))
    return [
        (
            "stored" if isinstance(event, BlockStored) else "removed",
            event.medium,
            first_tokens[event.block_hash],
        )
        for event in cache.take_events()
        if isinstance(event, BlockStored | BlockRemoved)
    ]


def assert_right_bytes(cache: Cache, tokens: Sequence[int]) -> None:
    """Check that every slot that a match returns has the bytes of its page."""
    key = prompt(cache, tokens)
    matched = cache.match(key)
    for component, some in matched.slots:
        for at, slot in enumerate(some, start=matched.device_pages - len(some)):
            assert cache.read(component, GPU, slot) == page_bytes(key, at, component)


@contextmanager
def refused(
    cache: ReferenceCache, error: type[Refusal], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Refusal]]:
    """Check that the code inside is refused with this error, and changes nothing.

    Not even a tick or an id is used up, although no snapshot shows these.
    """
    state = cache._state
    before = (cache.snapshot(), state.clock, state.next_id)
    with pytest.raises(error, match=match) as info:
        yield info
    assert (cache.snapshot(), state.clock, state.next_id) == before
