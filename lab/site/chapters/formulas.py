"""The definitions as formulas: each an expression of the arguments of its function.

A test evaluates each beside its function on drawn arguments, so that a formula says what runs.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvcanon.spec.oracle.eviction import EvictionPolicy, policy_key

FORMULAS: Mapping[str, str] = {
    "usable_prefix": """\
max(
    sum(lengths[:n]) for n in range(len(lengths) + 1)
    if all(full[:n])
    and (n == 0 or state[n - 1])
    and any(all(swa[k:n]) and (k == 0 or sum(lengths[k:n]) >= window) for k in range(n + 1))
)""",
    "shared_pages": """\
max(n for n in range(min(len(ours), len(theirs)) + 1) if ours[:n] == theirs[:n])""",
    "window_start": "max(0, end_pages - ceil(window_tokens / page_size))",
    "window_nodes": """\
min(
    (n for n in range(len(lengths)) if sum(lengths[:n]) >= window_tokens + page_size),
    default=len(lengths),
)""",
    "in_window": "start >= window_from",
    "pre_evict_need": "max(0, needed - free)",
    "may_leave_device": "on_device and not locked and not child_on_device",
    "may_leave_host": "on_host and not on_device and not locked and not has_children",
    "serves_shortage": "any(freed > 0 and lacks > 0 for freed, lacks in zip(lost, short))",
    "last_was_needed": "largest > 0 and freed - largest < asked",
    "victim_order": "tuple(sorted(range(len(keys)), key=lambda at: keys[at]))",
    "refresh": "tuple(i for i in order if i not in touched) + touched",
    "needs_copy": "not on_host and (is_last or needs_backed_parents)",
    "backup_chain": """\
tuple(
    at for at in range(len(backed))
    if not backed[at] and (at == len(backed) - 1 or needs_backed_parents)
)""",
    "page_hash": 'sha256(parent + b"".join(token.to_bytes(4, "little") for token in page))',
    "namespace_seed": """\
b"" if namespace == Namespace() else sha256(NAMESPACE_TAG + encode_namespace(namespace))""",
    "wire_id": 'int.from_bytes(block_hash[:8], "big", signed=True)',
    "whole_pages": "floor(length_tokens / page_size)",
    "pages_covering": "ceil(length_tokens / page_size)",
    "split": "(items[:at], items[at:])",
    "has_ground": "ground or not there",
    "lock_has_ground": "lock_refs <= ground_refs",
    "owned_once": "len(set(owned)) == len(owned) and all(0 <= s < capacity for s in owned)",
    "fold_page": "history[-1] if history else present",
    "is_alternating": "all(was != now for was, now in zip((present, *history), history))",
    "frame": """\
b"\\0" if field is None else b"\\1" + len(field).to_bytes(4, "little") + field""",
}
"""The formula of each function, by its name."""

_PROBE = {"hit_count": 5, "last_access": 7, "created": 11, "priority": 13}
"""Values of the arguments of `policy_key` by which its answer says which of them it took."""


def policy_table() -> str:
    """The key of each eviction policy, read off its function, as Markdown."""
    rows = ["| policy | first | then | what leaves first |", "|---|---|---|---|"]
    for policy in EvictionPolicy:
        low = policy_key(policy, **{**_PROBE, "hit_count": 1})
        high = policy_key(policy, **_PROBE)
        parts = (_part(*both) for both in zip(low, high, strict=True))
        rows.append(f"| `{policy}` | {' | '.join(parts)} | {LEAVES_FIRST[policy]} |")
    return "\n".join(rows)


def _part(low: int, high: int) -> str:
    """What a part of a key is, by its values for one hit and for five."""
    names = {value: f"`{name}`" for name, value in _PROBE.items()}
    if (low, high) == (1, _PROBE["hit_count"]):
        return names[high]
    if low != high:
        return "0 below two hits, else 1"
    if high in names:
        return names[high]
    return f"-{names[-high]}" if -high in names else "0"


LEAVES_FIRST: Mapping[EvictionPolicy, str] = {
    EvictionPolicy.LRU: "the leaf that was used longest ago",
    EvictionPolicy.LFU: "the leaf with the fewest hits; of these, the one used longest ago",
    EvictionPolicy.FIFO: "the leaf that was inserted first",
    EvictionPolicy.MRU: "the leaf that was used last",
    EvictionPolicy.FILO: "the leaf that was inserted last",
    EvictionPolicy.SLRU: "leaves with fewer than two hits; of these, the one used longest ago",
    EvictionPolicy.PRIORITY: "the leaf of the lowest priority; of these, the one used longest ago",
}
