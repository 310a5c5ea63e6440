"""LMCache's local CPU backend behind its adapter: what it breaks; planted faults are found."""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pytest
from attrs import evolve

from engine_here import adapter_here, broken_laws
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, CacheBusy, OutOfSlots, PrefixNotCached, SlotNotHeld
from kvcanon.spec.operations import Inserted
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Namespace, make_key

LOCAL = adapter_here("lmcache")
CASES = 60
KEY = make_key([1, 2, 3, 4], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6], 2)


def made(chunks: int) -> Cache:
    """Make a cache with chunks of two tokens."""
    return cast("Cache", LOCAL.make(CacheConfig(page_size=2, device_slots=Counts(full=chunks))))


def backend() -> Any:  # noqa: ANN401 # LMCache's class.
    """Return the class of the backend."""
    module = import_module("lmcache.v1.storage_backend.local_cpu_backend")
    return module.LocalCPUBackend


def test_stored_chunks_are_found_and_duplicates_freed() -> None:
    """A store keeps what is there, and frees the memory that came for it."""
    cache = made(8)
    slots = cache.allocate(Counts(full=2))
    cache.insert(KEY, 0, slots)
    assert cache.match(LONGER).slots == slots
    assert cache.match(KEY.prefix(1)).slots.full == slots.full[:1]
    answer = cache.insert(LONGER, 0, cache.allocate(Counts(full=3)))
    assert answer == Inserted(2, Counts(full=1), Counts(full=2))
    assert len(cache.free_slots(FULL, GPU)) == 5


def test_namespaces_share_nothing() -> None:
    """A namespace is a tag of the request."""
    cache = made(4)
    cache.insert(KEY, 0, cache.allocate(Counts(full=2)))
    other = make_key([1, 2, 3, 4], 2, Namespace(cache_salt="tenant"))
    assert cache.match(other).prefix_pages == 0


def test_pinned_chunks_stay() -> None:
    """An eviction takes what no lookup has pinned, and says how much."""
    cache = made(3)
    cache.insert(KEY, 0, cache.allocate(Counts(full=2)))
    receipt = cache.lock(KEY)
    assert cache.evict(Counts(full=2)).freed == Counts()
    with pytest.raises(CacheBusy):
        cache.reset()
    cache.unlock(receipt)
    assert cache.evict(Counts(full=1)).freed == Counts(full=1)
    assert cache.evict(Counts(full=8)).freed == Counts(full=1)
    cache.reset()
    assert len(cache.free_slots(FULL, GPU)) == 3


def test_refused_calls() -> None:
    """What no engine asks for is refused, and nothing moves."""
    cache = made(2)
    with pytest.raises(PrefixNotCached):
        cache.lock(KEY)
    with pytest.raises(OutOfSlots):
        cache.allocate(Counts(full=3))
    slots = cache.allocate(Counts(full=2))
    with pytest.raises(PrefixNotCached):
        cache.insert(LONGER, 1, slots)
    cache.free(slots)
    with pytest.raises(SlotNotHeld):
        cache.free(slots)
    assert cache.free_slots(FULL, CPU) == ()


def test_bytes_are_those_in_the_memory_of_the_backend() -> None:
    """What is written into a chunk is read back, and stays when it is stored."""
    cache = made(2)
    slots = cache.allocate(Counts(full=2))
    cache.write(FULL, slots.full[1], b"12345678")
    with pytest.raises(BadArgument):
        cache.write(FULL, slots.full[0], b"1")
    cache.insert(KEY, 0, slots)
    assert cache.read(FULL, GPU, slots.full[1]) == b"12345678"
    with pytest.raises(BadArgument):
        cache.read(FULL, GPU, 2)
    with pytest.raises(SlotNotHeld):
        cache.write(FULL, slots.full[1], b"12345678")


def test_first_chunk_leaves_first() -> None:
    """A prompt that was stored and not looked up since loses its beginning."""
    assert broken_laws(LOCAL, CASES) == {"RES-3"}


def test_recent_from_the_end_nothing_is_broken() -> None:
    """Where a store makes its prompt recent as a lookup does, these cases find nothing."""
    assert broken_laws(mended(), CASES) == set()


def mended() -> Any:  # noqa: ANN401 # An adapter.
    """Return the adapter with a lookup after each store."""
    base: Any = LOCAL.make

    class Mended(base):  # type: ignore[misc]
        """Looks up what it stored."""

        def insert(self, *arguments: Any, **named: Any) -> Inserted:  # noqa: ANN401
            """Store, look up with a pin, and unpin."""
            done = super().insert(*arguments, **named)
            self.unlock(self.lock(arguments[0]))
            return cast("Inserted", done)

    return evolve(LOCAL, make=Mended)


def test_pin_that_holds_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pinned chunk that is evicted leaves a request without its prefix."""
    module = import_module("lmcache.v1.memory_management")
    monkeypatch.setattr(module.TensorMemoryObj, "is_pinned", property(lambda _: False))
    assert broken_laws(mended(), CASES)


def test_hash_without_the_prefix_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chunk that is named by its own tokens alone is found behind another prefix."""
    module = import_module("lmcache.v1.token_database")
    original = module.TokenDatabase._hash_tokens
    monkeypatch.setattr(
        module.TokenDatabase,
        "_hash_tokens",
        lambda self, tokens, *_: original(self, tokens),
    )
    assert broken_laws(mended(), CASES)


def test_put_that_keeps_a_reference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A duplicate that a put does not let go of leaks."""
    original = backend().submit_put_task

    def put(self: Any, key: object, memory: Any, **named: object) -> None:  # noqa: ANN401
        """Put, and keep one more reference on a duplicate."""
        if self.contains(key):
            memory.ref_count_up()
        original(self, key, memory, **named)

    monkeypatch.setattr(backend(), "submit_put_task", put)
    assert broken_laws(mended(), CASES)
