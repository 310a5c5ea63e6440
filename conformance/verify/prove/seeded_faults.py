"""Mistakes: the seeded faults themselves, of each kernel first, and then of the steps.

What readers get wrong: these are not meant to be subtle. They are the slips of somebody who writes
the function again: one too many, the other comparison, a condition that was forgotten.
"""

from __future__ import annotations

from collections.abc import Callable

from kvcanon.conformance.verify.prove import trees
from kvcanon.conformance.verify.prove.seeding import Seeded
from kvcanon.conformance.verify.prove.steps import copies, locks, residency, room, slots
from kvcanon.spec.oracle import (
    backup,
    cutting,
    eviction,
    folding,
    framing,
    grounds,
    ownership,
    pages,
    prefix,
    recency,
    window,
)


def _seeded(function: Callable[..., object], was: str, becomes: str, *refuted_by: str) -> Seeded:
    return Seeded(f"{function.__module__}.{function.__name__}", was, becomes, refuted_by)


SEEDED = (
    _seeded(
        pages.whole_pages,
        "length_tokens // page_size",
        "-(-length_tokens // page_size)",
        "whole_pages",
        "whole_pages_is_counting",
    ),
    _seeded(
        pages.pages_covering,
        "-(-length_tokens // page_size)",
        "length_tokens // page_size + 1",
        "pages_covering_is_counting",
        "pages_covering",
        "window_start_is_going_up",
    ),
    _seeded(prefix.usable_prefix, " and has_state", "", "usable_prefix_is_last_usable_end"),
    _seeded(
        prefix.usable_prefix,
        "covered >= window",
        "covered > window",
        "usable_prefix_is_last_usable_token",
        "usable_prefix_is_last_usable_end",
    ),
    _seeded(
        prefix.usable_prefix, "covered >= window", "length >= window", "usable_prefix_ignores_cuts"
    ),
    _seeded(
        prefix.usable_prefix,
        "if has_swa else 0",
        "if has_swa else covered",
        "usable_prefix_is_last_usable_end",
        "usable_prefix_is_last_usable_token",
    ),
    _seeded(
        prefix.usable_prefix,
        " and has_state",
        " and not has_state",
        "usable_prefix_grows_with_data",
    ),
    _seeded(
        prefix.usable_prefix,
        "break",
        "continue",
        "usable_prefix_is_last_usable_end",
        "usable_prefix",
    ),
    _seeded(
        prefix.usable_prefix,
        "usable = end",
        "usable = end - covered + window",
        "usable_prefix_of_whole_pages_is_whole",
    ),
    _seeded(
        prefix.shared_pages,
        "return shared",
        "return shared + 1",
        "shared_pages",
        "shared_pages_is_longest_common",
    ),
    _seeded(prefix.shared_pages, "return min(", "return max(", "shared_pages"),
    _seeded(window.window_nodes, ">=", ">", "window_nodes_is_asking_each", "window_nodes"),
    _seeded(
        window.window_nodes,
        "window_tokens + page_size",
        "window_tokens",
        "window_nodes",
        "window_nodes_is_asking_each",
    ),
    _seeded(
        window.window_nodes,
        "window_tokens + page_size",
        "window_tokens // 2",
        "locked_window_is_refreshed",
    ),
    _seeded(window.in_window, ">=", ">", "in_window", "in_window_is_every_page"),
    _seeded(
        window.window_start,
        "pages_covering(window_tokens, page_size)",
        "window_tokens // page_size",
        "window_start",
        "window_start_is_going_up",
    ),
    _seeded(
        window.window_start,
        "max(0, end_pages - pages_covering(window_tokens, page_size))",
        "end_pages - pages_covering(window_tokens, page_size)",
        "window_start",
        "window_start_is_going_up",
    ),
    _seeded(
        backup.needs_copy,
        "(is_last | needs_backed_parents)",
        "is_last",
        "needs_copy",
        "needs_copy_is_leaving_it_out",
        "needs_copy_is_the_chain",
        "backup_chain",
        "backup_chain_is_recursion",
        "backup_grounds_host",
    ),
    _seeded(backup.needs_copy, "(on_host ^ True) & ", "", "needs_copy", "backed_up_chain_is_empty"),
    _seeded(
        backup.backup_chain, "at == last", "at == 0", "backup_chain_is_recursion", "backup_chain"
    ),
    _seeded(
        cutting.split,
        "items[:at]",
        "items[: at - 1]",
        "split",
        "split_is_handing_out",
        "parted_pages_are_found_again",
    ),
    _seeded(cutting.split, "items[at:]", "items[at + 1 :]", "split"),
    _seeded(
        eviction.pre_evict_need,
        "needed - free",
        "needed - free + 1",
        "pre_evict_need",
        "pre_evict_need_is_one_by_one",
    ),
    _seeded(
        eviction.pre_evict_need,
        "max(0, needed - free)",
        "max(0, needed)",
        "evicted_room_is_enough",
        "pre_evict_need",
    ),
    _seeded(
        eviction.may_leave_device,
        "(locked | child_on_device)",
        "locked",
        "may_leave_device",
        "may_leave_device_is_trying",
        "eviction_grounds_device",
    ),
    _seeded(
        eviction.may_leave_device,
        "(locked | child_on_device)",
        "child_on_device",
        "may_leave_device",
        "may_leave_device_is_trying",
    ),
    _seeded(
        eviction.may_leave_host,
        " | has_children",
        "",
        "may_leave_host",
        "may_leave_host_is_trying",
        "host_eviction_grounds_host",
    ),
    _seeded(
        eviction.may_leave_host,
        "on_device | locked",
        "locked",
        "may_leave_host",
        "may_leave_host_is_trying",
    ),
    _seeded(
        eviction.serves_shortage,
        "(full > 0) & (short_full > 0)",
        "(full > 0) & (short_swa > 0)",
        "serves_shortage",
        "serves_shortage_is_some_pool",
        "load_evicts_full_data_for_a_reason",
    ),
    _seeded(
        eviction.serves_shortage, "(swa > 0) & (short_swa > 0)", "(swa > 0)", "serves_shortage"
    ),
    _seeded(
        eviction.last_was_needed,
        "freed - largest < asked",
        "freed - largest <= asked",
        "last_was_needed",
        "last_was_needed_is_some_order",
    ),
    _seeded(
        eviction.last_was_needed,
        "freed - largest < asked",
        "freed < asked",
        "last_was_needed",
        "load_evicts_no_more_than_needed",
    ),
    _seeded(
        eviction.policy_key,
        "hit_count >= 2",
        "hit_count > 2",
        "policy_key_is_the_policy",
        "hits_make_leave_later",
    ),
    _seeded(
        eviction.policy_key,
        "EvictionPolicy.MRU: (0, -last_access)",
        "EvictionPolicy.MRU: (0, last_access)",
        "policy_key_is_the_policy",
        "use_makes_leave_later",
    ),
    _seeded(
        eviction.policy_key,
        "EvictionPolicy.LFU: (hit_count,",
        "EvictionPolicy.LFU: (4 - hit_count if hit_count > 2 else hit_count,",
        "policy_key",
        "policy_key_lies_between_corners",
    ),
    _seeded(
        eviction.victim_order,
        "key=keys.__getitem__",
        "key=keys.__getitem__, reverse=True",
        "victim_order_is_taking_the_first",
        "victim_order",
    ),
    _seeded(
        folding.fold_page,
        "present = stored",
        "present = present or stored",
        "fold_page",
        "fold_page_is_a_set",
    ),
    _seeded(folding.fold_page, "in history", "in history[:3]", "streams_fold_in_parts"),
    _seeded(
        folding.is_alternating,
        "stored == present",
        "stored and present",
        "is_alternating",
        "is_alternating_is_neighbours",
    ),
    _seeded(folding.is_alternating, "present = stored", "pass", "streams_alternate_in_parts"),
    _seeded(
        framing.frame,
        '_PRESENT + len(field).to_bytes(LENGTH_BYTES, "little") + field',
        "_PRESENT + field",
        "frame",
        "unframe",
        "fields_are_framed_injectively",
    ),
    _seeded(
        framing.frame,
        "return _ABSENT",
        "return _PRESENT + bytes(LENGTH_BYTES)",
        "frame",
        "unframe_undoes_frame",
    ),
    _seeded(
        framing.unframe, "framed[end:]", "framed[end + 1 :]", "unframe", "unframe_undoes_frame"
    ),
    _seeded(
        grounds.has_ground, "== there", "== ground", "has_ground", "has_ground_is_being_a_part"
    ),
    _seeded(grounds.lock_has_ground, "<=", "<", "lock_has_ground", "lock_has_ground_is_one_each"),
    _seeded(
        ownership.owned_once, "< capacity", "<= capacity", "owned_once", "owned_once_is_counting"
    ),
    _seeded(
        ownership.owned_once,
        "len(distinct) == len(owned) and ",
        "",
        "owned_once",
        "owned_once_is_counting",
        "no_slot_is_lost",
    ),
    _seeded(
        recency.refresh,
        " if i not in moved",
        "",
        "refresh_is_one_by_one",
        "refreshed_again_is_the_same",
    ),
    _seeded(
        recency.refresh,
        "tuple(i for i in order if i not in moved) + touched",
        "tuple(i for i in order if i not in moved)",
        "refresh",
        "refresh_is_one_by_one",
    ),
    _seeded(
        copies.copies_are_enqueued_root_first,
        "now + at",
        "now - at",
        "copies_are_enqueued_root_first",
    ),
    _seeded(
        trees.is_first,
        "since[other] < since[at]",
        "since[other] > since[at]",
        "ended_copy_stands_on_what_arrived",
    ),
    _seeded(
        copies.failed_copy_leaves_nothing_on_it,
        "below(parents, only(parents, node))",
        "only(parents, node)",
        "failed_copy_leaves_nothing_on_it",
    ),
    _seeded(
        residency.insert_grounds_device,
        "path_to(parents, end)",
        "only(parents, end)",
        "insert_grounds_device",
    ),
    _seeded(
        residency.load_back_grounds_device,
        "path_to(parents, end)",
        "only(parents, end)",
        "load_back_grounds_device",
    ),
    _seeded(
        residency.host_insert_grounds_host,
        "down_to(parents, end, room)",
        "only(parents, end)",
        "host_insert_grounds_host",
    ),
    _seeded(
        residency.cut_keeps_grounds,
        "(*flags[: at + 1], *flags[at:])",
        "(*flags[:at], flags[at] & False, *flags[at:])",
        "cut_keeps_grounds",
    ),
    _seeded(locks.ends_in_window, " | no(end == at)", " | (end == at)", "lock_keeps_order"),
    _seeded(
        locks.early_release_keeps_order,
        "((0,) * len(full), window, state)",
        "((0,) * len(full), window, (0,) * len(full))",
        "early_release_keeps_order",
    ),
    _seeded(
        locks.cut_refs,
        "(*mamba[:at], 0, *mamba[at:])",
        "(*mamba[: at + 1], 0, *mamba[at + 1 :])",
        "release_undoes_lock_across_a_cut",
    ),
    _seeded(locks.in_order, "[*own, *above]", "own", "nothing_locked_hangs_below_a_victim"),
    _seeded(
        room.evicted,
        " and pre_evict_need(short[pool], freed) > 0",
        "",
        "load_evicts_full_data_for_a_reason",
        "load_evicts_no_more_than_needed",
    ),
    _seeded(
        slots.handing_over_keeps_one_owner,
        "without(source, moved)",
        "source",
        "handing_over_keeps_one_owner",
    ),
    _seeded(
        slots.handing_over_keeps_one_owner,
        "either(target, moved)",
        "target",
        "handing_over_keeps_one_owner",
    ),
    _seeded(
        slots.pool_gives_each_free_slot_once,
        "tuple(pool.returned)",
        "returned",
        "pool_gives_each_free_slot_once",
    ),
    _seeded(
        slots.pool_takes_back_what_it_gave,
        "pool.give_back(pool.take(count))",
        "pool.take(count)",
        "pool_takes_back_what_it_gave",
    ),
)
"""In the order in which the kernels are written; of each, the first is refuted soonest."""
