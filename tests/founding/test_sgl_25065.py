"""sgl#25065, backups below a parent without a host copy: its rules, edge cases and test."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import is_host_leaf
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Counts, WritePolicy, make_key
from scenes import (
    BOTH_CACHES,
    cached_pages,
    free_slots,
    heard,
    judged_cache,
    node_ends,
    node_of,
    put,
    shown,
)

THROUGH = CacheConfig(
    window_tokens=2,
    device_slots=Counts(full=12, swa=12),
    host_slots=Counts(full=12, swa=12),
    write_policy="write_through",
)
each_cache = pytest.mark.parametrize("name", BOTH_CACHES)


def copied_pages(cache: Cache) -> int:
    """Count the pages of full data in the copies in flight."""
    return sum(len(copy.targets[FULL]) for copy in cache.snapshot().transfers)


# The report's test; also with mamba states, which the report leaves out.


@each_cache
@pytest.mark.parametrize("page_size", [1, 2])
@pytest.mark.parametrize("mamba", [False, True])
def test_report_leaf_below_a_boundary_split_is_demoted(
    name: str, page_size: int, *, mamba: bool
) -> None:
    """Both parts of a leaf that was cut at its window are on the host after an eviction."""
    pools = Counts(full=12, swa=12, mamba=4)
    config = evolve(
        THROUGH,
        page_size=page_size,
        window_tokens=page_size,
        mamba=mamba,
        device_slots=pools,
        host_slots=pools,
    )
    cache, _ = judged_cache(name, config)
    tokens = list(range(1, 1 + 2 * page_size))
    assert put(cache, tokens, window_pages=1).present_pages == 0
    assert node_ends(cache, tokens) == [1, 2]
    cache.flush()
    cache.evict(Counts(full=2))
    leaf = node_of(cache, tokens)
    assert leaf[FULL].device is None
    assert leaf[FULL].host is not None
    assert is_host_leaf(cache.snapshot(), leaf)
    assert cached_pages(cache, tokens) == 2
    assert shown(cache, tokens, SWA, CPU) == ".#"
    assert shown(cache, tokens, MAMBA, CPU) == (".#" if mamba else "..")


# Its other rules.


@each_cache
def test_report_whole_chain_is_backed_up_root_first(name: str) -> None:
    """All nodes without a host copy are backed up, parents before children."""
    cache, copies = judged_cache(name, THROUGH)
    for length in (1, 2, 3):
        put(cache, [1, 2, 3][:length])
        for copy in copies.open_transfer_ids:
            copies.fail(copy)
        cache.poll()
    assert shown(cache, [1, 2, 3], FULL, CPU) == "..."
    cache.take_events()
    put(cache, [1, 2, 3, 4])
    assert shown(cache, [1, 2, 3, 4], FULL, CPU) == "~~~~"
    cache.flush()
    said = [each for each in heard(cache, [1, 2, 3, 4]) if each[1] is CPU]
    assert said == [("stored", CPU, token) for token in (1, 2, 3, 4)]


@each_cache
def test_report_chain_may_be_as_deep_as_the_tree(name: str) -> None:
    """A chain of more nodes than Python's recursion limit is backed up."""
    pages = 1100
    config = CacheConfig(
        device_slots=Counts(full=2 * pages),
        host_slots=Counts(full=pages),
        write_policy="write_through_selective",
    )
    cache, key = make_subject(load_adapter(name), config).cache, make_key(range(pages), 1)
    cache.insert(key, 0, cache.allocate(Counts(full=pages)))
    for end in reversed(range(1, pages)):
        cache.match(key.prefix(end))
    backups = cache.insert(key, 0, cache.allocate(Counts(full=pages))).backups
    assert len(backups) == pages
    cache.flush()
    cache.evict(Counts(full=pages))
    assert cache.match(key).prefix_pages == pages


