"""The plain cache over a store: writes, prefetches, and what counts of them.

The laws judge the same in drawn cases; these are the scenes that an engine meets.
"""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.cases import stamps
from kvcanon.reference import ReferenceCache
from kvcanon.reference.store_queue import InlineQueue, ManualQueue
from kvcanon.reference.stores.memory_store import MemoryServer, MemoryStore
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.law import LAWS
from kvcanon.spec.operations import HostInserted, LoadDecision, Ordered, PollStore, StorePolled
from kvcanon.spec.stores.pages import StoreIdentity
from kvcanon.spec.tier import (
    SEAL_BYTES,
    OrderKind,
    OrderProgress,
    StoreCalls,
    StoreOrder,
    seal,
    unseal,
)
from kvcanon.spec.types import CPU, DISK, EXTERNAL, FULL, GPU, Counts, Key, Medium, make_key
from kvcanon.spec.views import Step

CONFIG = CacheConfig(
    device_slots=Counts(full=8), host_slots=Counts(full=8), write_policy="write_through"
)
PROMPT = make_key([1, 2, 3, 4], 1)
LONGER = make_key([1, 2, 3, 4, 5, 6], 1)
ALL = 99


def scene(
    medium: Medium = DISK, config: CacheConfig = CONFIG
) -> tuple[ReferenceCache, ManualQueue]:
    """A cache over an empty store."""
    queue = ManualQueue(medium)
    return ReferenceCache(config, store=queue), queue


def put(cache: ReferenceCache, key: Key) -> None:
    """Compute a prompt, and wait for its copy on the host."""
    slots = cache.allocate(Counts(full=len(key)))
    stamps.write_stamps(cache, key, slots)
    cache.insert(key, 0, slots)
    cache.flush()


def write(cache: ReferenceCache, queue: ManualQueue, key: Key, pages: int = ALL) -> Ordered:
    """Write host pages of a prompt, of which only so many come into the store."""
    ordered = cache.store(key)
    assert ordered.order_id is not None
    queue.go_on(ordered.order_id, pages)
    if ordered.order_id in queue.open_order_ids:
        queue.end(ordered.order_id)
    cache.poll_store()
    return ordered


def forget(cache: ReferenceCache) -> None:
    """Begin anew over the same store."""
    cache.reset(keep_store=True)
    cache.take_events()


def fetch(cache: ReferenceCache, queue: ManualQueue, key: Key, pages: int = ALL) -> HostInserted:
    """Prefetch a prompt, of which only so many pages arrive before it is ended."""
    ordered = cache.prefetch(key)
    assert ordered.order_id is not None
    queue.go_on(ordered.order_id, pages)
    cache.poll_store()
    return cache.end_prefetch(ordered.order_id)


def host_slots(cache: ReferenceCache) -> tuple[int, int]:
    """How many host slots are free, and how many are held."""
    pool = cache.snapshot().pools[FULL, CPU]
    return len(pool.free), len(pool.held)


@pytest.mark.parametrize("medium", [DISK, EXTERNAL])
def test_a_prompt_comes_back_from_the_store(medium: Medium) -> None:
    """What was written is found by a cache that knows nothing, with its bytes."""
    cache, queue = scene(medium)
    put(cache, PROMPT)
    assert write(cache, queue, PROMPT).pages == 4
    stored = [e for e in cache.take_events() if isinstance(e, BlockStored) and e.medium is medium]
    assert [event.page for event in stored] == list(PROMPT.pages)
    forget(cache)
    assert cache.match(PROMPT).prefix_pages == 0  # A match does not ask the store.
    assert fetch(cache, queue, LONGER) == HostInserted(4, 0, 0, 0)
    assert cache.match(PROMPT).prefix_pages == 4
    assert cache.load_back(PROMPT).decision is LoadDecision.ENQUEUED
    cache.flush()
    slots = cache.match(PROMPT).slots.full
    right = [stamps.stamp(FULL, name, 8) for name in cache.snapshot().store.stored]  # type: ignore[union-attr]
    assert sorted(cache.read(FULL, GPU, slot) for slot in slots) == sorted(right)


def test_pages_count_after_the_poll() -> None:
    """A page is announced once the store has it and the cache has polled, not before."""
    cache, queue = scene()
    put(cache, PROMPT)
    cache.take_events()
    ordered = cache.store(PROMPT)
    assert ordered == Ordered(ordered.order_id, 0, 4)
    assert ordered.order_id is not None
    assert cache.store(PROMPT) == Ordered(None, 0, 0)  # It is being written.
    queue.go_on(ordered.order_id, 2)
    assert cache.take_events() == ()
    assert cache.poll_store().orders == (OrderProgress(ordered.order_id, 2, ended=False),)
    assert [type(event) for event in cache.take_events()] == [BlockStored] * 2
    queue.end(ordered.order_id)
    cache.poll_store()
    assert cache.store(PROMPT).start_pages == 2  # The rest is written again.


