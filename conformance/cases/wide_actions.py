"""Wide actions: long prompts, large numbers, and many operations of one kind.

The other actions do not reach faults that need many cuts of one node, many hits, or tokens and
slots beyond 16 bits. Wide actions are drawn more often in a wide configuration; in small pools they
do less, or nothing. What they do depends only on the configuration and the picks.
"""

from __future__ import annotations

from kvcanon.conformance.cases.client import ActionKind, Client, enter
from kvcanon.conformance.cases.prompts import branches_of, page_of, points_of, twin
from kvcanon.spec.types import FULL, GPU, SWA, Counts, Key, Slots

WIDE: dict[str, ActionKind] = {}
"""Every wide action by name."""

PRIORITIES = (-(1 << 31), -300, -2, -1, 0, 1, 2, 300, (1 << 31) - 1)
HITS = (2, 3, 5, 20)
"""How often a prompt may be inserted again: beyond 15 in one case of four."""
MOST_TOUCHES = 96
SLOTS_TO_TOUCH = 6
"""In small pools there is one touch per this many slots."""
SPROUTS = 100
"""The first letter of the sprouts, which no other prompt has."""
MOST_SPROUTS = 48
VAST_SPROUTS, VAST_SLOTS = 300, 1 << 14
"""The most sprouts in pools of at least so many slots: more nodes than one byte counts."""
MOST_BLOCK = 150
"""The most slots that `fragment` allocates at a time: more than two words of 64 bits."""
LEFT_SLOTS = 1 << 9
"""How many slots of a pool `occupy` leaves free."""


@enter(WIDE, 1)
def serve_twin(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request for a known key with other high bits in one token."""
    _serve(client, twin(client.known(a, 1), b, c))


@enter(WIDE, 1)
def serve_long(client: Client, a: int, b: int, c: int) -> None:
    """Run a whole request for a long prompt."""
    _serve(client, client.long_prompt(a, b, c))


@enter(WIDE, 1)
def admit_long(client: Client, a: int, b: int, c: int) -> None:
    """Match a long prompt, lock the device prefix, and allocate slots for the rest."""
    key = client.long_prompt(a, b, c)
    client.keys.append(key)
    client.start(key, client.cache.match(key).device_pages, counted_pages=0)


@enter(WIDE, 1)
def finish_ranked(client: Client, a: int, _b: int, c: int) -> None:
    """Insert all pages that a request computed, with a priority that may be large or negative."""
    if client.requests:
        request = client.requests[a % len(client.requests)]
        client.insert(request, priority=PRIORITIES[c % len(PRIORITIES)])


@enter(WIDE, 1)
def rank(client: Client, a: int, b: int, c: int) -> None:
    """Insert the device prefix of a known key again, with a large or negative priority."""
    client.hit(client.known(a, b), PRIORITIES[c % len(PRIORITIES)])


@enter(WIDE, 1)
def hit_again(client: Client, a: int, b: int, c: int) -> None:
    """Insert the device prefix of a known key several times."""
    key = client.known(a, b)
    for _ in range(HITS[c % len(HITS)]):
        if not client.hit(key, priority=0):
            return


@enter(WIDE, 1)
def branch(client: Client, a: int, b: int, c: int) -> None:
    """Insert keys that branch off a known one at three points, in any order: it is cut there."""
    for key in branches_of(client.known(a, 1), client.cache.config, b, c):
        client.keys.append(key)
        client.put(key)


@enter(WIDE, 1)
def lock_parts(client: Client, a: int, b: int, c: int) -> None:
    """Lock three prefixes of a known key."""
    key = client.known(a, 1)
    for at in points_of(key, b, c):
        client.receipts.append(client.cache.lock(key.prefix(at)))


@enter(WIDE, 2)
def unlock_some(client: Client, a: int, b: int, _c: int) -> None:
    """Unlock a few of the locks that no request holds, in any order."""
    for at in range(1 + b % 4):
        if client.receipts:
            client.unlock(client.receipts[(a + at) % len(client.receipts)])


@enter(WIDE, 1)
def touch_many(client: Client, a: int, b: int, _c: int) -> None:
    """Match up to 96 known keys one after the other, without evictions."""
    slots = client.cache.config.capacity(FULL, GPU)
    for at in range(min(MOST_TOUCHES, slots // SLOTS_TO_TOUCH) if client.keys else 0):
        client.cache.match(client.known(a + at * (1 + b % 5), 1))


@enter(WIDE, 1)
def occupy(client: Client, _a: int, _b: int, _c: int) -> None:
    """Allocate all but some hundred slots of large pools, until the end of the case."""
    config = client.cache.config
    full, swa = (max(0, config.capacity(each, GPU) - LEFT_SLOTS) for each in (FULL, SWA))
    if full and not client.blocks:
        client.blocks.append(client.cache.allocate(Counts(full, min(full, swa))))


@enter(WIDE, 1)
def sprout(client: Client, a: int, b: int, c: int) -> None:
    """Insert many short keys with a common prefix, without evictions."""
    config, key = client.cache.config, client.known(a, 1).prefix(b % 2)
    slots = config.capacity(FULL, GPU)
    most = VAST_SPROUTS if slots >= VAST_SLOTS and a % 2 else MOST_SPROUTS
    for at in range(min(most, slots // SLOTS_TO_TOUCH)):
        page = page_of(SPROUTS + c % 4 * most + at, config.page_size, bigram=config.bigram)
        _serve(client, Key((*key.pages, page), key.namespace))


@enter(WIDE, 1)
def fragment(client: Client, a: int, b: int, c: int) -> None:
    """Allocate four blocks, free those in the middle, and allocate across the gap."""
    most = min(MOST_BLOCK, max(1, client.cache.config.capacity(FULL, GPU) // 3))
    sizes = [1 + pick % most for pick in (a, b, c, a + b)]
    taken: list[Slots] = []
    try:
        for size in sizes:
            # One by one, so that a refusal leaves the earlier slots known and they are freed.
            taken.append(client.cache.allocate(Counts(full=size)))  # noqa: PERF401
        for _ in range(2):
            client.cache.free(taken.pop(1))
        taken.append(client.cache.allocate(Counts(full=sizes[1] + sizes[2] + c % 8)))
    finally:
        for slots in taken:
            client.cache.free(slots)


@enter(WIDE, 1)
def free_together(client: Client, a: int, b: int, c: int) -> None:
    """Allocate a block with window slots and one without, and free both in one call."""
    count = 1 + a % 4
    paired = client.cache.allocate(Counts(count, count if SWA in client.components else 0))
    full = paired.full
    try:
        bare = client.cache.allocate(Counts(full=1 + b % 4)).full
        full = (*full, *bare) if c % 4 else (*bare, *full)
    finally:
        client.cache.free(Slots(full, paired.swa))


def _serve(client: Client, key: Key) -> None:
    client.keys.append(key)
    request = client.start(key, client.cache.match(key).device_pages, counted_pages=0)
    client.insert(request, priority=0)
