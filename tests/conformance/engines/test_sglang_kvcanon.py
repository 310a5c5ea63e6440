"""kvcanon as SGLang's tree core, in SGLang's environment."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

import pytest

from in_peer import broken_in, run_in
from kvcanon.sglang_plugin import register
from kvcanon.sglang_release import SELECTS
from paths import HELPERS
from sglang_world import RELEASE, said

CONFIGURATIONS = 19
NO_WINDOW_TO_LOSE = "has no window, or a state that every insert must bring"
SKIPPED = {
    "bigrams_are_matched": "SGLang has no bigrams where there are states",
    "a_lost_window_is_healed": NO_WINDOW_TO_LOSE,
    "a_locked_node_is_healed_in_its_slots": NO_WINDOW_TO_LOSE,
    "windows_leave_alone": "has no window",
    "copies_to_the_host_come_back": "SGLang's fixture has no host tier for windows with states",
    "random_locks_stay_sound": "SGLang's fuzz draws windows that end inside a page",
}
"""Why steps of SGLang's kit are skipped in some configurations."""


@cache
def kit(core: str, device: str = "cpu") -> dict[str, dict[str, str]]:
    """What SGLang's own kit came to over a core, by configuration and step."""
    done = run_in(RELEASE, "-W", "ignore", str(HELPERS / "sglang_kit.py"), core, device)
    assert done.returncode == 0, done.stderr
    report: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return report


@cache
def has_gpu() -> bool:
    """Whether torch finds a GPU in SGLang's environment."""
    code = "import torch; print(torch.cuda.is_available())"
    return run_in(RELEASE, "-c", code).stdout.strip() == "True"


def require(device: str) -> None:
    """Skip a test where SGLang's environment has no such device."""
    if device == "cuda" and not has_gpu():
        pytest.skip("torch finds no GPU in SGLang's environment")


@pytest.mark.nightly
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("core", ["kvcanon", "python"])
def test_sglangs_own_kit_holds(core: str, device: str) -> None:
    """Every step holds in each of SGLang's 19 configurations, or is skipped for a known reason."""
    require(device)
    report = kit(core, device)
    assert len(report) == CONFIGURATIONS
    for label, steps in report.items():
        for name, outcome in steps.items():
            expected = ("held", f"skipped: {SKIPPED.get(name)}")
            assert outcome in expected, f"{label}: {name}: {outcome}"


@pytest.mark.nightly
def test_each_step_of_the_kit_is_played() -> None:
    """No step is skipped everywhere, and the fuzz runs with a window, and with a state as well."""
    report = kit("kvcanon")
    names = {name for steps in report.values() for name in steps}
    held = {
        name: [label for label, steps in report.items() if steps[name] == "held"] for name in names
    }
    assert min(map(len, held.values())) >= 3
    assert any("MAMBA" in label for label in held["random_locks_stay_sound"])
    assert len(held["copies_to_the_host_come_back"]) == 17


@pytest.mark.nightly
def test_the_laws_hold_with_pools_on_a_gpu() -> None:
    """Slots are kept in tensors on the device then; no law is broken in the first cases."""
    require("cuda")
    code = (
        "from kvcanon.conformance.engines.sglang import factory\n"
        "from kvcanon.conformance.engines.sglang.adapters_bridged import BRIDGED as ADAPTER\n"
        "factory.DEVICE = 'cuda'\n"
    )
    assert broken_in(RELEASE, code, cases=25) == set()


@pytest.mark.nightly
def test_requests_go_as_with_the_rust_core() -> None:
    """Both cores give the same hits, hints, answers and sizes, and tell a router the same."""
    done = run_in(RELEASE, "-W", "ignore", str(HELPERS / "sglang_cores.py"), "kvcanon", "rust")
    assert done.returncode == 0, done.stderr
    report: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert [shape["differences"] for shape in report] == [[]] * len(report)
    for shape in report:
        assert shape["sums"]["device_prefix_len"] > 1000
        assert shape["sums"]["served"] > 100
    assert report[-1]["sums"]["host_hit_length"] > 100


@pytest.mark.nightly
def test_the_scheduler_matches_no_more_than_with_sglangs_own_cores() -> None:
    """It would match every waiting request in each step, which makes them all recent."""
    assert said("print(core.supports_fast_match_prefix())") == "False"


