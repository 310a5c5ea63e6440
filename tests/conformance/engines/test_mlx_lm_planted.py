"""mlx-lm's adapter hides no fault: what is planted in mlx-lm's own objects is found.

These tests run in the environment of mlx-lm, and are skipped where it is not made.
"""

from __future__ import annotations

import pytest

from in_peer import broken_in, run_in
from paths import DOCS

pytestmark = pytest.mark.nightly

RELEASE = "mlx-lm==0.32.2"
ADAPTER = "from kvcanon.conformance.engines.mlx_lm.adapters import MLX_LM as ADAPTER\n"
MODULE = "from mlx_lm.models import cache\n"
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


@pytest.mark.parametrize(
    ("planted", "expected"),
    [
        ("", set()),
        (SHARED_MODEL, {"MATCH-1"}),
        (NO_TRIM, {"ALLOC-5"}),
        (NO_COPY, set()),
        (TRIMS_TOO_MUCH, set()),
    ],
    ids=[
        "nothing",
        "models share entries",
        "nothing is trimmed",
        "an entry is not copied",
        "a token too many is trimmed",
    ],
)
def test_faults_are_found(planted: str, expected: set[str]) -> None:
    """The first cases find nothing in the release, and each planted fault."""
    broken = broken_in(RELEASE, MODULE + planted + ADAPTER)
    assert expected <= broken
    assert bool(broken) == bool(planted)


@pytest.mark.parametrize(
    "script", sorted((DOCS / "findings" / "mlx_lm").glob("*.py")), ids=lambda path: path.stem
)
def test_scripts_show_their_faults(script: object) -> None:
    """Each script ends with exit code 1 in the release that it names."""
    done = run_in(RELEASE, str(script))
    assert done.returncode == 1, done.stderr
    assert done.stdout
    assert "Traceback" not in done.stderr
