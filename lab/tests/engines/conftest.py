"""These tests run in the environment of an engine; `test_in_environments.py` runs them there."""

import os

collect_ignore_glob = (
    ["test_in_environments.py"]
    if "KVCANON_IN_ENVIRONMENT" in os.environ
    else [
        "test_lightllm.py",
        "test_lmcache.py",
        "test_lmcache_disk.py",
        "test_lmdeploy_*.py",
        "test_mini_sglang.py",
        "test_nano_vllm.py",
        "test_sglang_jax.py",
        "test_transformers.py",
        "test_vllm_fs_store.py",
        "test_vllm_scheduler.py",
    ]
)
