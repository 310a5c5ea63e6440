"""sgl#25065, backups below a parent without a host copy: its rules, edge cases and test."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.protocol.adapter import make_subject
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.snapshot import is_host_leaf
from kvcanon.spec.types import CPU, FULL, MAMBA, SWA, Counts, WritePolicy, make_key
from scenes import Judged, judged

THROUGH = CacheConfig(
    window_tokens=2,
    device_slots=Counts(full=12, swa=12),
    host_slots=Counts(full=12, swa=12),
    write_policy="write_through",
)


def copied_pages(s: Judged) -> int:
    """Count the pages of full data in the copies in flight."""
    return sum(len(copy.targets[FULL]) for copy in s.cache.snapshot().transfers)


# The report's test; also with mamba states, which the report leaves out.


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
    s = judged(name, config)
    tokens = list(range(1, 1 + 2 * page_size))
    assert s.put(tokens, window=1).present_pages == 0
    assert s.ends(tokens) == [1, 2]
    s.play("flush; evict full=2")
    leaf = s.nodes(tokens)[-1]
    assert leaf[FULL].device is None
    assert leaf[FULL].host is not None
    assert is_host_leaf(s.cache.snapshot(), leaf)
    assert s.hit(tokens) == 2
    assert s.see(tokens, SWA, CPU) == ".#"
    assert s.see(tokens, MAMBA, CPU) == (".#" if mamba else "..")


# Its other rules.


def test_report_whole_chain_is_backed_up_root_first(name: str) -> None:
    """All nodes without a host copy are backed up, parents before children."""
    s = judged(name, THROUGH)
    for prompt in ("1", "12", "123"):
        s.put(prompt)
        for copy in s.copies.open_transfer_ids:
            s.copies.fail(copy)
        s.cache.poll()
    assert s.see("123", FULL, CPU) == "..."
    s.play("heard; put 1234")
    assert s.see("1234", FULL, CPU) == "~~~~"
    s.cache.flush()
    assert s.heard() == "stored GPU 4, stored CPU 1 2 3 4"


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
    assert len(cache.insert(key, 0, cache.allocate(Counts(full=pages))).backups) == pages
    cache.flush()
    cache.evict(Counts(full=pages))
    assert cache.match(key).prefix_pages == pages


def test_report_backed_ancestors_are_not_copied_again(name: str) -> None:
    """An insert copies only nodes that have no host copy."""
    s = judged(name, THROUGH, "put 12")
    assert copied_pages(s) == 2
    s.play("flush; put 123")
    assert copied_pages(s) == 1
    s.put("1234")
    assert copied_pages(s) == 2
    s.play("flush; put 1234")
    assert copied_pages(s) == 0


def test_report_child_is_not_copied_where_its_parent_has_no_room(name: str) -> None:
    """A node is not copied if its parent finds no free host slots, and no slots are taken."""
    config = evolve(THROUGH, host_slots=Counts(full=2, swa=2))
    s = judged(name, config)
    inserted = s.put("1234", window=1)
    assert s.ends("1234") == [3, 4]
    assert inserted.backup_declined_pages == 4
    assert (inserted.backups, s.copies.open_transfer_ids) == ((), ())
    assert s.free_slots(CPU)[FULL] == 2
    s.evict(full=4)
    assert s.hit("1234") == 0


def test_report_host_eviction_is_limited_to_the_shortage(name: str) -> None:
    """A backup evicts from the host only the slots that it lacks, the oldest first."""
    s = judged(name, evolve(THROUGH, window_tokens=None, host_slots=Counts(full=5)))
    s.play("put 6; put 7; put 8; put 9; flush; evict full=4")
    assert s.free_slots(CPU)[FULL] == 1
    s.play("heard; put 12")
    assert s.heard() == "stored GPU 1 2, removed CPU 6"
    assert s.free_slots(CPU)[FULL] == 0


@pytest.mark.parametrize("policy", list(WritePolicy)[1:])
def test_report_rule_is_of_write_through_alone(name: str, policy: WritePolicy) -> None:
    """Parents are copied at the first hit under write_through only."""
    config = evolve(THROUGH, window_tokens=None, write_policy=policy)
    s = judged(name, config, "put 12; put 123; flush; evict full=1")
    expected = {
        WritePolicy.WRITE_THROUGH: "###",
        WritePolicy.WRITE_THROUGH_SELECTIVE: "##.",
        WritePolicy.WRITE_BACK: "..#",
    }
    assert s.see("123", FULL, CPU).ljust(3, ".") == expected[policy]


def test_report_second_hit_backs_up_both_parts_of_a_split_leaf(name: str) -> None:
    """Under write_through_selective the second hit backs up both parts of a cut leaf."""
    config = evolve(THROUGH, write_policy=WritePolicy.WRITE_THROUGH_SELECTIVE)
    s = judged(name, config)
    tokens = [1, 2, 3, 4]
    s.put(tokens, window=2)
    assert copied_pages(s) == 0
    s.put(tokens)
    assert copied_pages(s) == 4
    s.play("flush; evict full=4")
    assert s.hit(tokens) == 4


def test_report_node_without_a_copy_is_deleted(name: str) -> None:
    """A node whose copy failed is deleted when it is evicted, and is not stored on the host."""
    s = judged(name, THROUGH, "put 12")
    s.copies.fail(s.copies.open_transfer_ids[0])
    s.play("poll; heard; evict full=2")
    assert s.heard() == "removed GPU 2 1"
    assert s.hit("12") == 0
    assert len(s.cache.snapshot().nodes) == 1