def test_a_release_without_tree_cores_does_not_serve_in_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SGLang only logs what a plugin raises; where the core is not selected it does not matter."""
    monkeypatch.delenv(SELECTS, raising=False)
    monkeypatch.setitem(sys.modules, "sglang", None)
    register()
    monkeypatch.setenv(SELECTS, "kvcanon")
    with pytest.raises(SystemExit, match=rf"made for sglang==0\.5\.23 .*or unset {SELECTS}"):
        register()


@pytest.mark.nightly
def test_an_older_sglang_ends_with_one_line() -> None:
    """SGLang 0.5.14 has plugins and no tree cores, and knows nothing of the variable."""
    code = "from kvcanon.sglang_plugin import register; register()"
    environment = f"import os; os.environ['{SELECTS}'] = 'kvcanon'; "
    assert run_in("sglang==0.5.14", "-W", "ignore", "-c", code).returncode == 0
    done = run_in("sglang==0.5.14", "-W", "ignore", "-c", environment + code)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "made for sglang==0.5.23 and this is 0.5.14, which has no tree cores" in line


CHANGES = {
    "enable_session_radix_cache=True": "--enable-session-radix-cache",
    "component_registry_override={1: 2}": "component_registry_override",
    "tree_components=[*kinds, Made(name='C128')]": "components C128",
    "tree_components=[Made(name='SWA')]": "tree_components",
    "eviction_policy='tlru'": "--radix-eviction-policy tlru",
    "eviction_policy_config={'threshold': 2}": "--radix-eviction-policy-config",
    "swa_gates_prefix_match=False": "windows that do not belong to the tree",
    "decoder_swa_bounded_replay=True": "--enable-decoder-swa-bounded-replay",
    "req_to_token_pool=Made(mamba_ckpt_pool=1)": "--enable-int8-mamba-checkpoint",
    "token_to_kv_pool_allocator=type('MultiEndedAllocator', (), {})()": "--enable-unified-memory",
}
"""Parameters of a cache that are refused, each with the words that its refusal has."""


@pytest.mark.nightly
def test_what_is_not_offered_is_refused_by_its_flag() -> None:
    """The factory refuses when the server starts, and says how to go back."""
    attempts = "\n".join(f"attempt(dict({change}))" for change in ["", *CHANGES])
    words = said(
        """
def attempt(change):
    try:
        start_checks.refuse_what_is_not_offered(Made(**given | change))
        print("offered")
    except ValueError as error:
        print(error)
"""
        + attempts
    ).splitlines()
    assert words[0] == "offered"
    for line, flag in zip(words[1:], CHANGES.values(), strict=True):
        assert flag in line
        assert "unset SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND" in line


@pytest.mark.nightly
def test_buffers_linkers_and_hints_are_refused() -> None:
    """What reaches a running core and is not offered is refused with a flag, never ignored."""
    words = said(
        """
from array import array
from sglang.srt.mem_cache.base_prefix_cache import InsertParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from kvcanon.optimized.sglang import inserts
def attempt(call):
    try:
        call()
    except ValueError as error:
        print(error)
