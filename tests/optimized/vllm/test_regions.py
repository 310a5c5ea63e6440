"""The bytes of blocks in every memory layout, and copies of them to the host and back."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kvcanon.optimized.vllm.block_copies import ThreadCopies
from kvcanon.optimized.vllm.regions import group_regions, page_bytes
from kvcanon.optimized.vllm.step_copies import TierCopyJob

BLOCKS, HEADS, TOKENS, CONTENT = 5, 3, 4, 2
ORDERS = {
    "blocks, heads, tokens": (0, 1, 2, 3),
    "blocks, tokens, heads": (0, 2, 1, 3),
    "heads, blocks, tokens": (1, 0, 2, 3),
}


def cache(order: tuple[int, ...]) -> torch.Tensor:
    """A layer's cache [blocks, heads, tokens, content], whose dimensions lie in this order."""
    sizes = (BLOCKS, HEADS, TOKENS, CONTENT)
    count = BLOCKS * HEADS * TOKENS * CONTENT
    memory = torch.arange(count, dtype=torch.float32).reshape([sizes[each] for each in order])
    return memory.permute([order.index(each) for each in range(4)])


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
def test_page_has_all_bytes_of_a_block_and_no_others(order: tuple[int, ...]) -> None:
    """A block that went to the host and back is whole, and its neighbours are untouched."""
    layers = {"a": cache(order), "b": cache(order) + 1000}
    regions = group_regions(layers, [["a", "b"]], BLOCKS)
    assert page_bytes(regions[0]) == 2 * HEADS * TOKENS * CONTENT * 4
    copies = ThreadCopies(regions, torch.zeros((3, page_bytes(regions[0])), dtype=torch.uint8))
    before = {name: layer.clone() for name, layer in layers.items()}
    copies.begin(TierCopyJob(1, [1, 3], [2, 0], [0, 0], to_host=True))
    copies.begin(TierCopyJob(2, [4, 0], [2, 0], [0, 0], to_host=False, after=frozenset({1})))
    copies.wait([1, 2])
    assert [moved for _, moved in copies.ended()] == [True, True]
    copies.close()
    for name, layer in layers.items():
        assert torch.equal(layer[4], before[name][1])
        assert torch.equal(layer[0], before[name][3])
        for block in (1, 2, 3):
            assert torch.equal(layer[block], before[name][block])


def test_groups_that_share_memory_have_pages_of_their_own() -> None:
    """Layers of two groups over the same bytes: each group's pages have its own layers."""
    shared = cache(ORDERS["blocks, heads, tokens"])
    regions = group_regions({"a": shared, "b": shared}, [["a"], ["b"]], BLOCKS)
    assert [page_bytes(each) for each in regions] == [HEADS * TOKENS * CONTENT * 4] * 2


def test_regions_of_a_page_do_not_overlap() -> None:
    """Offsets follow one another."""
    layers = {"a": cache(ORDERS["heads, blocks, tokens"]), "b": cache((0, 1, 2, 3))}
    (regions,) = group_regions(layers, [["a", "b"]], BLOCKS)
    assert len(regions) == HEADS + 1
    for before, after in pairwise(regions):
        assert before.offset_bytes + before.block_bytes == after.offset_bytes


def test_backend_that_splits_blocks_is_refused() -> None:
    """A cache with another number of blocks is refused in a sentence."""
    with pytest.raises(ValueError, match="splits blocks"):
        group_regions({"a": cache((0, 1, 2, 3))}, [["a"]], BLOCKS + 1)


def test_failed_store_fails_the_load_that_reads_its_rows() -> None:
    """A load of rows that were not filled does not say that it moved its bytes."""
    layers = {"a": cache((0, 1, 2, 3))}
    regions = group_regions(layers, [["a"]], BLOCKS)
    copies = ThreadCopies(regions, torch.zeros((1, page_bytes(regions[0])), dtype=torch.uint8))
    copies.begin(TierCopyJob(1, [1], [7], [0], to_host=True))
    copies.begin(TierCopyJob(2, [2], [0], [0], to_host=False, after=frozenset({1})))
    copies.wait([1, 2])
    assert [moved for _, moved in copies.ended()] == [False, False]
    copies.close()
