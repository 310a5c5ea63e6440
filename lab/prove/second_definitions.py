"""Second definitions: each oracle function once more, in another way, too plain to be wrong.

They count where the oracle function divides, look at each token or try every answer where it
computes, and replay steps one by one where it takes all at once. None is meant to be fast.

Two definitions that agree can still both be wrong. So they have nothing in common: not the same
loop, not the same formula, and none calls an oracle function.
"""

from __future__ import annotations

from kvcanon.spec.types import EvictionPolicy

Rank = tuple[int, int]


def whole_pages(length_tokens: int, page_size: int) -> int:
    """Fill page after page, while there are tokens for one."""
    pages = 0
    while length_tokens >= page_size:
        length_tokens -= page_size
        pages += 1
    return pages


def pages_covering(length_tokens: int, page_size: int) -> int:
    """Begin another page while there are tokens."""
    pages = 0
    while length_tokens > 0:
        length_tokens -= page_size
        pages += 1
    return pages


def usable_prefix(
    lengths: tuple[int, ...],
    full: tuple[bool, ...],
    swa: tuple[bool, ...],
    state: tuple[bool, ...],
    window: int,
) -> int:
    """Try every end from the last one up, until all is there that a reader at it looks at."""
    for count in range(len(lengths), 0, -1):
        ends = [sum(lengths[: at + 1]) for at in range(count)]
        sees = [end > ends[-1] - window for end in ends]
        has_all = all(full[:count])
        has_window = all(swa[at] for at in range(count) if sees[at])
        if has_all and has_window and state[count - 1]:
            return ends[-1]
    return 0


def usable_prefix_by_token(
    lengths: tuple[int, ...], full: tuple[bool, ...], swa: tuple[bool, ...], window: int
) -> int:
    """Try every position, token by token, of a model without states."""
    has_full = [flag for length, flag in zip(lengths, full, strict=True) for _ in range(length)]
    has_swa = [flag for length, flag in zip(lengths, swa, strict=True) for _ in range(length)]
    for end in range(len(has_full), 0, -1):
        if all(has_full[:end]) and all(has_swa[max(0, end - window) : end]):
            return end
    return 0