@each_cache
def test_report_backed_ancestors_are_not_copied_again(name: str) -> None:
    """An insert copies only nodes that have no host copy."""
    cache, _ = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    assert copied_pages(cache) == 2
    cache.flush()
    put(cache, [1, 2, 3])
    assert copied_pages(cache) == 1
    put(cache, [1, 2, 3, 4])
    assert copied_pages(cache) == 2
    cache.flush()
    put(cache, [1, 2, 3, 4])
    assert copied_pages(cache) == 0


@each_cache
def test_report_child_is_not_copied_where_its_parent_has_no_room(name: str) -> None:
    """A node is not copied if its parent finds no free host slots, and no slots are taken."""
    config = evolve(THROUGH, host_slots=Counts(full=2, swa=2))
    cache, copies = judged_cache(name, config)
    inserted = put(cache, [1, 2, 3, 4], window_pages=1)
    assert node_ends(cache, [1, 2, 3, 4]) == [3, 4]
    assert inserted.backup_declined_pages == 4
    assert (inserted.backups, copies.open_transfer_ids) == ((), ())
    assert free_slots(cache, FULL, CPU) == 2
    cache.evict(Counts(full=4))
    assert cached_pages(cache, [1, 2, 3, 4]) == 0


@each_cache
def test_report_host_eviction_is_limited_to_the_shortage(name: str) -> None:
    """A backup evicts from the host only the slots that it lacks, the oldest first."""
    cache, _ = judged_cache(name, evolve(THROUGH, window_tokens=None, host_slots=Counts(full=5)))
    for token in (10, 20, 30, 40):
        put(cache, [token])
    cache.flush()
    cache.evict(Counts(full=4))
    assert free_slots(cache, FULL, CPU) == 1
    cache.take_events()
    put(cache, [1, 2])
    said = [each for each in heard(cache, [1, 2], [10]) if each[1] is CPU]
    assert said == [("removed", CPU, 10)]
    assert free_slots(cache, FULL, CPU) == 0


@each_cache
@pytest.mark.parametrize("policy", list(WritePolicy)[1:])
def test_report_rule_is_of_write_through_alone(name: str, policy: WritePolicy) -> None:
    """Parents are copied at the first hit under write_through only."""
    config = evolve(THROUGH, window_tokens=None, write_policy=policy)
    cache, _ = judged_cache(name, config)
    put(cache, [1, 2])
    put(cache, [1, 2, 3])
    cache.flush()
    cache.evict(Counts(full=1))
    expected = {
        WritePolicy.WRITE_THROUGH: "###",
        WritePolicy.WRITE_THROUGH_SELECTIVE: "##.",
        WritePolicy.WRITE_BACK: "..#",
    }
    assert shown(cache, [1, 2, 3], FULL, CPU).ljust(3, ".") == expected[policy]


@each_cache
def test_report_second_hit_backs_up_both_parts_of_a_split_leaf(name: str) -> None:
    """Under write_through_selective the second hit backs up both parts of a cut leaf."""
    config = evolve(THROUGH, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    cache, _ = judged_cache(name, config)
    tokens = [1, 2, 3, 4]
    put(cache, tokens, window_pages=2)
    assert copied_pages(cache) == 0
    put(cache, tokens)
    assert copied_pages(cache) == 4
    cache.flush()
    cache.evict(Counts(full=4))
    assert cached_pages(cache, tokens) == 4


@each_cache
def test_report_node_without_a_copy_is_deleted(name: str) -> None:
    """A node whose copy failed is deleted when it is evicted, and is not stored on the host."""
    cache, copies = judged_cache(name, THROUGH)
    put(cache, [1, 2])
    copies.fail(copies.open_transfer_ids[0])
    cache.poll()
    cache.take_events()
    cache.evict(Counts(full=2))
    assert heard(cache, [1, 2]) == [("removed", GPU, 2), ("removed", GPU, 1)]
    assert cached_pages(cache, [1, 2]) == 0
    assert len(cache.snapshot().nodes) == 1
