"""Equivalence: each oracle function is what its second definition says, within bounds.

The bounds are small, because a solver takes every path through both. A function that is right for
five nodes may be wrong for six; random tests compare it with its second definition far beyond.

A claim returns what the oracle function answers. The second definition stands in the contract.
"""

from __future__ import annotations

from kvcanon.lab.prove import second_definitions
from kvcanon.spec.oracle.backup import backup_chain, needs_copy
from kvcanon.spec.oracle.eviction import (
    last_was_needed,
    may_leave_device,
    may_leave_host,
    policy_key,
    pre_evict_need,
    refresh,
    serves_shortage,
    victim_order,
)
from kvcanon.spec.oracle.folding import fold_page, is_alternating
from kvcanon.spec.oracle.framing import frame, unframe
from kvcanon.spec.oracle.grounds import has_ground, lock_has_ground, owned_once
from kvcanon.spec.oracle.pages import pages_covering, split, whole_pages
from kvcanon.spec.oracle.prefix import shared_pages, usable_prefix
from kvcanon.spec.oracle.window import in_window, window_nodes, window_start
from kvcanon.spec.types import EvictionPolicy


def whole_pages_is_counting(length_tokens: int, page_size: int) -> int:
    """Whole pages are those that can be filled one by one.

    pre: 0 <= length_tokens <= 24 and 1 <= page_size <= 24
    post: __return__ == second_definitions.whole_pages(length_tokens, page_size)
    """
    return whole_pages(length_tokens, page_size)


def pages_covering_is_counting(length_tokens: int, page_size: int) -> int:
    """The covering pages are those that begin one by one as tokens come.

    pre: 0 <= length_tokens <= 24 and 1 <= page_size <= 24
    post: __return__ == second_definitions.pages_covering(length_tokens, page_size)
    """
    return pages_covering(length_tokens, page_size)


def usable_prefix_is_last_usable_end(
    lengths: tuple[int, ...],
    full: tuple[bool, ...],
    swa: tuple[bool, ...],
    state: tuple[bool, ...],
    window: int,
) -> int:
    """The usable prefix ends at the last end at which all is there that its reader looks at.

    pre: len(lengths) == len(full) == len(swa) == len(state) <= 3
    pre: all([1 <= length <= 1 << 20 for length in lengths]) and 1 <= window <= 1 << 20
    post: __return__ == second_definitions.usable_prefix(lengths, full, swa, state, window)
    """
    return usable_prefix(lengths, full, swa, state, window)


def usable_prefix_is_last_usable_token(
    lengths: tuple[int, ...], full: tuple[bool, ...], swa: tuple[bool, ...], window: int
) -> int:
    """Positions inside a segment need not be asked, where the model has no states.

    pre: len(lengths) == len(full) == len(swa) <= 2
    pre: all([1 <= length <= 3 for length in lengths]) and 1 <= window <= 4
    post: __return__ == second_definitions.usable_prefix_by_token(lengths, full, swa, window)
    """
    return usable_prefix(lengths, full, swa, (True,) * len(lengths), window)


