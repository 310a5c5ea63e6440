"""Every field that passes between SGLang's controller and the core is followed, set, or refused.

A field that is left at its default in silence costs hits, and no error. So each field of SGLang's
own objects has a line here: one that a new release adds fails until somebody says what it means.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from in_peer import run_in

pytestmark = pytest.mark.nightly

RELEASE = "sglang==0.5.23"
SCRIPT = Path(__file__).parents[2] / "helpers" / "sglang_fields.py"

FOLLOWED = "followed"
REFUSED = "refused where it asks for what is not offered"
CONTROLLER = "SGLang's controller and its components use it; its own core does not read it"

GIVEN = {
    "CacheInitParams": {
        **dict.fromkeys(
            (
                *("page_size", "is_eagle", "token_to_kv_pool_allocator", "eviction_policy"),
                *("enable_kv_cache_events", "dynamo_kv_event_format", "kv_event_lora_names"),
                *("sliding_window_size", "draft_swa_window"),
            ),
            FOLLOWED,
        ),
        **dict.fromkeys(
            (
                *("eviction_policy_config", "enable_session_radix_cache", "req_to_token_pool"),
                *("swa_gates_prefix_match", "decoder_swa_bounded_replay", "tree_components"),
                "component_registry_override",
            ),
            REFUSED,
        ),
        **dict.fromkeys(
            (
                *("disable", "tree_core_backend", "enable_metrics", "chunked_prefill_size"),
                *("tp_cache_group", "attn_cp_cache_group", "attn_tp_cache_group"),
                *("pp_cache_group", "pp_rank", "pp_size", "attn_cp_rank", "attn_cp_size"),
                *("enable_mamba_extra_buffer", "enable_mamba_extra_buffer_lazy"),
                *("mtp_draft_device_pools", "sidecar_draft_device_pools"),
                "mtp_draft_mamba_pools",
            ),
            CONTROLLER,
        ),
    },
    "MatchPrefixParams": {"key": FOLLOWED, "cow_mamba": CONTROLLER, "req": CONTROLLER},
    "InsertParams": {
        **dict.fromkeys(
            (
                *("key", "value", "mamba_value", "prev_prefix_len", "swa_branching_seqlen"),
                *("component_evicted_seqlens", "inserted_len", "priority", "session_id"),
                "track_adopted_ranges",
            ),
            FOLLOWED,
        ),
        "rotation_base": REFUSED,
        "c128_value": REFUSED,
        "mamba_keep_idx": CONTROLLER,
    },
    "DecLockRefParams": dict.fromkeys(
        (
            *("node_id", "skipped_lock_components", "component_lock_uuids"),
            "component_host_lock_uuids",
        ),
        FOLLOWED,
    ),
}
"""What the controller gives, and what the core does with each field."""

SET = "set"
SEPARATE = "the actions go with the answer to the call itself, not with this part of it"
STORAGE = "set where pages come from storage, which no request here shows"
UNIFIED = "SGLang's own cores leave it as well"
EARLIER = "the step that names a victim has freed it, or the step after its copy does"
NOT_HERE = "nothing of it is freed by this call"
ANSWERS: dict[str, dict[str, str]] = {
    "MatchResult": {
        **dict.fromkeys(
            (
                *("device_prefix_len", "last_device_node", "last_host_node", "best_match_node"),
                *("host_hit_length", "swa_host_hit_length", "swa_branching_seqlen"),
                *("mamba_host_hit_length", "mamba_branching_seqlen", "full_kv_hit_length"),
                "last_visited_node_id",
            ),
            SET,
        ),
        "cache_actions": "set where a cut node is being copied, which no request here shows",
        "cache_protected_len": "sessions, which SGLang's controller matches",
        "full_device_match_len": "C128, which is refused",
    },
    "InsertResult": {
        **dict.fromkeys(
            (
                *("prefix_len", "last_device_node", "mamba_exist", "swa_branch_inserted"),
                "adopted_ranges",
            ),
            SET,
        ),
        "cache_actions": SEPARATE,
        **dict.fromkeys(("total_len", "inserted_host_node", "host_insert_dropped"), STORAGE),
        "rotation_tail_declined": "--enable-kv-cache-sharding, which is refused",
    },
    "IncLockRefResult": dict.fromkeys(
        (
            *("delta", "node_id", "skipped_lock_components", "component_lock_uuids"),
            "component_host_lock_uuids",
        ),
        SET,
    ),
    "DecLockRefResult": {"delta": UNIFIED},
    "InsertStepResult": {"actions": SET, "result": SET},
    "EvictDeviceNextNodeResult": {
        **dict.fromkeys(
            (
                *("device_frees", "tracker", "node_id", "made_progress", "unbacked_tokens"),
                *("mamba_backup_node_id", "swa_backup_node_id", "swa_backup_num_tokens"),
            ),
            SET,
        ),
        "host_frees": "host slots that leave with a victim, which no request here shows",
        "cache_actions": UNIFIED,
    },
    "EvictDeviceLeafResult": {
        "backup_kv": SET,
        **dict.fromkeys(("device_frees", "host_frees", "tracker", "unbacked_tokens"), EARLIER),
        "cache_actions": UNIFIED,
    },
    "DemoteResult": {
        "device_frees": SET,
        "tracker": SET,
        "host_frees": NOT_HERE,
        "cache_actions": UNIFIED,
    },
    "DriveHostEvictionResult": {
        "host_frees": SET,
        "tracker": SET,
        "device_frees": NOT_HERE,
        "cache_actions": UNIFIED,
    },
    "DropSubtreeNoHostResult": dict.fromkeys(
        ("device_frees", "host_frees", "tracker", "cache_actions", "is_dropped"),
        "set where a copy fails, which no request here shows",
    ),
    "DecSwaLockOnlyResult": dict.fromkeys(
        ("device_frees", "host_frees", "tracker", "cache_actions"), UNIFIED
    ),
}
"""What the core answers, and why a field that is not set is not."""

INHERITED = {
    "take_events": "it asks `kv_events`",
    "supports_rotation_base": "no: --enable-kv-cache-sharding is refused",
    "rotation_base_of": "as above",
    "rotation_phase_of": "as above",
    "supports_fast_match_prefix": "no: it would make every waiting request recent",
    "write_back_duplicate_reclaim_digest": "an attribute of each core",
}
"""What the core takes from SGLang's interface as it is."""
ATTRIBUTES = {
    *("device", "enable_external_cache_linker", "enable_hicache", "enable_storage"),
    *("has_swa_host_pool", "is_eagle", "is_host_memory_buffer_only", "is_write_back"),
    *("kv_events", "page_size", "supports_rotation_base", "write_back_duplicate_reclaim_digest"),
    "write_through_threshold",
}