@pytest.mark.parametrize("is_lost", [False, True])
def test_missing_and_damaged_pages_end_a_fetch(is_lost: bool) -> None:
    """A page that is gone or changed is a miss, and is announced as gone with its followers."""
    cache, queue = scene()
    put(cache, PROMPT)
    write(cache, queue, PROMPT)
    cache.evict(Counts(full=4))
    cache.evict_host(Counts(full=4))
    cache.take_events()
    if is_lost:
        queue.lose(1)
    else:
        queue.damage(1, 0)
    assert fetch(cache, queue, PROMPT).placed_pages == 1
    below = [e for e in cache.take_events() if isinstance(e, BlockRemoved) and e.medium is DISK]
    assert [each.block_hash for each in below] == [*reversed(hashes_of(PROMPT))][:3]
    put(cache, PROMPT)
    again = write(cache, queue, PROMPT)
    assert (again.start_pages, again.pages) == (1, 3)


@pytest.mark.parametrize("change", ["none", "damaged", "lost"])
@pytest.mark.parametrize("accepts", [True, False])
def test_a_queue_says_which_whole_records_were_refused(change: str, accepts: bool) -> None:
    """A record counts as refused if it is the one that was written, and no other."""
    queue = ManualQueue(DISK)
    queue.submit(StoreOrder(1, OrderKind.WRITE, PROMPT, 0, record=lambda page: bytes([page] * 8)))
    queue.go_on(1, 4)
    queue.take_calls()
    if change == "damaged":
        queue.damage(0, 0)
    if change == "lost":
        queue.lose(0)
    queue.submit(StoreOrder(2, OrderKind.FETCH, PROMPT, 0, accept=lambda _page, _record: accepts))
    queue.go_on(2, 4)
    refused = ((2, 0),) if change == "none" and not accepts else ()
    assert queue.take_calls().refused == refused
    assert queue.take_calls().refused == ()


@pytest.mark.parametrize("given_up", [False, True])
def test_a_whole_record_is_accepted_until_nobody_waits(given_up: bool) -> None:
    """A prefetch that was given up may refuse what still comes; another may not."""
    cache, queue = scene()
    put(cache, PROMPT)
    write(cache, queue, PROMPT)
    forget(cache)
    ordered = cache.prefetch(PROMPT)
    assert ordered.order_id is not None
    if given_up:
        cache.end_prefetch(ordered.order_id)
    state = cache.snapshot()
    calls = StoreCalls(refused=((ordered.order_id, 2),))
    step = Step(state, PollStore(), StorePolled(()), state, store=calls)
    assert bool(list(LAWS["TIER-15"].check(step))) is not given_up


def hashes_of(key: Key) -> tuple[bytes, ...]:
    """The names of the pages of a key."""
    return page_hashes(namespace_seed(key.namespace), key.pages)


@pytest.mark.parametrize("arrived", range(5))
@pytest.mark.parametrize("ended", [False, True])
def test_a_prefetch_that_is_given_up_leaks_nothing(arrived: int, ended: bool) -> None:
    """Whenever a prefetch is ended, all of its host slots come back."""
    cache, queue = scene()
    put(cache, PROMPT)
    write(cache, queue, PROMPT)
    forget(cache)
    order_id = cache.prefetch(PROMPT).order_id
    assert order_id is not None
    assert host_slots(cache) == (4, 4)
    queue.go_on(order_id, arrived)
    if ended and order_id in queue.open_order_ids:
        queue.end(order_id)
    cache.poll_store()
    assert cache.end_prefetch(order_id).placed_pages == arrived
    late = order_id in queue.open_order_ids
    assert host_slots(cache) == (8 - 4 if late else 8 - arrived, 4 - arrived if late else 0)
    if late:
        queue.go_on(order_id, ALL)  # A read that comes late writes into slots that wait for it.
        cache.poll_store()
    assert host_slots(cache) == (8 - arrived, 0)
    assert cache.match(PROMPT).prefix_pages == arrived


def test_a_prefetch_takes_free_slots_alone() -> None:
    """A prefetch of more pages than are free fetches the first ones, and evicts nothing."""
    cache, queue = scene(config=evolve(CONFIG, host_slots=Counts(full=5)))
    put(cache, PROMPT)
    write(cache, queue, PROMPT)
    other = make_key([7, 8], 1)
    assert cache.prefetch(other).pages == 1
    assert cache.prefetch(LONGER) == Ordered(None, 4, 0)
    assert cache.match(PROMPT).prefix_pages == 4


def test_a_reset_lets_go_of_the_store() -> None:
    """After a reset for new weights no page of the old ones is written, fetched or placed."""
    cache, queue = scene()
    put(cache, PROMPT)
    write(cache, queue, PROMPT)
    cache.reset(keep_store=True)
    order_id = cache.prefetch(PROMPT).order_id
    assert order_id is not None
    queue.go_on(order_id, ALL)
    cache.poll_store()
    cache.reset()
    with pytest.raises(BadArgument, match="which no open prefetch has"):
        cache.end_prefetch(order_id)
    cache.poll_store()
    assert host_slots(cache) == (8, 0)
    assert cache.prefetch(PROMPT) == Ordered(None, 0, 0)
    put(cache, PROMPT)
    assert cache.store(PROMPT) == Ordered(None, 0, 0)