def shared_pages_is_longest_common(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """Two stretches share the longest prefix that is the same in both.

    pre: len(ours) <= 4 and len(theirs) <= 4
    post: __return__ == second_definitions.shared_pages(ours, theirs)
    """
    return shared_pages(ours, theirs)


def window_nodes_is_asking_each(
    lengths: tuple[int, ...], window_tokens: int, page_size: int
) -> int:
    """The nodes that are touched are those that reach near enough to the end.

    pre: len(lengths) <= 8
    pre: all([1 <= length <= 1 << 20 for length in lengths])
    pre: 1 <= window_tokens <= 1 << 20 and 1 <= page_size <= 1 << 20
    post: __return__ == second_definitions.window_nodes(lengths, window_tokens, page_size)
    """
    return window_nodes(lengths, window_tokens, page_size)


def window_start_is_going_up(end_pages: int, window_tokens: int, page_size: int) -> int:
    """A window begins with the first page that its end can see a token of.

    pre: 0 <= end_pages <= 12
    pre: 1 <= window_tokens <= 24 and 1 <= page_size <= 24
    post: __return__ == second_definitions.window_start(end_pages, window_tokens, page_size)
    """
    return window_start(end_pages, window_tokens, page_size)


def in_window_is_every_page(start: int, pages: int, window_from: int) -> bool:
    """A node is in a window if all its pages are, where no window begins inside it.

    pre: 1 <= pages <= 6
    pre: 0 <= start <= 1 << 20 and 0 <= window_from <= 1 << 20
    pre: not start < window_from < start + pages
    post: __return__ == second_definitions.in_window(start, pages, window_from)
    """
    return in_window(start, window_from)


def backup_chain_is_recursion(
    backed: tuple[bool, ...], needs_backed_parents: bool
) -> tuple[int, ...]:
    """The chain is what is copied where each node has its parent copied first.

    pre: 1 <= len(backed) <= 6
    post: __return__ == second_definitions.backup_chain(backed, needs_backed_parents)
    """
    return backup_chain(backed, needs_backed_parents)


def needs_copy_is_the_chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> bool:
    """Of a path, the nodes that need a copy are those that recursion copies.

    pre: 1 <= len(backed) <= 5
    post: __return__
    """
    last, chain = len(backed) - 1, second_definitions.backup_chain(backed, needs_backed_parents)
    asked = [needs_copy(flag, at == last, needs_backed_parents) for at, flag in enumerate(backed)]
    return asked == [at in chain for at in range(len(backed))]


def needs_copy_is_leaving_it_out(on_host: bool, is_last: bool, needs_backed_parents: bool) -> bool:
    """A copy is needed if without it the last node cannot be used from the host.

    post: __return__ == second_definitions.needs_copy(on_host, is_last, needs_backed_parents)
    """
    return needs_copy(on_host, is_last, needs_backed_parents)


def split_is_handing_out(
    items: tuple[int, ...], at: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A cut hands out each item to one of two parts.

    pre: len(items) <= 6
    pre: 0 <= at <= len(items)
    post: __return__ == second_definitions.split(items, at)
    """
    return split(items, at)


def pre_evict_need_is_one_by_one(needed: int, free: int) -> int:
    """What must be evicted is what is evicted where one asks after each slot.

    pre: 0 <= needed <= 32 and 0 <= free <= 32
    post: __return__ == second_definitions.pre_evict_need(needed, free)
    """
    return pre_evict_need(needed, free)


def policy_key_is_the_policy(
    policy: EvictionPolicy, one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> bool:
    """Of two nodes the one with the smaller key leaves first, as the policy says in words.

    pre: one[0] >= 0 and other[0] >= 0
    post: __return__ == second_definitions.leaves_before(policy, one, other)
    """
    return policy_key(policy, *one) < policy_key(policy, *other)


def victim_order_is_taking_the_first(
    keys: tuple[tuple[int, int], ...],
) -> tuple[int, ...]:
    """Victims in order are those that are first of the rest, again and again.

    pre: len(keys) <= 3
    post: __return__ == second_definitions.victim_order(keys)
    """
    return victim_order(keys)


def may_leave_device_is_trying(on_device: bool, locked: bool, child_on_device: bool) -> bool:
    """A node leaves the device as a leaf of it, and not under a lock.

    post: __return__ == second_definitions.may_leave_device(on_device, locked, child_on_device)
    """
    return may_leave_device(on_device, locked, child_on_device)


def may_leave_host_is_trying(
    on_device: bool, on_host: bool, locked: bool, has_children: bool
) -> bool:
    """A node leaves the host if it is there only, childless and not locked.

    post: __return__ == second_definitions.may_leave_host(on_device, on_host, locked, has_children)
    """
    return may_leave_host(on_device, on_host, locked, has_children)


def serves_shortage_is_some_pool(lost: tuple[int, int, int], short: tuple[int, int, int]) -> bool:
    """A victim serves a shortage if some pool is short and got something.

    pre: all([0 <= slots <= 1 << 20 for slots in lost + short])
    post: __return__ == (sum([got * lacked for got, lacked in zip(lost, short)]) > 0)
    """
    return serves_shortage(lost, short)


def last_was_needed_is_some_order(freed_each: tuple[int, ...], asked: int) -> bool:
    """By total and largest alone it is known whether some order had the last victim needed.

    pre: 1 <= len(freed_each) <= 5
    pre: all([0 <= freed <= 1 << 20 for freed in freed_each]) and 0 <= asked <= 1 << 20
    post: __return__ == second_definitions.last_was_needed(freed_each, asked)
    """
    return last_was_needed(sum(freed_each), asked, max(freed_each))


def fold_page_is_a_set(present: bool, history: tuple[bool, ...]) -> bool:
    """A page is where it is after each event was done to a set.

    pre: len(history) <= 6
    post: __return__ == second_definitions.fold_page(present, history)
    """
    return fold_page(present, history)


def is_alternating_is_neighbours(present: bool, history: tuple[bool, ...]) -> bool:
    """Events make sense if no two neighbours say the same.

    pre: len(history) <= 6
    post: __return__ == second_definitions.is_alternating(present, history)
    """
    return is_alternating(present, history)


def refresh_is_one_by_one(order: tuple[int, ...], touched: tuple[int, ...]) -> tuple[int, ...]:
    """To refresh many at once is to use them one after the other.

    pre: len(order) <= 3 and len(touched) <= 2
    pre: all([order[at] not in order[:at] for at in range(len(order))])
    pre: all([touched[at] not in touched[:at] for at in range(len(touched))])
    post: __return__ == second_definitions.refresh(order, touched)
    """
    return refresh(order, touched)


def owned_once_is_counting(owned: tuple[int, ...], capacity: int) -> bool:
    """No slot has two owners, and none is outside, if each is named once at most.

    pre: len(owned) <= 3 and 0 <= capacity <= 3
    post: __return__ == second_definitions.owned_once(owned, capacity)
    """
    return owned_once(owned, capacity)


def has_ground_is_being_a_part(there: bool, ground: bool) -> bool:
    """What is there needs ground; what is not there needs none.

    post: __return__ == second_definitions.has_ground(there, ground)
    """
    return has_ground(there, ground)


def lock_has_ground_is_one_each(lock_refs: int, ground_refs: int) -> bool:
    """Each lock ref has one of the ground to stand on.

    pre: 0 <= lock_refs <= 12 and 0 <= ground_refs <= 1 << 20
    post: __return__ == all([ref < ground_refs for ref in range(lock_refs)])
    """
    return lock_has_ground(lock_refs, ground_refs)


def unframe_undoes_frame(field: bytes | None, rest: bytes) -> tuple[bytes | None, bytes]:
    """A field is read back, whatever follows it: so no two lists of fields are framed alike.

    pre: (field is None or len(field) <= 3) and len(rest) <= 6
    post: __return__ == (field, rest)
    """
    return unframe(frame(field) + rest)
