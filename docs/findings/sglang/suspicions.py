"""What reading SGLang's source gave reason to expect, tried: each is shown, or it is not.

    python suspicions.py [rust]

Beside SGLang it uses `small.py`; later releases also have a Rust core. It prints what it saw,
and ends with exit code 0.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from small import RELEASE, Small


def healing_takes_locked_slots() -> bool:
    """Full slots that a request has locked come free when another heals their tombstone."""
    small = Small(8, window=1)
    small.insert([1, 2, 3])
    read = small.match([1, 2, 3])
    mine = set(small.slots(read).tolist())
    small.cache.inc_lock_ref(read.last_device_node)
    small.evict(window_tokens=2)
    small.insert([1, 2])
    return bool(mine & set(small.allocate(small.free_tokens()).tolist()))


def host_lock_is_lost_on_a_cut() -> bool:
    """Of what is locked on the host the upper part is not, after a cut, and may leave."""
    small = Small(8, host_tokens=12)
    small.insert([1, 2])
    small.wait()
    small.evict(tokens=8)
    small.cache.inc_host_lock_ref(small.match([1, 2]).best_match_node)
    small.match([1, 9])
    small.cache.evict_host(8)
    return bool(small.match([1, 2]).host_hit_length < len([1, 2]))


def window_is_released_that_was_not_locked() -> bool:
    """A release without the mark where its window begins goes to the root, and raises nothing."""
    small = Small(8, window=1)
    small.insert([1, 2])
    node = small.match([1, 2]).last_device_node
    small.cache.inc_lock_ref(node)
    params = import_module("sglang.srt.mem_cache.base_prefix_cache").DecLockRefParams()
    try:
        small.cache.dec_lock_ref(node, params)
    except Exception as error:  # noqa: BLE001 # The error differs by release.
        print(f"    it raises {type(error).__name__}: {str(error)[:80]}")
        return False
    return True


def host_insert_emits_no_store() -> bool:
    """A host insert emits no store on the host."""
    small = Small(8, host_tokens=12)
    hashes = ["ab" * 32, "cd" * 32]
    slots = small.cache.cache_controller.mem_pool_host.alloc(2)
    if hasattr(small.cache, "tree_core"):
        root = small.cache.tree_core.root_node_handle(None)
        small.cache.tree_core.insert_host(root, small.key([1, 2]), slots, hashes)
    else:
        small.cache._insert_helper_host(  # noqa: SLF001 # It has no other name there.
            small.cache.root_node, small.key([1, 2]), slots, hashes
        )
    found = small.match([1, 2]).host_hit_length
    return bool(found) and not small.events()


def host_insert_below_what_has_no_copy() -> bool:
    """What is inserted on the host may hang below what has no copy there."""
    small = Small(8, host_tokens=12, write_policy="write_through_selective")
    small.insert([1])
    slots = small.cache.cache_controller.mem_pool_host.alloc(2)
    above = small.match([1]).last_device_node
    hashes = ["ab" * 32, "cd" * 32]
    if hasattr(small.cache, "tree_core"):
        small.cache.tree_core.insert_host(above, small.key([2, 3]), slots, hashes)
    else:
        small.cache._insert_helper_host(above, small.key([2, 3]), slots, hashes)  # noqa: SLF001
    return bool(small.match([1, 2, 3]).host_hit_length)


def namespaces_share_event_ids() -> bool:
    """A page is emitted as removed under one extra key, while it is cached under another."""
    small = Small(8)
    small.insert([1, 2], extra_key="one")
    small.insert([1, 2], extra_key="two")
    stored = small.events()
    small.evict(tokens=1)
    gone = {each for _, hashes, _, _ in small.events() for each in hashes}
    left = small.hit([1, 2], "one") + small.hit([1, 2], "two")
    ids = [each for _, hashes, _, _ in stored for each in hashes]
    return bool(left) and any(ids.count(each) > 1 for each in gone)


def slots_are_freed_and_adopted() -> bool:
    """An insert from inside a tombstone on frees slots and keeps them."""
    small = Small(8, window=1)
    small.insert([1, 2, 3], window_gone=2)
    # Its tombstone has two tokens; a request that owns the first of them computes the others.
    small.insert([1, 2, 3], reused=small.slots(small.match([1, 2, 3]))[:1])
    owned = small.cache.all_values_flatten().tolist()
    free = small.allocate(small.free_tokens()).tolist()
    return bool(set(owned) & set(free))


def last_host_node_has_no_copy() -> bool:
    """A match names a node as the last on the host that has no copy there."""
    small = Small(8, host_tokens=12, write_policy="write_through_selective")
    small.insert([1, 2])
    node = small.match([1, 2]).last_host_node
    if hasattr(small.cache, "is_backuped"):
        return not small.cache.is_root(node) and not small.cache.is_backuped(node)
    return node is not small.cache.root_node and not node.backuped


TRIED: tuple[Callable[[], bool], ...] = (
    healing_takes_locked_slots,
    host_lock_is_lost_on_a_cut,
    window_is_released_that_was_not_locked,
    host_insert_emits_no_store,
    host_insert_below_what_has_no_copy,
    namespaces_share_event_ids,
    slots_are_freed_and_adopted,
    last_host_node_has_no_copy,
)
for tried in TRIED:
    print(f"SGLang {RELEASE}: {tried.__doc__}")
    print(f"    {'shown' if tried() else 'not shown'}")
