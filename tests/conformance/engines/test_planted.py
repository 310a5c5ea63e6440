"""Adapters hide no fault: what is planted in the own objects of MAX and mlx-lm is found.

These tests run in the environments of the engines.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from in_peer import broken_in, run_in
from paths import DOCS

pytestmark = pytest.mark.nightly

MAX, MLX_LM = "max==26.7.0", "mlx-lm==0.32.2"
PAGED = "from kvcanon.conformance.engines.max.adapters import PAGED as ADAPTER\n"
JENGA = "from kvcanon.conformance.engines.max.adapters import JENGA as ADAPTER\n"
PROMPTS = "from kvcanon.conformance.engines.mlx_lm.adapters import MLX_LM as ADAPTER\n"
MODULE = "from mlx_lm.models import cache\n"

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
SHARED_MODEL = """
searched, added = cache.PromptTrie.search, cache.LRUPromptCache.insert_cache
cache.PromptTrie.search = lambda trie, model, tokens: searched(trie, None, tokens)
fetched = cache.PromptTrie.get
cache.PromptTrie.get = lambda trie, model, tokens: fetched(trie, None, tokens)
cache.LRUPromptCache.insert_cache = lambda entries, model, *some, **more: added(
    entries, None, *some, **more
)
"""
NO_TRIM = """
cache.KVCache.trim = lambda layer, n: n
"""
NO_COPY = """
cache.copy.deepcopy = lambda entry: entry
"""
TRIMS_TOO_MUCH = """
trimmed = cache.KVCache.trim
cache.KVCache.trim = lambda layer, n: trimmed(layer, n + 1)
"""


ADAPTERS = {
    "paged": (MAX, MENDED, PAGED),
    "jenga": (MAX, "", JENGA),
    "mlx-lm": (MLX_LM, MODULE, PROMPTS),
}
"""The release of each adapter, and the code before and after a planted fault."""
KNOWN = {"mlx-lm": {"MATCH-6"}}
"""What a release breaks with its known fault mended: it finds no prefix of one token."""


@pytest.mark.parametrize(
    ("adapter", "planted", "expected"),
    [
        pytest.param("paged", "", set(), id="paged: nothing"),
        pytest.param("paged", NO_PIN, {"ALLOC-1"}, id="paged: a shared page is not pinned"),
        pytest.param("paged", NO_SALT, {"MATCH-1"}, id="paged: a salt is ignored"),
        pytest.param("paged", LEAK, {"REFUSE-1"}, id="paged: a page leaks"),
        pytest.param("jenga", "", set(), id="jenga: nothing"),
        pytest.param("jenga", SHORT_WINDOW, {"MATCH-3"}, id="jenga: a window is too short"),
        pytest.param("jenga", NO_SALT, {"MATCH-1"}, id="jenga: a salt is ignored"),
        pytest.param("mlx-lm", "", set(), id="mlx-lm: nothing"),
        pytest.param("mlx-lm", SHARED_MODEL, {"MATCH-1"}, id="mlx-lm: models share entries"),
        pytest.param("mlx-lm", NO_TRIM, {"ALLOC-5"}, id="mlx-lm: nothing is trimmed"),
        pytest.param("mlx-lm", NO_COPY, set(), id="mlx-lm: an entry is not copied"),
        pytest.param("mlx-lm", TRIMS_TOO_MUCH, set(), id="mlx-lm: a token too many is trimmed"),
    ],
)
def test_planted_faults_are_found(adapter: str, planted: str, expected: set[str]) -> None:
    """With its known fault mended nothing is found in a release, and each planted fault is."""
    release, before, after = ADAPTERS[adapter]
    broken = broken_in(release, before + planted + after) - KNOWN.get(adapter, set())
    assert expected <= broken
    assert bool(broken) == bool(planted)


@pytest.mark.parametrize(
    ("release", "script"),
    [
        (release, script)
        for folder, release in (("max", MAX), ("mlx_lm", MLX_LM))
        for script in sorted((DOCS / "findings" / folder).glob("*.py"))
    ],
    ids=lambda given: getattr(given, "stem", given),
)
def test_scripts_show_their_faults(release: str, script: Path) -> None:
    """Each script ends with exit code 1 in the release that it names."""
    done = run_in(release, str(script))
    assert done.returncode == 1, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
    assert not done.stderr or release == MLX_LM
