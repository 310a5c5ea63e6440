"""MAX's adapter, on a fake MAX."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from fakes import max as fake_max
from kvcanon.conformance.adapter_parts.token_slots import extra_key_of
from kvcanon.conformance.engines.installed_names import InstalledNames
from kvcanon.conformance.engines.max.request_cache import MaxCache, jenga_cache, paged_cache
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument, OutOfSlots
from kvcanon.spec.types import Counts, Key, Namespace, Slots, make_key

PLAIN = CacheConfig(page_size=2, device_slots=Counts(full=4), events=False)
MIXED = CacheConfig(
    page_size=2,
    window_tokens=3,
    mamba=True,
    device_slots=Counts(full=8, swa=4, mamba=2),
    events=False,
)
KEY = make_key([1, 2, 3, 4, 5, 6], 2)


@pytest.fixture(autouse=True)
def miniature(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a fake MAX."""
    fake_max.install(monkeypatch)


def manager_of(cache: MaxCache) -> fake_max.Manager:
    """Return the fake manager."""
    return cast("fake_max.Manager", cache.manager)


def test_paged_manager_has_a_page_for_each_slot() -> None:
    """The pool has as many pages as the case has slots, of the case's size."""
    manager = manager_of(paged_cache(PLAIN))
    assert manager.options["total_num_pages"] == 4
    assert manager.page_size == 2
    assert manager.options["params"].enable_prefix_caching


def test_jenga_manager_has_leaves_of_one_page_size() -> None:
    """Each component is a leaf, and the slab has a page for each slot and the null page."""
    manager = manager_of(jenga_cache(MIXED))
    full, window, state = manager.options["params"]
    assert (full.window_size, window.window_size) == (None, 4)
    page_bytes = 2 * 2 * full.head_dim
    assert state.regions[0].row_shape == (page_bytes,)
    assert manager.options["available_bytes"] == (8 + 4 + 2 + 1) * page_bytes


def test_jenga_manager_needs_two_states() -> None:
    """A configuration whose single request would never fit is not offered."""
    few = CacheConfig(mamba=True, device_slots=Counts(full=8, mamba=1), events=False)
    with pytest.raises(BadArgument, match="a request needs 2 states"):
        jenga_cache(few)


def test_found_pages_are_reused() -> None:
    """A prefix hit is counted in pages, and the last page is computed again."""
    cache = paged_cache(PLAIN)
    first = cache.admit(1, KEY)
    assert (first.reused_pages, first.slots) == (0, Slots((0, 1, 2)))
    cache.finish(1)
    again = cache.admit(2, KEY)
    assert (again.reused_pages, again.slots.full[:2]) == (2, (0, 1))
    other = Key(KEY.pages, Namespace(cache_salt="a"))
    cache.finish(2)
    assert cache.admit(3, other).reused_pages == 0


def test_prompt_of_one_token_reuses_nothing() -> None:
    """MAX looks nothing up for one token."""
    cache = paged_cache(CacheConfig(page_size=1, device_slots=Counts(full=4), events=False))
    assert cache.admit(1, make_key([7], 1)).reused_pages == 0


def test_refused_admission_is_released() -> None:
    """A request that gets no pages does not run, and MAX has forgotten it."""
    cache = paged_cache(PLAIN)
    with pytest.raises(OutOfSlots):
        cache.admit(1, make_key(range(20), 2))
    assert manager_of(cache).rows == {}
    with pytest.raises(BadArgument):
        cache.finish(1)
    with pytest.raises(BadArgument):
        cache.extend(1, KEY)


def test_growth_computes_the_next_chunk() -> None:
    """To MAX the longer prompt is the same request, of which the first pages are computed."""
    cache = paged_cache(PLAIN)
    cache.admit(1, KEY.prefix(1))
    assert cache.extend(1, KEY) == Slots((0, 1, 2))
    assert manager_of(cache).calls == ["alloc", "step", "alloc", "step"]
    assert cache.extend(1, KEY) == Slots((0, 1, 2))
    cache.finish(1)
    assert cache.admit(2, KEY).reused_pages == 2


