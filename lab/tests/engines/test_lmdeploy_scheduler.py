"""LMDeploy's scheduler behind its adapter: sound as it is, and each planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

import pytest

from engine_here import adapter_here, broken_laws
from kvcanon.conformance.protocol.request import FullRequestCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import Counts, Namespace, make_key

SCHEDULED = adapter_here("lmdeploy")
PAGING = "lmdeploy.pytorch.paging."
CASES = 40
KEY = make_key([1, 2, 3, 4], 2)
LONGER = make_key([1, 2, 3, 4, 5, 6], 2)


def made(*, states: int = 4, **settings: Any) -> FullRequestCache:  # noqa: ANN401 # Fields.
    """Make a cache with pages of two tokens and four blocks."""
    counts = Counts(full=4, mamba=states)
    return cast(
        "FullRequestCache",
        SCHEDULED.make(CacheConfig(page_size=2, device_slots=counts, **settings)),
    )


def test_scheduler_is_sound_but_for_one_fault() -> None:
    """No case finds anything but the fault that is known: saved states are evicted in vain."""
    assert broken_laws(SCHEDULED, CASES) <= {"MATCH-6"}


def test_finished_request_is_reused_but_for_its_last_token() -> None:
    """A hit leaves a token to compute; a longer prompt gets all pages of the shorter one."""
    cache = made()
    table = cache.admit(1, KEY).slots
    cache.finish(1)
    assert cache.admit(2, KEY).reused_pages == 1
    cache.abort(2)
    longer = cache.admit(3, LONGER)
    assert longer.reused_pages == 2
    assert longer.slots.full[:2] == table.full


def test_namespaces_share_nothing() -> None:
    """A prompt of another namespace is not found."""
    cache = made()
    cache.admit(1, KEY)
    assert cache.admit(2, make_key([1, 2, 3, 4], 2, Namespace(cache_salt="a"))).reused_pages == 0


def test_refused_extension_leaves_the_request() -> None:
    """A request that cannot grow keeps its blocks, and grows later."""
    cache = made()
    table = cache.admit(1, KEY).slots
    cache.admit(2, make_key([9, 9, 9, 9], 2))
    with pytest.raises(OutOfSlots):
        cache.extend(1, LONGER)
    cache.abort(2)
    assert cache.extend(1, LONGER).full[:2] == table.full


def test_states_are_saved_at_the_end_of_a_request() -> None:
    """A prompt with states is found at the end of a finished request only."""
    cache = made(mamba=True)
    cache.admit(1, KEY)
    cache.finish(1)
    assert cache.admit(2, LONGER).reused_pages == 2
    cache.abort(2)
    assert cache.admit(3, make_key([1, 2, 7, 7], 2)).reused_pages == 0


def test_states_of_running_requests_have_numbers_of_the_pool() -> None:
    """Saved states lie between those of sequences, and take no number; a free one comes again."""
    cache = made(mamba=True)
    keys = [make_key([first, first + 1], 2) for first in (10, 20, 30, 40)]
    assert [cache.admit(at, key).slots.mamba for at, key in enumerate(keys)] == [
        (0,), (1,), (2,), (3,)
    ]  # fmt: skip
    cache.finish(1)
    assert cache.admit(4, make_key([50, 51], 2)).slots.mamba == (1,)


def test_saved_states_outlive_those_of_other_requests() -> None:
    """A long request's state is found at its end, though more prompts than states came since."""
    cache = made(mamba=True)
    cache.admit(1, KEY)
    for number in range(2, 20):
        cache.admit(number, make_key([number, 100], 2))
        cache.finish(number)
    cache.finish(1)
    assert cache.admit(20, LONGER).reused_pages == 2


def test_state_that_is_evicted_in_vain_is_shown() -> None:
    """A request over the limit of running sequences costs a saved state, as in LMDeploy 0.18."""
    for refused, reused in ((False, 1), (True, 0)):
        cache = made(states=1, mamba=True)
        cache.admit(1, make_key([1, 2], 2))
        if refused:
            with pytest.raises(OutOfSlots):
                cache.admit(2, make_key([9, 9], 2))
        cache.finish(1)
        assert cache.admit(3, make_key([1, 2, 7, 7], 2)).reused_pages == reused


def test_requests_that_do_not_run_are_refused() -> None:
    """Ids are checked, and so are counts."""
    cache = made()
    with pytest.raises(BadArgument, match="does not run"):
        cache.finish(7)
    with pytest.raises(BadArgument, match="give 0 or more"):
        cache.evict(Counts(full=-1))


def plant(monkeypatch: pytest.MonkeyPatch, place: str, fault: Callable[..., object]) -> None:
    """Replace `module:Class.name` of LMDeploy's paging."""
    module, _, name = place.partition(":")
    owner, _, attribute = name.partition(".")
    monkeypatch.setattr(getattr(import_module(PAGING + module), owner), attribute, fault)


def test_blocks_that_are_not_compared_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash without the tokens, and no comparison, reuses pages of other prompts."""
    plant(monkeypatch, "block_trie.trie:BlockTrie._hash_block", staticmethod(lambda *_: 1))
    plant(
        monkeypatch, "block_trie.trie:BlockTrie._node_matches_block", staticmethod(lambda *_: True)
    )
    assert {"MATCH-2", "MATCH-3"} & broken_laws(SCHEDULED, CASES)


def test_adapters_that_share_a_root_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One root for all adapter names reuses pages across namespaces."""
    trie: Any = import_module(f"{PAGING}block_trie.trie").BlockTrie
    original = trie._get_or_create_root
    plant(
        monkeypatch,
        "block_trie.trie:BlockTrie._get_or_create_root",
        lambda self, _name: original(self, None),
    )
    assert "MATCH-1" in broken_laws(SCHEDULED, CASES)


def test_blocks_that_are_evicted_while_used_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eviction that ignores references gives blocks of running requests to others."""
    lifecycle: Any = import_module(f"{PAGING}block_manager.base_block_manager").LogicalAllocator
    original = lifecycle.add_ref_count
    plant(
        monkeypatch,
        "block_manager.base_block_manager:LogicalAllocator.add_ref_count",
        lambda self, blocks, value: original(self, blocks, min(value, 0)),
    )
    assert broken_laws(SCHEDULED, CASES) & {"ALLOC-1", "MATCH-3", "crash: ValueError"}
