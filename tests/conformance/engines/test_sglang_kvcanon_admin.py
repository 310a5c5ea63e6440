"""What is asked of SGLang's cache while it runs, with kvcanon's core."""

from __future__ import annotations

import json

import pytest

from sglang_world import said

pytestmark = pytest.mark.nightly


def test_flushes_leave_no_namespaces_behind() -> None:
    """Salts of which nothing is left are forgotten; those of events that wait keep their names."""
    printed = said(
        """
import json
from array import array
import sglang.srt.mem_cache.base_prefix_cache as calls
from sglang.srt.mem_cache.radix_cache import RadixKey
config = CacheConfig(device_slots=Counts(full=8), events=True)
cache = make_unified_world(config, "kvcanon").cache
native = cache.tree_core.native
def ask(salt):
    key = RadixKey(array("q", [1, 2]), cache_salt=salt)
    return key, cache.match_prefix(calls.MatchPrefixParams(key=key)).device_prefix_len
sizes = []
for flush in range(3):
    for salt in range(50):
        ask(f"{flush} {salt}")
    key, _ = ask("waits")
    cache.insert(calls.InsertParams(key=key, value=cache.token_to_kv_pool_allocator.alloc(2)))
    cache.reset()
    cache.token_to_kv_pool_allocator.clear()
    sizes += [len(native.numbers), len(native.scopes)]
salts = [each.cache_salt for each in cache.take_events() if hasattr(each, "cache_salt")]
cache.reset()
# JSON can carry half a surrogate pair.
half = [ask(chr(0xd800))[1], len(native.numbers)]
print(json.dumps([sizes, salts, half, ask("waits")[1], ask(None)[1]]))
"""
    )
    sizes, salts, half, again, unnamed = json.loads(printed.splitlines()[-1])
    assert sizes == [2] * 6
    assert salts == ["waits"] * 3
    assert (half, again, unnamed) == ([0, 2], 0, 0)


def test_a_cache_without_the_selected_core_is_told_in_the_log() -> None:
    """The line names what selected another cache; where the core is, or no cache, there is none."""
    printed = said(
        """
import logging, os, sys
from sglang.srt import runtime_context
from sglang.srt.mem_cache import pure_swa_radix_cache, registry
from sglang.srt.mem_cache.unified_cache import tree_core_registry
from sglang.srt.plugins.hook_registry import HookRegistry
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
tree_core_registry._TREE_CORE_REGISTRY.pop("kvcanon")
os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "kvcanon"
register()
register()
HookRegistry.apply_hooks()
class Other:
    cache_controller = None
    def __init__(self, *_, **__): pass
pure_swa_radix_cache.PureSWARadixCache = Other
flexkv = type(sys)("sglang.srt.mem_cache.storage.flexkv")
flexkv._flexkv_factory = Other
sys.modules[flexkv.__name__] = flexkv
registry.create_unified_radix_cache = lambda _: world.cache
registry.register_radix_cache_backend("theirs", Other)
registry.get_serving = lambda: Made(enable_streaming_session=False)
registry.get_disagg = lambda: Made(disaggregation_decode_retraction_backup=None)
def make(windows=False, disable=False, **flags):
    memory = Made(**dict(radix_cache_backend=None, enable_lmcache=False, enable_flexkv=False,
        enable_unified_cache_external_linker=False, enable_hierarchical_cache=False,
        flexkv_config_file=None, enable_session_radix_cache=False, radix_eviction_policy="lru",
        hicache_host_memory_mode="cache") | flags)
    registry.get_memory = runtime_context.get_memory = lambda: memory
    registry.create_tree_cache(Made(params=None, is_hybrid_swa=windows, is_hybrid_ssm=False,
        full_tokens_per_layer=0 if windows else None, disable_radix_cache=disable))
    print("made")
make()
make(windows=True, disable=True)
make(windows=True)
make(enable_flexkv=True)
make(radix_cache_backend="theirs")
"""
    ).splitlines()
    assert [line[:5] for line in printed] == ["made"] * 2 + ["WARNI", "made"] * 3
    warned = printed[2::2]
    whys = ("a model of sliding windows alone", "--enable-flexkv", "--radix-cache-backend theirs")
    for line, why in zip(warned, whys, strict=True):
        assert "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND=kvcanon has no effect" in line
        assert f"with {why} SGLang serves from Other" in line


def test_builds_and_post_releases_are_taken_where_the_interface_is_the_same() -> None:
    """A call with other parameters, or an object with other fields, is named in the refusal."""
    printed = said(
        """
from kvcanon.optimized.sglang import interface
tree = interface.interface.UnifiedTreeCoreInterface
def attempt(release):
    start_checks.version = lambda _: release
    try:
        start_checks.refuse_what_is_not_offered(Made(**given))
        print("taken")
    except ValueError as error:
        print(error)
print(interface.differences())
for release in ("0.5.23", "0.5.23+cu129", "0.5.23.post1", "0.5.23.post1+g1.a2"):
    attempt(release)
for release in ("0.5.23rc1", "0.5.230", "0.5.23.dev1+g12", "0.5.24"):
    attempt(release)
tree.demote = lambda self, node_id, why: None
del tree.reset
tree.promote = lambda self, node_id=None: None
interface.base_prefix_cache.InsertResult = type("InsertResult", (), {"_fields": ("prefix_len",)})
attempt("0.5.23.post1")
"""
    ).splitlines()
    assert printed[:5] == ["[]", *["taken"] * 4]
    for line in printed[5:9]:
        assert "is made for sglang==0.5.23 and this is 0.5." in line
    other = printed[9]
    assert "this is 0.5.23.post1, " in other
    assert "demote(self, node_id) is demote(self, node_id, why); " in other
    assert "where reset(self) is gone; " in other
    assert "promote(self, node_id=None) is new; " in other
    assert "cache_actions) is InsertResult(prefix_len); " in other
    assert "unset SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND" in other