def test_refused_growth_is_not_seen_by_max() -> None:
    """Growth without room is refused by MAX's count, and the request runs on."""
    cache = paged_cache(PLAIN)
    cache.admit(1, KEY)
    before = list(manager_of(cache).calls)
    with pytest.raises(OutOfSlots):
        cache.extend(1, make_key(range(1, 11), 2))
    assert manager_of(cache).calls == before
    assert cache.extend(1, make_key(range(1, 9), 2)) == Slots((0, 1, 2, 3))


def test_refusal_by_max_in_growth_is_no_refusal_of_the_adapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If MAX has fewer pages than it counts, its own error comes out."""
    cache = paged_cache(PLAIN)
    cache.admit(1, KEY.prefix(1))
    count = SimpleNamespace(free=100)
    monkeypatch.setattr(fake_max.Manager, "block_count", lambda _: count)
    count_of_none = SimpleNamespace(free=0)
    inner = fake_max.Manager.alloc

    def alloc(manager: fake_max.Manager, ctx: fake_max.TextContext) -> None:
        monkeypatch.setattr(fake_max.Manager, "block_count", lambda _: count_of_none)
        inner(manager, ctx)

    monkeypatch.setattr(fake_max.Manager, "alloc", alloc)
    with pytest.raises(fake_max.InsufficientBlocksError):
        cache.extend(1, KEY)


def test_empty_prompt_runs_without_max() -> None:
    """A prompt without pages is no request of MAX, until it grows."""
    cache = paged_cache(PLAIN)
    assert cache.admit(1, Key(())).slots == Slots()
    assert manager_of(cache).rows == {}
    with pytest.raises(OutOfSlots):
        cache.extend(1, make_key(range(20), 2))
    assert cache.extend(1, KEY.prefix(1)) == Slots((0,))
    cache.abort(1)
    assert manager_of(cache).calls[-1] == "release"


def test_reset_empties_the_cache() -> None:
    """After a reset nothing is found."""
    cache = paged_cache(PLAIN)
    cache.admit(1, KEY)
    cache.finish(1)
    cache.reset()
    assert cache.admit(2, KEY).reused_pages == 0


def test_table_of_the_jenga_manager() -> None:
    """Null pages have no slot, pages begin at 1, and the state is the one to go on in."""
    cache = jenga_cache(MIXED)
    manager = manager_of(cache)
    manager.null["window.window_group"] = 1
    manager.groups["state"].successors["1"] = SimpleNamespace(bid=9)
    assert cache.admit(1, KEY).slots == Slots((0, 1, 2), (1, 2), (8,))
    manager.groups["state"].successors.clear()
    assert cache.admit(2, KEY.prefix(1)).slots.mamba == (3,)


def test_pass_with_a_window_ends_late() -> None:
    """What a pass reads stays in the table until the request is used next, or ends."""
    cache = jenga_cache(MIXED)
    cache.admit(1, KEY.prefix(1))
    assert manager_of(cache).calls == ["alloc"]
    cache.extend(1, KEY)
    assert manager_of(cache).calls == ["alloc", "step", "alloc"]
    cache.finish(1)
    assert manager_of(cache).calls == ["alloc", "step", "alloc", "step", "release"]


def test_namespaces_have_salts_of_their_own() -> None:
    """No two namespaces share a salt, and only the default one has none."""
    spaces = [Namespace(), Namespace("a"), Namespace(None, "a"), Namespace(None, None, "a")]
    spaces += [Namespace(None, ""), Namespace("")]
    salts = [extra_key_of(each) for each in spaces]
    assert salts[0] is None
    assert len(set(salts)) == len(spaces)
    assert all(salts[1:])


@pytest.mark.parametrize("name", ["max", "max-jenga", "mlx-lm"])
def test_missing_engine_is_one_line(name: str) -> None:
    """Without the engine a check says how to get it."""
    with pytest.raises(UsageError, match=r"is not installed.*`kvcanon lab peers make m\S+==\S+`"):
        load_adapter(name)


def test_names_that_are_not_there_are_said() -> None:
    """A release without a name, and one that cannot be imported, are one line each."""
    names = InstalledNames(
        "attrs", "attrs", "attrs==1", {"frozen": "attrs", "none": "attrs", "bad": "attrs.none"}
    )
    assert names["frozen"] is names["frozen"]
    with pytest.raises(UsageError, match="has no none in attrs"):
        names["none"]
    with pytest.raises(UsageError, match=r"cannot be used here: .*attrs\.none"):
        names["bad"]
