"""MAX's adapters hide no fault: what is planted in MAX's own objects is found.

These tests run in the environment of MAX, and are skipped where it is not made.
"""

from __future__ import annotations

import pytest

from in_peer import broken_in, run_in
from paths import DOCS

pytestmark = pytest.mark.nightly

RELEASE = "max==26.7.0"
PAGED = "from kvcanon.conformance.engines.max.adapters import PAGED as ADAPTER\n"
JENGA = "from kvcanon.conformance.engines.max.adapters import JENGA as ADAPTER\n"

MENDED = """
from max.pipelines.kv_cache.paged_kv_cache.block_pool import BlockPool

def free_block(pool, block):
    block.ref_cnt -= 1
    if block.ref_cnt == 0 and block.block_hash is None:
        pool.free_block_queue.appendleft(block)
    elif block.ref_cnt == 0:
        pool.free_block_queue.append(block)

BlockPool.free_block = free_block
"""
"""Free pages without cached data are taken first, unlike in the release."""
NO_PIN = """
def touch(pool, block):
    if block.ref_cnt == 0:
        pool.free_block_queue.remove(block)
        block.ref_cnt = 1

BlockPool.touch = touch
"""
NO_SALT = """
from max.pipelines.kv_cache.paged_kv_cache import block_utils, _common
inner = block_utils.hash_request_tokens
_common.hash_request_tokens = lambda *some, **more: inner(*some, **more | {"salt": None})
"""
LEAK = """
from max.pipelines.kv_cache.paged_kv_cache.block_manager import BlockManager
released = BlockManager.release

def release(manager, ctx):
    manager.req_to_blocks[ctx.request_id] = manager.req_to_blocks[ctx.request_id][1:]
    released(manager, ctx)

BlockManager.release = release
"""
SHORT_WINDOW = """
from max.pipelines.kv_cache.paged_kv_cache.kv_group_coordinator import (
    SlidingWindowKVGroupCoordinator as Window,
)
claimed = Window.claim_hit_blocks

def claim_hit_blocks(group, hashes, replica):
    rows = claimed(group, hashes, replica)
    pool = group.pools[replica]
    held = [at for at, each in enumerate(rows[group.leaf_id]) if not each.is_null]
    if held:
        pool.free_block(rows[group.leaf_id][held[0]])
        rows[group.leaf_id][held[0]] = pool.null_little_blocks[group.leaf_id]
    return rows

Window.claim_hit_blocks = claim_hit_blocks
"""


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ("", set()),
        (NO_PIN, {"ALLOC-1"}),
        (NO_SALT, {"MATCH-1"}),
        (LEAK, {"REFUSE-1"}),
    ],
    ids=["nothing", "a shared page is not pinned", "a salt is ignored", "a page leaks"],
)
def test_faults_of_the_paged_manager_are_found(planted: str, expected: set[str]) -> None:
    """With its known fault mended, exactly the planted fault is found."""
    broken = broken_in(RELEASE, MENDED + planted + PAGED)
    assert expected <= broken
    assert bool(broken) == bool(planted)


@pytest.mark.parametrize(
    ("planted", "expected"),
    [("", set()), (SHORT_WINDOW, {"MATCH-3"}), (NO_SALT, {"MATCH-1"})],
    ids=["nothing", "a window is too short", "a salt is ignored"],
)
def test_faults_of_the_jenga_manager_are_found(planted: str, expected: set[str]) -> None:
    """Nothing is found in the release, and a planted fault is."""
    broken = broken_in(RELEASE, planted + JENGA)
    assert expected <= broken
    assert bool(broken) == bool(planted)


@pytest.mark.parametrize(
    "script", sorted((DOCS / "findings" / "max").glob("*.py")), ids=lambda path: path.stem
)
def test_scripts_show_their_faults(script: object) -> None:
    """Each script ends with exit code 1 in the release that it names."""
    done = run_in(RELEASE, str(script))
    assert done.returncode == 1, done.stderr
    assert done.stdout
    assert not done.stderr
