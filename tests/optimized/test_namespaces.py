"""Namespaces of the fast cache: what is left of them is counted, and idle ones are forgotten."""

from __future__ import annotations

import gc

import pytest
from attrs import evolve

from fast.caches import NO_SLOTS, counted, insert, new_cache
from fast.caches import PROMPT as TOKENS
from kvcanon.optimized import PrefixCache, _core
from kvcanon.optimized.snapshot import take_snapshot
from kvcanon.optimized.split_dict import PARTS, SplitDict
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import DEFAULT_NAMESPACE, Counts, Namespace

PLAIN = CacheConfig(device_slots=Counts(full=64), events=False)
IDLE = _core.MAX_IDLE_NAMESPACES

forgotten = pytest.raises(BadArgument, match="was forgotten; get one from `namespace`")


def salt(number: int) -> Namespace:
    """The namespace of a client."""
    return Namespace(cache_salt=f"{number:064x}")


def fill(cache: PrefixCache, count: int = IDLE + 1, first: int = 1_000_000) -> None:
    """Use so many namespaces that every earlier idle one is forgotten."""
    for number in range(first, first + count):
        cache.namespace(salt(number))


def known(cache: PrefixCache) -> int:
    """How many namespaces the native core has; Python knows no more, each with one number."""
    assert len(cache._numbers) == len(cache._namespaces)
    assert counted(cache, "namespaces") == len(cache._numbers)
    return len(cache._numbers)


@pytest.mark.nightly
def test_a_million_salts_leave_a_bounded_number_of_namespaces() -> None:
    """Neither the native core nor Python keeps more than the default and the idle ones."""
    cache = new_cache(PLAIN)
    for number in range(1_000_000):
        cache.namespace(Namespace(cache_salt=str(number)))
    assert known(cache) == counted(cache, "idle_namespaces") + 1 == IDLE + 1
    cache.reset()
    assert known(cache) == 1


def test_prompts_of_many_salts_leave_nothing() -> None:
    """Namespaces whose pages were evicted, and whose events were taken, are forgotten."""
    cache = new_cache(evolve(PLAIN, events=True))
    for number in range(IDLE * 2):
        cache.evict(4)
        insert(cache, TOKENS, namespace=cache.namespace(salt(number)))
        if number % 100 == 0:
            cache.take_events()
    assert IDLE - 1 <= counted(cache, "idle_namespaces") <= IDLE
    assert counted(cache, "namespaces") <= IDLE + 1 + 16 + 100
    cache.take_events()
    cache.reset()
    cache.take_events()
    assert known(cache) == 1
    cache.tree.check()


def test_number_of_a_forgotten_namespace_is_refused_and_never_another() -> None:
    """An old number neither finds the pages of others, nor adds pages to them."""
    cache = new_cache(PLAIN)
    old = cache.namespace(salt(0))
    fill(cache)
    numbers = {cache.namespace(salt(number)) for number in range(2_000_000, 2_000_000 + 2 * IDLE)}
    assert old not in numbers
    for refused in (
        lambda: cache.match(TOKENS, old),
        lambda: cache.lock(TOKENS, old),
        lambda: cache.insert(TOKENS, 4, NO_SLOTS, namespace=old),
        lambda: cache.load_back(TOKENS, namespace=old),
    ):
        with forgotten:
            refused()
    with pytest.raises(BadArgument, match="no number of a namespace"):
        cache.namespace_of(old)
    new = cache.namespace(salt(0))
    assert new != old
    assert cache.namespace_of(new) == salt(0)
    # Nor was any of these ever given, also of a place that waits for another.
    number = cache.namespace(salt(0))
    cache.reset()
    for guess in (number, number + 1, number + (1 << 32), number + (2 << 32), 1 << 62, -1):
        with pytest.raises(BadArgument, match="namespace: is"):
            cache.match(TOKENS, guess)


def test_a_namespace_with_pages_is_kept() -> None:
    """Pages on the device or on the host, and locks, keep a namespace."""
    config = evolve(PLAIN, host_slots=Counts(full=64), write_policy="write_through")
    cache = new_cache(config)
    number = cache.namespace(salt(0))
    insert(cache, TOKENS, namespace=number)
    receipt = cache.lock(TOKENS, number)
    fill(cache)
    assert cache.match(TOKENS, number).device_pages == 4
    cache.unlock(receipt)
    cache.flush()
    cache.evict(4)
    fill(cache, first=3_000_000)
    assert cache.match(TOKENS, number).prefix_pages == 4
    cache.evict_host(4)
    assert cache.match(TOKENS, number).prefix_pages == 0
    fill(cache, first=5_000_000)
    with forgotten:
        cache.match(TOKENS, number)