memory = Made(hicache_storage_backend="file", hicache_host_memory_mode="cache")
start_checks._server_setting = lambda _: memory
start_checks.refuse_what_is_not_offered(Made(**given))
memory = Made(hicache_storage_backend="file", hicache_host_memory_mode="buffer_only")
attempt(lambda: start_checks.refuse_what_is_not_offered(Made(**given)))
memory = Made(enable_lmcache=True)
attempt(lambda: start_checks.refuse_what_is_not_offered(Made(**given)))
memory = Made(radix_cache_backend="other")
attempt(lambda: start_checks.refuse_what_is_not_offered(Made(**given)))
attempt(lambda: setattr(core, "enable_external_cache_linker", True))
attempt(core.set_host_memory_buffer_only)
attempt(lambda: core.build_hicache_transfers(0, 0, "load_back"))
attempt(lambda: core.inc_full_pin(0))
attempt(lambda: core.finish_external_linker_offload([], 0, True))
attempt(lambda: core.node_by_id(0))
attempt(lambda: inserts.slots_of(Made(rotation_base=1, c128_value=None), "cpu"))
attempt(lambda: inserts.slots_of(Made(rotation_base=None, c128_value=1), "cpu"))
key, slots = RadixKey(array("q", [1])), world.allocator.alloc(1)
world.cache.insert(InsertParams(key=key, value=slots))
attempt(lambda: setattr(core, "is_write_back", True))
start_checks.version = lambda _: "0.5.24"
attempt(lambda: start_checks.refuse_what_is_not_offered(Made(**given)))
"""
    ).splitlines()
    flags = [
        *("buffer_only", "--enable-lmcache", "--radix-cache-backend other"),
        *("--enable-unified-cache-external-linker", "buffer_only", "calls of their own"),
        *("buffer_only", "--enable-unified-cache-external-linker", "reads tree nodes"),
        *("--enable-kv-cache-sharding", "C128", "attached to a running cache", "this is 0.5.24"),
    ]
    assert len(words) == len(flags)
    for line, flag in zip(words, flags, strict=True):
        assert flag in line


@pytest.mark.nightly
def test_the_walks_of_the_scheduler_and_of_its_checks() -> None:
    """Orders of requests, paths, and all slots are those of SGLang's Python core."""
    words = said(
        """
from array import array
from random import Random
def played(backend):
    config = CacheConfig(page_size=2, device_slots=Counts(full=64))
    cache = make_unified_world(config, backend).cache
    import sglang.srt.mem_cache.base_prefix_cache as calls
    from sglang.srt.mem_cache.radix_cache import RadixKey
    random, ends = Random(3), []
    for _ in range(14):
        tokens = array("q", [random.randrange(2) for _ in range(8)])
        slots = cache.token_to_kv_pool_allocator.alloc(8)
        cache.insert(calls.InsertParams(key=RadixKey(tokens), value=slots))
        found = cache.match_prefix(calls.MatchPrefixParams(key=RadixKey(tokens)))
        ends.append(found.last_device_node)
    core = cache.tree_core
    paths = core.collect_path_info(ends)
    walk = core.walk_for_kv_canary(False, False)
    rows = sorted(zip(*(each.tolist() for each in (
        walk.slot_indices, walk.positions, walk.prev_slot_indices)), strict=True))
    return [
        core.dfs_weight_order(ends),
        [[(step.path_start, step.path_end, step.full_value_len, step.num_children)
          for step in path] for path in paths],
        sorted(core.all_values_flatten().tolist()), rows, core.total_size(),
    ]
ours, theirs = played("kvcanon"), played("python")
print([one == other for one, other in zip(ours, theirs, strict=True)], len(ours[3]))
try:
    core.collect_path_info([12345])
except KeyError:
    print("KeyError")
core.pretty_print()
"""
    ).splitlines()
    assert words[0].startswith("[True, True, True, True, True] ")
    assert int(words[0].split()[-1]) > 20
    assert words[1] == "KeyError"
    assert "full_lock=0" in words[2]


@pytest.mark.nightly
def test_events_carry_what_sglang_puts_into_them() -> None:
    """Hashes, parents, tokens, salts, sessions and LoRA names are those of SGLang's Python core."""
    words = said(
        """
from array import array
from sglang.srt.disaggregation.kv_events import BlockStored
from sglang.srt.mem_cache.events import KvEventLoraNames
from sglang.srt.mem_cache.radix_cache import RadixKey
import sglang.srt.mem_cache.base_prefix_cache as calls
from kvcanon.conformance.engines.sglang import factory
request = Made(lora_id="f" * 32, extra_key="tenant" + "f" * 32)
names = KvEventLoraNames()
names.register(request, "adapter")
def played(backend, dynamo):
    config = CacheConfig(page_size=2, device_slots=Counts(full=32), slot_bytes=4)
    options = {"tree_core_backend": backend, "dynamo_kv_event_format": dynamo,
               "kv_event_lora_names": names}
    cache = factory.make_world(config, "UnifiedRadixCache", options).cache
    turns = [(None, None, None), ("plain", None, "s1"), (None, "salt", None),
             (request.extra_key, "salt", "s2"), (None, "salt", "s3")]
    for extra_key, salt, session in turns:
        tokens = array("q", range(6 if session else 4))
        slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
        key = RadixKey(tokens, extra_key, cache_salt=salt)
        cache.insert(calls.InsertParams(key=key, value=slots, session_id=session))
    cache.evict(calls.EvictParams(num_tokens=100))
    pages = []
    for event in cache.take_events():
        if isinstance(event, BlockStored):
            parent = event.parent_block_hash
            for at, block in enumerate(event.block_hashes):
                tokens = event.token_ids[2 * at : 2 * at + 2]
                pages.append((block, parent, tokens, event.block_size, str(event.medium),
                              event.cache_salt, event.session_id, event.lora_name))
                parent = block
        else:
            pages.append((type(event).__name__, len(getattr(event, "block_hashes", ()))))
    stored = [page for page in pages if len(page) > 2]
    removed = sum(page[1] for page in pages if len(page) == 2)
    return stored, removed
for dynamo in (False, True):
    ours, theirs = played("kvcanon", dynamo), played("python", dynamo)
    print(ours == theirs, len(ours[0]), ours[1], len({page[0] for page in ours[0]}))
    print(sorted({str(page[5:]) for page in ours[0]}))
"""
    ).splitlines()
    for summary, fields in (words[:2], words[2:]):
        assert summary.startswith("True 1")
        assert "('salt', 's2', 'adapter')" in fields
        assert "(None, 's1', None)" in fields