def shared_pages(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int:
    """Try every length, and keep the longest that is the same in both."""
    lengths = range(min(len(ours), len(theirs)) + 1)
    return max(
        [length for length in lengths if all(ours[at] == theirs[at] for at in range(length))]
    )


def window_nodes(lengths: tuple[int, ...], window_tokens: int, page_size: int) -> int:
    """Ask each node whether its token that is nearest to the end is near enough."""
    nearest = [sum(lengths[:at]) for at in range(len(lengths))]
    return sum([tokens < window_tokens + page_size for tokens in nearest])


def window_start(end_pages: int, window_tokens: int, page_size: int) -> int:
    """Go up from the end, page by page, while the page has a token in the window."""
    start, seen_tokens = end_pages, 0
    while start > 0 and seen_tokens < window_tokens:
        start -= 1
        seen_tokens += page_size
    return start


def in_window(start: int, pages: int, window_from: int) -> bool:
    """Ask each page of a node that no window begins inside of."""
    return all(page >= window_from for page in range(start, start + pages))


def backup_chain(backed: tuple[bool, ...], needs_backed_parents: bool) -> tuple[int, ...]:
    """Copy the parent first, where it has to be, and then the node."""
    at = len(backed) - 1
    above: tuple[int, ...] = ()
    if needs_backed_parents and at > 0:
        above = backup_chain(backed[:-1], needs_backed_parents)
    return above if backed[at] else (*above, at)


def needs_copy(on_host: bool, is_last: bool, needs_backed_parents: bool) -> bool:
    """Leave out this one copy on a path that has all others, and see if the last node is usable."""
    path = [True, on_host] if is_last else [on_host, True]
    looked_at = path if needs_backed_parents else path[-1:]
    return not all(looked_at)


def split(items: tuple[int, ...], at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Hand out item by item, to one or the other."""
    upper: list[int] = []
    lower: list[int] = []
    for place, item in enumerate(items):
        (upper if place < at else lower).append(item)
    return tuple(upper), tuple(lower)


def pre_evict_need(needed: int, free: int) -> int:
    """Evict one more while it is not enough."""
    evicted = 0
    while free + evicted < needed:
        evicted += 1
    return evicted


def leaves_before(  # noqa: PLR0911  # Each policy has a sentence of its own.
    policy: EvictionPolicy, one: tuple[int, int, int, int], other: tuple[int, int, int, int]
) -> bool:
    """Whether one node leaves before another, said of each policy in words of its own.

    A node is its hits, its last use, its age and its priority.
    """
    hits, used, created, priority = one
    other_hits, other_used, other_created, other_priority = other
    if policy is EvictionPolicy.FIFO:
        return created < other_created
    if policy is EvictionPolicy.FILO:
        return created > other_created
    if policy is EvictionPolicy.MRU:
        return used > other_used
    if policy is EvictionPolicy.LFU and hits != other_hits:
        return hits < other_hits
    if policy is EvictionPolicy.PRIORITY and priority != other_priority:
        return priority < other_priority
    if policy is EvictionPolicy.SLRU and (hits < 2) != (other_hits < 2):
        return hits < 2
    return used < other_used


def victim_order(keys: tuple[Rank, ...]) -> tuple[int, ...]:
    """Take the smallest, the first of equals, again and again."""
    left = list(range(len(keys)))
    order: list[int] = []
    while left:
        first = left[0]
        for at in left:
            if keys[at] < keys[first]:
                first = at
        left.remove(first)
        order.append(first)
    return tuple(order)


def may_leave_device(on_device: bool, locked: bool, child_on_device: bool) -> bool:
    """Take it away and look: something is gone, it was not locked, and nothing stood on it."""
    there = {"node"} if on_device else set()
    child = {"child"} if child_on_device else set()
    before, after = there | child, (there | child) - {"node"}
    return len(after) < len(before) and "child" not in after and not locked


def may_leave_host(on_device: bool, on_host: bool, locked: bool, has_children: bool) -> bool:
    """Take it away and look: a copy is gone, data of the device is not, and nobody is orphaned."""
    before = ["host"] * on_host + ["device"] * on_device + ["child"] * has_children
    after = [each for each in before if each != "host"]
    return len(after) < len(before) and len(after) == 0 and not locked


def last_was_needed(freed_each: tuple[int, ...], asked: int) -> bool:
    """Try each victim as the last, and see if it was still too little before."""
    before = [sum(freed_each) - freed for freed in freed_each if freed > 0]
    return any(freed < asked for freed in before)


def has_ground(there: bool, ground: bool) -> bool:
    """What is there is a part of what has ground, both taken as sets."""
    return set(["data"] * there) <= set(["data"] * ground)


def fold_page(present: bool, history: tuple[bool, ...]) -> bool:
    """Do to a set what the events say."""
    there = {"page"} if present else set()
    for stored in history:
        if stored:
            there.add("page")
        else:
            there.discard("page")
    return len(there) == 1


def is_alternating(present: bool, history: tuple[bool, ...]) -> bool:
    """Look at each event beside the one before it."""
    before = (present, *history)
    return not any(before[at] == history[at] for at in range(len(history)))


def refresh(order: tuple[int, ...], touched: tuple[int, ...]) -> tuple[int, ...]:
    """One use after another."""
    queue = list(order)
    for item in touched:
        if item in queue:
            queue.remove(item)
        queue.append(item)
    return tuple(queue)


def owned_once(owned: tuple[int, ...], capacity: int) -> bool:
    """Count how often each slot is named, and those that the pool does not have."""
    named = [sum([slot == each for each in owned]) for slot in range(capacity)]
    return all(count < 2 for count in named) and sum(named) == len(owned)
