"""Runs code in SGLang's environment, beside a cache of its own class with kvcanon's core."""

from __future__ import annotations

from in_peer import run_in

RELEASE = "sglang==0.5.23"
MAKE = """
from types import SimpleNamespace as Made
from kvcanon.conformance.engines.sglang.adapters import make_unified_world
from kvcanon.conformance.engines.sglang.cpu_stand_ins import prepare
from kvcanon.optimized.sglang import start_checks
from kvcanon.sglang_plugin import make_tree_core, register
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts
register()
register()
world = make_unified_world(CacheConfig(device_slots=Counts(full=8)), "kvcanon")
core, kinds = world.cache.tree_core, world.cache.components
given = dict(
    enable_session_radix_cache=False, component_registry_override=None, tree_components=kinds,
    eviction_policy="lru", eviction_policy_config=None, swa_gates_prefix_match=True,
    decoder_swa_bounded_replay=False, token_to_kv_pool_allocator=world.allocator,
    req_to_token_pool=None, rotation_base=None, c128_value=None,
)
"""


def said(code: str) -> str:
    """What code prints in SGLang's environment, with a core of kvcanon in `core`."""
    done = run_in(RELEASE, "-W", "ignore", "-c", MAKE + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
