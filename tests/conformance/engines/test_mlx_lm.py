"""mlx-lm's adapter, on a fake mlx-lm."""

from __future__ import annotations

from typing import cast

import pytest

from fakes import mlx_lm as fake_mlx_lm
from kvcanon.conformance.adapter_parts.offers import FULL_ATTENTION
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.engines.mlx_lm.request_cache import PromptCache
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, Key, Namespace, make_key

PLAIN = CacheConfig(page_size=2, device_slots=Counts(full=5), events=False)
MIXED = CacheConfig(
    page_size=2,
    window_tokens=3,
    mamba=True,
    device_slots=Counts(full=8, swa=8, mamba=3),
    events=False,
)
KEY = make_key([1, 2, 3, 4, 5, 6], 2)
TWIN = make_key([1, 2, 3, 9, 5, 6], 2)


@pytest.fixture(autouse=True)
def miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a fake mlx-lm."""
    fake_mlx_lm.install(monkeypatch)


def entries_of(cache: PromptCache) -> fake_mlx_lm.LRUPromptCache:
    """Return the fake prompt cache."""
    return cast("fake_mlx_lm.LRUPromptCache", cache.entries)


def test_copies_of_a_page_keep_its_slot_and_bytes() -> None:
    """A request finds what an earlier one wrote, in the slots where it was computed."""
    cache = PromptCache(PLAIN)
    first = cache.admit(1, KEY)
    assert (first.reused_pages, first.slots.full) == (0, (0, 1, 2))
    for slot in first.slots.full:
        cache.write(FULL, slot, bytes([slot] * 8))
    cache.finish(1)
    longer = cache.admit(2, make_key([1, 2, 3, 4, 5, 6, 7, 8], 2))
    assert (longer.reused_pages, longer.slots.full) == (3, (0, 1, 2, 3))
    assert cache.read(FULL, GPU, 1) == bytes([1] * 8)
    assert cache.read(FULL, GPU, 3) == bytes(8)


def test_what_is_shared_in_part_of_a_page_is_trimmed_off() -> None:
    """Two prompts that differ inside a page share the pages before it."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    other = cache.admit(2, TWIN)
    assert (other.reused_pages, other.slots.full) == (1, (0, 3, 4))


def test_what_cannot_be_trimmed_is_not_reused() -> None:
    """A state cannot go back to the beginning of a page."""
    cache = PromptCache(MIXED)
    key = make_key([1, 2, 3, 4], 2)
    cache.admit(1, key)
    cache.finish(1)
    entries = entries_of(cache).entries
    # An entry that ends inside a page, as of a client with other pages.
    (((model, tokens), layers),) = entries.items()
    entries.clear()
    entries[model, tokens[:3]] = layers
    assert cache.admit(2, key).reused_pages == 0


def test_namespaces_are_models() -> None:
    """A prompt is not found in another namespace."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    assert cache.admit(2, Key(KEY.pages[:1], Namespace(lora="a"))).reused_pages == 0


def test_entries_leave_only_for_slots_that_are_missing() -> None:
    """Entries are evicted, the oldest first, until there are enough free slots."""
    cache = PromptCache(PLAIN)
    for request_id, token in ((1, 10), (2, 20)):
        cache.admit(request_id, make_key([token, 0, token, 1], 2))
        cache.finish(request_id)
    assert len(cache.entries) == 2
    cache.admit(3, make_key([30, 0], 2))
    assert len(cache.entries) == 2
    assert cache.admit(4, make_key([40, 0, 40, 1], 2)).slots.full == (0, 1)
    assert [tokens[0] for _, tokens in entries_of(cache).entries] == [20]
    with pytest.raises(OutOfSlots):
        cache.admit(5, make_key([50, 0, 50, 1, 50, 2], 2))
    with pytest.raises(BadArgument):
        cache.finish(5)


def test_refused_growth_leaves_a_request_as_it_was() -> None:
    """Without free slots a request keeps its table."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    with pytest.raises(OutOfSlots):
        cache.extend(1, make_key(range(1, 17), 2))
    assert cache.extend(1, KEY).full == (0, 1, 2)
    assert cache.extend(1, make_key(range(1, 9), 2)).full == (0, 1, 2, 3)


def test_aborted_request_leaves_nothing() -> None:
    """The copy of an aborted request is dropped."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    cache.abort(1)
    assert len(cache.entries) == 0
    assert cache.admit(2, KEY).slots.full == (0, 1, 2)


def test_window_and_state_are_read_from_their_layers() -> None:
    """Window slots are in the order of pages, and each request has a state of its own."""
    cache = PromptCache(MIXED)
    first = cache.admit(1, KEY)
    assert first.slots.swa == (0, 1, 2)
    assert first.slots.mamba == (0,)
    grown = cache.extend(1, make_key(range(1, 9), 2))
    assert grown.full == (0, 1, 2, 3)
    assert grown.swa == (1, 2, 3)
    cache.write(MAMBA, grown.mamba[0], bytes(range(8)))
    cache.write(SWA, 3, bytes([7] * 8))
    cache.finish(1)
    again = cache.admit(2, make_key(range(1, 11), 2))
    assert again.reused_pages == 4
    assert again.slots.mamba != grown.mamba
    assert cache.read(MAMBA, GPU, again.slots.mamba[0]) == bytes(range(8))
    assert cache.read(SWA, GPU, 3) == bytes([7] * 8)


def test_eviction_counts_what_becomes_free() -> None:
    """An eviction takes whole entries, and counts the slots of which no copy is left."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    cache.admit(2, KEY.prefix(1))
    assert cache.evict(Counts(full=1)).freed == Counts(full=2)
    assert cache.evict(Counts(full=1)).freed == Counts()
    with pytest.raises(BadArgument):
        cache.evict(Counts(full=-1))


def test_reset_keeps_what_requests_hold() -> None:
    """Requests have copies of their own."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    cache.admit(2, KEY)
    cache.reset()
    assert len(cache.entries) == 0
    assert cache.extend(2, KEY).full == (0, 1, 2)


def test_bytes_of_nothing_are_refused() -> None:
    """A slot without a copy, and another medium, hold nothing."""
    cache = PromptCache(PLAIN)
    cache.admit(1, KEY)
    for medium, slot in ((GPU, 4), (CPU, 0)):
        with pytest.raises(BadArgument):
            cache.read(FULL, medium, slot)


@pytest.mark.parametrize("faulty", [False, True])
def test_cases_find_a_fault_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, *, faulty: bool
) -> None:
    """Cases find nothing in the fake, and a fake that trims nothing breaks laws."""
    if faulty:
        monkeypatch.setattr(fake_mlx_lm.KVCache, "trim", lambda layer, n: None)
    adapter = Adapter("fake mlx-lm", PromptCache, FULL_ATTENTION, kind=CacheKind.REQUEST)
    found = [
        finding
        for seed in range(25)
        for finding in play(
            draw_case(seed=seed, offer=adapter.offer), [adapter], JudgeConfig(black_box=True)
        )[0]
    ]
    assert bool(found) == faulty