def test_a_namespace_that_is_used_is_forgotten_last() -> None:
    """A match, or asking for the number, makes a namespace the most recent of the idle."""
    cache = new_cache(PLAIN)
    first, second, third = (cache.namespace(salt(number)) for number in range(3))
    fill(cache, IDLE - 3)
    assert cache.match(TOKENS, first).prefix_pages == 0
    assert cache.namespace(salt(1)) == second
    fill(cache, IDLE - 2, first=2_000_000)
    cache.match(TOKENS, first)
    cache.match(TOKENS, second)
    with forgotten:
        cache.match(TOKENS, third)
    # The number 0 is good for ever.
    fill(cache, 2 * IDLE)
    assert cache.match(TOKENS).prefix_pages == 0
    assert cache.namespace(DEFAULT_NAMESPACE) == 0
    assert cache.namespace_of(0) == DEFAULT_NAMESPACE


def test_many_namespaces_that_become_idle_at_once_are_forgotten() -> None:
    """Each new namespace forgets two while more are idle than are kept."""
    cache = new_cache(evolve(PLAIN, device_slots=Counts(full=IDLE + 100)))
    for number in range(IDLE + 100):
        insert(cache, TOKENS[:1], namespace=cache.namespace(salt(number)))
    cache.evict(IDLE + 100)
    assert counted(cache, "idle_namespaces") == IDLE + 100
    fill(cache, 100)
    assert counted(cache, "idle_namespaces") == IDLE
    assert known(cache) == IDLE + 1


def test_events_keep_their_namespace() -> None:
    """Events that wait, or were taken, name their namespace though all its pages are gone.

    So they do when the cache is gone, too.
    """
    cache = new_cache(evolve(PLAIN, events=True))
    number = cache.namespace(salt(7))
    insert(cache, TOKENS, namespace=number)
    cache.evict(4)
    fill(cache)
    _, stored, removed = cache.take_events()
    fill(cache, first=3_000_000)
    for event in (stored, removed):
        assert event.namespace == number
        assert cache.namespace_of(event.namespace) == salt(7)
    del event, removed
    names = page_hashes(namespace_seed(salt(7)), [(token,) for token in range(4)])
    assert stored.hashes == b"".join(names)
    del stored
    gc.collect()
    fill(cache, first=5_000_000)
    with pytest.raises(BadArgument):
        cache.namespace_of(number)
    number = cache.namespace(salt(3))
    insert(cache, TOKENS, namespace=number)
    (stored,) = cache.take_events()
    del cache
    gc.collect()
    assert stored.namespace == number
    assert stored.tokens.reshape(-1).tolist() == [*range(4)]


def test_reset_keeps_what_events_need() -> None:
    """A reset forgets all namespaces but those of events that nobody has taken."""
    cache = new_cache(evolve(PLAIN, events=True))
    kept, gone = cache.namespace(salt(1)), cache.namespace(salt(2))
    insert(cache, TOKENS, namespace=kept)
    cache.reset()
    assert known(cache) == 2
    assert cache.namespace_of(kept) == salt(1)
    with pytest.raises(BadArgument):
        cache.namespace_of(gone)
    insert(cache, TOKENS, namespace=cache.namespace(salt(2)))
    assert {node.namespace for node in take_snapshot(cache).below_root()} == {salt(2)}
    cache.tree.check()


# The dictionary in parts that keeps them: the same as a `dict`, and no part has all entries


def test_split_dict_does_what_a_dict_does() -> None:
    """Entries are added, replaced, found and deleted; missing ones raise KeyError."""
    split: SplitDict[str, int] = SplitDict()
    plain: dict[str, int] = {}
    for number in range(5_000):
        split[str(number % 3_000)] = plain[str(number % 3_000)] = number
    for number in range(0, 3_000, 7):
        del split[str(number)]
        del plain[str(number)]
    assert dict(split) == dict(split.pairs()) == plain
    assert len(split) == len(plain)
    assert split.get("7") is None
    assert split.pop("8") == plain.pop("8")
    assert len(split) == len(plain)
    with pytest.raises(KeyError):
        split["8"]
    with pytest.raises(KeyError):
        del split["8"]
    assert len(split) == len(plain)


def test_parts_share_their_entries() -> None:
    """No part has many times its share of namespaces, or of numbers that count up."""
    salts: SplitDict[Namespace, int] = SplitDict()
    numbers: SplitDict[int, int] = SplitDict()
    for number in range(20 * PARTS):
        salts[Namespace(cache_salt=f"{number:x}")] = number
        numbers[number] = number
    assert max(map(len, salts._parts)) < 60
    assert max(map(len, numbers._parts)) < 60