@cache
def report() -> dict[str, Any]:
    """What SGLang's Python core and kvcanon read and set."""
    done = run_in(RELEASE, "-W", "ignore", str(SCRIPT))
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return value


def test_every_field_and_call_is_known() -> None:
    """The objects have these fields and no others, and so has the interface."""
    found = report()
    known = {name: set(fields) for name, fields in (GIVEN | ANSWERS).items()}
    assert {name: set(fields) for name, fields in found["fields"].items()} == known
    assert set(found["inherited"]) == set(INHERITED)
    assert set(found["attributes"]) == ATTRIBUTES


@pytest.mark.parametrize("name", GIVEN)
def test_what_is_given_is_followed_or_refused(name: str) -> None:
    """Kvcanon reads what SGLang's core reads, and what it has to refuse."""
    theirs, ours = (set(report()[core]["read"][name]) for core in ("python", "kvcanon"))
    read = {field for field, stands in GIVEN[name].items() if stands != CONTROLLER}
    assert ours == read
    assert theirs <= read


@pytest.mark.parametrize("name", ANSWERS)
def test_what_is_answered_is_set(name: str) -> None:
    """Kvcanon sets what SGLang's core sets, but for what has a reason."""
    theirs, ours = (set(report()[core]["set"][name]) for core in ("python", "kvcanon"))
    expected = {field for field, stands in ANSWERS[name].items() if stands == SET}
    assert ours == expected
    assert {field for field in theirs - ours if ANSWERS[name][field] != EARLIER} == set()
