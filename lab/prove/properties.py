"""Properties of several oracle functions together, on which laws, reference and judge rely.

None of these follows from a function being right about one input. They relate its answers to
different inputs: a tree and the same tree cut elsewhere, a stream and its halves.
"""

from __future__ import annotations

from kvcanon.spec.oracle.backup import backup_chain
from kvcanon.spec.oracle.eviction import policy_key, pre_evict_need, refresh
from kvcanon.spec.oracle.folding import fold_page, is_alternating
from kvcanon.spec.oracle.framing import frame
from kvcanon.spec.oracle.grounds import owned_once
from kvcanon.spec.oracle.pages import split, whole_pages
from kvcanon.spec.oracle.prefix import shared_pages, usable_prefix
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.types import EvictionPolicy

Lengths = tuple[int, ...]
Flags = tuple[bool, ...]


def usable_prefix_ignores_cuts(
    lengths: Lengths, full: Flags, swa: Flags, state: Flags, window: int, at: int, upper: int
) -> int:
    """Where a segment is cut changes nothing; its state stays with the lower part.

    pre: len(lengths) == len(full) == len(swa) == len(state) <= 3 and 0 <= at < len(lengths)
    pre: all([1 <= length <= 1 << 20 for length in lengths]) and 1 <= window <= 1 << 20
    pre: 0 < upper < lengths[at]
    post: __return__ == usable_prefix(lengths, full, swa, state, window)
    """
    return usable_prefix(
        (*lengths[:at], upper, lengths[at] - upper, *lengths[at + 1 :]),
        (*full[: at + 1], *full[at:]),
        (*swa[: at + 1], *swa[at:]),
        (*state[:at], False, *state[at:]),
        window,
    )


def usable_prefix_grows_with_data(
    lengths: Lengths, full: Flags, swa: Flags, state: Flags, window: int, at: int
) -> int:
    """More data never makes less usable: what is usable on the device is usable at all.

    pre: len(lengths) == len(full) == len(swa) == len(state) <= 3 and 0 <= at < len(lengths)
    pre: all([1 <= length <= 1 << 20 for length in lengths]) and 1 <= window <= 1 << 20
    post: __return__ >= usable_prefix(lengths, full, swa, state, window)
    """
    return usable_prefix(
        lengths,
        (*full[:at], True, *full[at + 1 :]),
        (*swa[:at], True, *swa[at + 1 :]),
        (*state[:at], True, *state[at + 1 :]),
        window,
    )


def usable_prefix_of_whole_pages_is_whole(
    pages: Lengths, full: Flags, swa: Flags, state: Flags, window: int, page_size: int
) -> int:
    """If segments are whole pages, so is the usable prefix: it divides by the page size exactly.

    pre: len(pages) == len(full) == len(swa) == len(state) <= 2
    pre: all([1 <= count <= 3 for count in pages]) and 1 <= window <= 9
    pre: page_size == 1 or page_size == 2 or page_size == 3
    post: whole_pages(__return__, page_size) * page_size == __return__
    """
    return usable_prefix(tuple([count * page_size for count in pages]), full, swa, state, window)


def locked_window_is_refreshed(pages: Lengths, window_tokens: int, page_size: int) -> int:
    """A page that a lock pins is one that a match makes recent.

    pre: len(pages) <= 4
    pre: all([1 <= count <= 1 << 10 for count in pages])
    pre: 1 <= window_tokens <= 1 << 10 and (page_size == 1 or page_size == 16)
    post: sum(pages) - __return__ <= window_start(sum(pages), window_tokens, page_size)
    """
    upwards = tuple([count * page_size for count in pages])
    return sum(pages[: window_nodes(upwards, window_tokens, page_size)])