def test_what_has_no_store_refuses_its_calls() -> None:
    """A cache without a store, one with windows and one without a host tier refuse it."""
    with pytest.raises(BadArgument, match="make the cache with a store"):
        ReferenceCache(CONFIG).store(PROMPT)
    with pytest.raises(BadArgument, match="make the cache with a store"):
        ReferenceCache(CONFIG).prefetch(PROMPT)
    assert ReferenceCache(CONFIG).poll_store().orders == ()
    with pytest.raises(BadArgument, match="keeps full data alone"):
        scene(config=evolve(CONFIG, window_tokens=2))
    with pytest.raises(BadArgument, match="needs a host tier"):
        scene(config=CacheConfig())


def test_any_page_store_will_do() -> None:
    """The plain cache writes to a store that others may open, and another cache reads from it."""
    server = MemoryServer()
    identity = StoreIdentity(page_size=1)

    def over(store: StoreIdentity) -> ReferenceCache:
        return ReferenceCache(CONFIG, store=InlineQueue(MemoryStore(server, store), DISK, 8))

    first = over(identity)
    put(first, PROMPT)
    first.store(PROMPT)
    first.poll_store()
    for weights, found in ((identity, 4), (evolve(identity, weights="weights-2"), 0)):
        other = over(weights)
        order_id = other.prefetch(LONGER).order_id
        assert order_id is not None
        (moved,) = other.poll_store().orders
        assert (moved.pages, moved.ended) == (found, True)
        assert other.end_prefetch(order_id).placed_pages == found


def test_a_seal_proves_page_and_bytes() -> None:
    """A record is opened only as the page that it was made for, whole."""
    record = seal(b"a" * 32, b"12345678")
    assert unseal(b"a" * 32, record, 8) == b"12345678"
    assert unseal(b"b" * 32, record, 8) is None
    assert unseal(b"a" * 32, record[:-1], 8) is None
    assert unseal(b"a" * 32, record + b"0", 8) is None
    for at in range(len(record)):
        changed = record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
        assert unseal(b"a" * 32, changed, 8) is None
    assert len(record) == SEAL_BYTES + 8


def test_ranks_count_what_all_have() -> None:
    """Of two ranks whose stores differ, each counts the pages that both have."""
    queues, caches, asked = [ManualQueue(DISK) for _ in range(2)], list[ReferenceCache](), [[8, 1]]

    def agree(ours: object) -> list[int]:
        return [min(pair) for pair in zip(list(ours), asked[0], strict=True)]  # type: ignore[call-overload]

    for queue in queues:
        caches.append(ReferenceCache(CONFIG, agree=list, store=queue))
    for cache, queue in zip(caches, queues, strict=True):
        put(cache, PROMPT)
        write(cache, queue, PROMPT)
        forget(cache)
    queues[1].lose(2)
    ids = [cache.prefetch(PROMPT).order_id for cache in caches]
    for queue, order_id in zip(queues, ids, strict=True):
        assert order_id is not None
        queue.go_on(order_id, ALL)
    here = [[q.progress[i].pages, q.progress[i].ended] for q, i in zip(queues, ids, strict=True)]  # type: ignore[index]
    for at, cache in enumerate(caches):
        asked[0] = [int(each) for each in here[1 - at]]
        cache._state.agree = agree
        assert [each.pages for each in cache.poll_store().orders] == [2]
        assert cache.end_prefetch(ids[at]).placed_pages == 2  # type: ignore[arg-type]
    assert caches[0].snapshot().store == caches[1].snapshot().store


def test_orders_are_shown() -> None:
    """A snapshot shows what is open, and which slots it holds."""
    cache, _ = scene()
    put(cache, PROMPT)
    written, fetched = cache.store(PROMPT).order_id, cache.prefetch(LONGER).order_id
    store = cache.snapshot().store
    assert store is not None
    shown = [(each.order_id, each.kind, len(each.slots)) for each in store.orders]
    assert shown == [(written, OrderKind.WRITE, 0), (fetched, OrderKind.FETCH, 2)]


def test_a_long_chain_leaves_whole_where_its_first_page_is_missing() -> None:
    """However many pages follow, and the last of them leaves first."""
    pages = 2_500
    slots = Counts(full=pages + 1)
    config = evolve(CONFIG, device_slots=slots, host_slots=slots, max_pending_events=8 * pages)
    cache, queue = scene(config=config)
    prompt = make_key(range(pages), 1)
    put(cache, prompt)
    assert write(cache, queue, prompt, pages).pages == pages
    cache.evict(Counts(full=pages))
    cache.evict_host(Counts(full=pages))
    cache.take_events()
    queue.lose(0)
    fetch(cache, queue, prompt)
    removed = [each.block_hash for each in cache.take_events() if isinstance(each, BlockRemoved)]
    assert removed == [*reversed(hashes_of(prompt))]