@pytest.mark.nightly
def test_events_are_encoded_as_sglangs_own() -> None:
    """The events equal SGLang's in bytes, when their lists are read, and when they are copied."""
    made = said(
        """
import copy, pickle
from array import array
import msgspec
from sglang.srt.disaggregation import kv_events as events
from sglang.srt.mem_cache import base_prefix_cache as calls
from sglang.srt.mem_cache.radix_cache import RadixKey
from kvcanon.conformance.engines.sglang import factory
def taken(backend):
    config = CacheConfig(page_size=2, device_slots=Counts(full=600), slot_bytes=4)
    cache = factory.make_world(config, "UnifiedRadixCache", {"tree_core_backend": backend}).cache
    for first in (0, 100, 200, 65530, 131000):
        tokens = array("q", range(first, first + 400 if first == 65530 else first + 6))
        slots = cache.token_to_kv_pool_allocator.alloc(len(tokens))
        cache.insert(calls.InsertParams(key=RadixKey(tokens), value=slots))
    cache.evict(calls.EvictParams(num_tokens=1000))
    return cache.take_events()
ours, theirs = taken("kvcanon"), taken("python")
def of_stores(those):
    return [each for each in those if isinstance(each, events.BlockStored)]
stored = [of_stores(ours), of_stores(theirs)]
encode = lambda those: msgspec.msgpack.encode(events.KVEventBatch(ts=1.0, events=those))
print(stored[0] == stored[1], stored[1] == stored[0], encode(stored[0]) == encode(stored[1]))
print(repr(stored[0]) == repr(stored[1]), len(stored[0]), stored[0][0] == stored[1][1])
copied = pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)
print([each == ours and encode(each) == encode(ours) for each in copied])
print({type(each).__name__ for each in ours} == {type(each).__name__ for each in theirs})
print(sum(len(each.block_hashes) for each in ours if isinstance(each, events.BlockRemoved)))
"""
    ).splitlines()
    assert made == ["True True True", "True 5 False", "[True, True]", "True", "212"]


FOUND_AT_STANDARD_EFFORT = (
    {
        "config": {
            "window_tokens": 1,
            "device_slots": {"full": 16, "swa": 9, "mamba": 0},
            "host_slots": {"full": 9, "swa": 2, "mamba": 0},
            "write_policy": "write_through",
        },
        "actions": [
            ["lock_a_chat", 0, 0, 0],
            ["lock_a_chat", 1, 0, 0],
            ["serve", 0, 0, 2],
            ["evict_host", 1, 0, 0],
        ],
        "drain": [],
        "unobserved": True,
    },
    {
        "config": {
            "window_tokens": 2,
            "mamba": True,
            "device_slots": {"full": 20, "swa": 14, "mamba": 6},
            "host_slots": {"full": 19, "swa": 3, "mamba": 5},
            "write_policy": "write_back",
            "eviction_policy": "slru",
        },
        "actions": [
            ["evict_above_a_bare_tail", 3398, 1202, 1544],
            ["evict_above_a_bare_tail", 1015, 3261, 2252],
            ["lock_a_chat", 3185, 1878, 3328],
            ["evict", 2463, 3822, 1670],
            ["evict", 1868, 2155, 2214],
            ["evict_host", 2723, 4059, 3682],
            ["serve", 1832, 1124, 1977],
            ["insert_unwritten", 2465, 1468, 1323],
            ["evict_above_a_bare_tail", 1202, 269, 3068],
            ["compute_twice", 1083, 2320, 3649],
            ["insert_unwritten", 948, 1875, 1786],
            ["insert_unwritten", 3073, 2640, 1440],
            ["insert_unwritten", 2777, 46, 142],
            ["insert_unwritten", 2655, 1837, 211],
            ["serve", 2216, 2828, 3486],
        ],
        "drain": [],
    },
)


@pytest.mark.nightly
@pytest.mark.parametrize("number", range(len(FOUND_AT_STANDARD_EFFORT)))
def test_cases_that_only_a_standard_check_found(number: int) -> None:
    """A plan without room on the host ends with the unlock of any node, the root too (EVICT-1).

    A victim is copied as a whole, also where what leaves has a copy (REC-3).
    """
    played = f"""
from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.cache_names import load_adapter
case = case_from_json({FOUND_AT_STANDARD_EFFORT[number]!r})
findings, tallies = play(case, [load_adapter("sglang-kvcanon")])
print([finding.broken for finding in findings], [tally.steps > 0 for tally in tallies.values()])
"""
    assert said(played).splitlines()[-1] == "[] [True]"