def parted_pages_are_found_again(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """A key that parts from a node's pages shares all of the upper part after the cut there.

    pre: len(ours) <= 3 and len(theirs) <= 3
    post: shared_pages(split(ours, __return__)[0], theirs) == __return__
    """
    return shared_pages(ours, theirs)


def backed_up_chain_is_empty(backed: Flags, needs_backed_parents: bool) -> tuple[int, ...]:
    """Once the chain is copied there is nothing left to copy.

    pre: 1 <= len(backed) <= 5
    post: len(__return__) == 0
    """
    chain = backup_chain(backed, needs_backed_parents)
    copied = tuple([flag or at in chain for at, flag in enumerate(backed)])
    return backup_chain(copied, needs_backed_parents)


def evicted_room_is_enough(needed: int, free: int) -> int:
    """Once what was missing has been evicted, nothing is missing.

    pre: 0 <= needed <= 1 << 20 and 0 <= free <= 1 << 20
    post: __return__ == 0
    """
    return pre_evict_need(needed, free + pre_evict_need(needed, free))


def policy_key_lies_between_corners(
    policy: EvictionPolicy, hits: int, used: int, most: tuple[int, int], least: tuple[int, int]
) -> tuple[int, int]:
    """With hits and last use known within bounds, the first and last key lie at the corners.

    pre: 0 <= least[0] <= hits <= most[0]
    pre: least[1] <= used <= most[1]
    post: min(corners(policy, most, least)) <= __return__ <= max(corners(policy, most, least))
    """
    return policy_key(policy, hits, used, 0, 0)


def use_makes_leave_later(
    policy: EvictionPolicy, hits: int, used: int, age: int, rank: int
) -> bool:
    """A later use makes a node leave later where recency counts, and sooner under MRU.

    pre: 0 <= hits <= 8
    post: __return__ == (policy.name in ("LRU", "LFU", "SLRU", "PRIORITY"))
    """
    return policy_key(policy, hits, used + 1, age, rank) > policy_key(policy, hits, used, age, rank)


def hits_make_leave_later(
    policy: EvictionPolicy, hits: int, used: int, age: int, rank: int
) -> bool:
    """Each hit makes a node leave later under LFU, the second hit under SLRU; elsewhere none does.

    pre: 0 <= hits <= 8
    post: __return__ == (policy.name == "LFU" or policy.name == "SLRU" and hits == 1)
    """
    return policy_key(policy, hits + 1, used, age, rank) > policy_key(policy, hits, used, age, rank)


def corners(
    policy: EvictionPolicy, most: tuple[int, int], least: tuple[int, int]
) -> list[tuple[int, int]]:
    """The ranks at the corners, from which the judge takes the first and the last."""
    return [
        policy_key(policy, hits, used, 0, 0)
        for hits in (most[0], least[0])
        for used in (most[1], least[1])
    ]


def streams_fold_in_parts(present: bool, first: Flags, second: Flags) -> bool:
    """Folding one part of a stream after the other is folding it whole.

    pre: len(first) <= 3 and len(second) <= 3
    post: __return__ == fold_page(present, first + second)
    """
    return fold_page(fold_page(present, first), second)


def streams_alternate_in_parts(present: bool, first: Flags, second: Flags) -> bool:
    """A stream makes sense if each part does after what came before, so it is asked event by event.

    pre: len(first) <= 3 and len(second) <= 3
    post: __return__ == is_alternating(present, first + second)
    """
    return is_alternating(present, first) and is_alternating(fold_page(present, first), second)


def fields_are_framed_injectively(
    one: bytes | None, two: bytes | None, other_one: bytes | None, other_two: bytes | None
) -> bool:
    """Two pairs of fields are framed alike only where they are the same (sgl#24638).

    pre: (one is None or len(one) <= 1) and (two is None or len(two) <= 1)
    pre: (other_one is None or len(other_one) <= 1) and (other_two is None or len(other_two) <= 1)
    post: __return__ == (one == other_one and two == other_two)
    """
    return frame(one) + frame(two) == frame(other_one) + frame(other_two)


def no_slot_is_lost(owned: tuple[int, ...], slot: int) -> bool:
    """Where no slot is owned twice and as many are owned as there are, each is owned.

    pre: len(owned) <= 4
    pre: 0 <= slot < len(owned) and owned_once(owned, len(owned))
    post: __return__
    """
    return slot in owned


def refreshed_again_is_the_same(
    order: tuple[int, ...], touched: tuple[int, ...]
) -> tuple[int, ...]:
    """To use the same again changes nothing: a match that is repeated leaves the order alone.

    pre: len(order) <= 3 and len(touched) <= 2
    pre: all([order[at] not in order[:at] for at in range(len(order))])
    pre: all([touched[at] not in touched[:at] for at in range(len(touched))])
    post: __return__ == refresh(order, touched)
    """
    return refresh(refresh(order, touched), touched)
