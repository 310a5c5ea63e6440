"""TIER: what a cache orders from the store below its host tier.

A store outlives the cache, and what is written into it is read by processes that cannot ask how it
came there. So an order names its pages exactly, and each page of it has its right bytes.

What readers get wrong: a prefetch is no copy between pools. It fills host slots that it holds
itself, like a request; its pages enter the tree only when it ends, and that is judged as a host
insert (`laws.placed`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Bounds, Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws.page_hashes import short
from kvcanon.spec.laws.placed import SLOTS_OF_STORES, arrived_of, free_of, names_of
from kvcanon.spec.operations import EndPrefetch, Ordered, PollStore, Prefetch, Refused, Store
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.tier import OrderKind, StoreOrder, StoreState, unseal
from kvcanon.spec.types import CPU, GPU, Key, Slot
from kvcanon.spec.views import Step, path_of

NEEDS = (Need.SNAPSHOT, Need.STORE)


def has_a_store(run: Bounds) -> bool:
    """The cache has a store below its host tier."""
    return run.stores


def orders_pages(step: Step) -> bool:
    """Whether a store or a prefetch gave an order."""
    return isinstance(step.outcome, Ordered) and step.outcome.order_id is not None


@law(
    "TIER-1",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step]("an order to the store", orders_pages),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def orders_are_as_answered(step: Step) -> Iterator[str]:
    """A store and a prefetch give the one order that they answer, and no other call gives any.

    It is a write or a fetch of the pages of the key from `start_pages` on, as many as answered, and
    it is open from then on. An answer without an order gives none. After a reset without
    `keep_store` the cache has let go of its store: it gives no order any more.

    Why: what is written under another name is served to another prompt, by any process. And a store
    that has pages of older weights serves them after a reset, if the cache still reads it.

    Seen broken: https://github.com/vllm-project/vllm/issues/52360
    """
    if step.store is None:
        return
    name, call, answer = type(step.operation).__name__, step.operation, step.outcome
    given = step.store.submitted
    if not isinstance(call, Store | Prefetch) or not isinstance(answer, Ordered):
        if given:
            yield f"{name} gave the store {len(given)} orders; only a store and a prefetch do"
        return
    if answer.order_id is None:
        if given:
            yield f"{name} answered that it gave no order, and gave {len(given)}"
        return
    if [order.order_id for order in given] != [answer.order_id]:
        ids = [order.order_id for order in given]
        yield f"{name} answered order {answer.order_id}, and gave the orders {ids}"
        return
    if step.before.store is not None and not step.before.store.is_open:
        yield f"{name} gave an order to a store that a reset let go of"
    yield from _misordered(step, call.key, answer, given[0])


def _misordered(step: Step, key: Key, answer: Ordered, given: StoreOrder) -> Iterator[str]:
    """Where an order, or the state, is not what was answered."""
    name = f"order {answer.order_id} of this {type(step.operation).__name__}"
    pages = key.prefix(answer.start_pages + answer.pages)
    if len(pages) != answer.start_pages + answer.pages or answer.pages < 1:
        yield f"{name} is for {answer.pages} pages from {answer.start_pages} on, of {len(key)}"
    right = OrderKind.WRITE if isinstance(step.operation, Store) else OrderKind.FETCH
    if (given.kind, given.key, given.start_pages) != (right, pages, answer.start_pages):
        yield (
            f"{name} is a {given.kind} of pages {given.start_pages}..{len(given.key)} of a key; "
            f"answered was a {right} of pages {answer.start_pages}..{len(pages)} of this one"
        )
    state = None if step.after.store is None else step.after.store
    opened = [] if state is None else [o for o in state.orders if o.order_id == answer.order_id]
    if [(o.kind, o.key, o.start_pages) for o in opened] != [(right, pages, answer.start_pages)]:
        yield f"{name} is not open, or as another order, after the call"


@law(
    "TIER-2",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a page that was written into the store",
        lambda step: step.store is not None and bool(step.store.written),
    ),
    needs=(*NEEDS, Need.BYTES),
    enabled_if=has_a_store,
)
def right_bytes_are_written(step: Step) -> Iterator[str]:
    """A page is written into the store sealed, with the bytes that were written for it.

    This holds however late the store takes them: a cache that reads the host slot only then keeps
    the page in it until the write has ended.

    Why: the store outlives the cache. Wrong bytes with a right seal are served by every process
    that ever fetches the page.

    Seen broken: https://github.com/vllm-project/vllm/issues/52360,
    https://github.com/LMCache/LMCache/issues/4991
    """
    if step.store is None:
        return
    size = step.after.config.slot_bytes
    for name, record in step.store.written:
        data, right = unseal(name, record, size), step.store.right.get(name, ())
        if data is None:
            yield f"page {short(name)} was written into the store without the seal of this page"
        elif right and data not in right:
            yield (
                f"page {short(name)} was written into the store as {data[:16].hex()}; the bytes "
                f"that were written for it are {right[-1][:16].hex()}"
            )


@law(
    "TIER-3",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a store of host pages that are not in the store yet",
        lambda step: isinstance(step.operation, Store) and bool(_unstored(step)),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def what_the_host_has_is_written(step: Step) -> Iterator[str]:
    """A store writes the leading host pages of its key that follow those known to be in the store.

    All of them, and nothing else: a page after a gap on the host is not written, since nothing
    finds it. If an open order writes the first of them already, it writes nothing.

    Why: a page that is not written is computed again after every restart. A page whose beginning is
    not in the store takes room there and is never found.

    Seen broken: https://github.com/sgl-project/sglang/issues/39444,
    https://github.com/sgl-project/sglang/issues/26886
    """
    answer, store = step.outcome, step.before.store
    if not isinstance(step.operation, Store) or not isinstance(answer, Ordered) or store is None:
        return
    due = len(_unstored(step)) if store.is_open else 0
    if answer.pages != due:
        yield f"{due} host pages of the key are to be written, and the order has {answer.pages}"
    elif due and answer.start_pages != (start := _first_unstored(step)):
        yield f"the first page to write is {start}, and the order begins at {answer.start_pages}"


def _leading_on_host(state: Snapshot, key: Key) -> int:
    """The leading pages of a key that are all on the host."""
    pages = 0
    for node, shared in path_of(state, key):
        if not node.full.resident(CPU):
            break
        pages += shared
    return pages


def _first_unstored(step: Step) -> int:
    """The first page of a store's key that is not known to be in the store."""
    call, store = step.operation, step.before.store
    assert isinstance(call, Store)  # noqa: S101  # The callers have checked it.
    stored = {} if store is None else store.stored
    names = names_of(call.key)
    return next((at for at, name in enumerate(names) if name not in stored), len(names))


def _unstored(step: Step) -> range:
    """The pages that a store has to write."""
    call, store = step.operation, step.before.store
    if not isinstance(call, Store) or store is None:
        return range(0)
    start, end = _first_unstored(step), _leading_on_host(step.before, call.key)
    if start < end and names_of(call.key)[start] in being_written(store):
        return range(0)
    return range(start, end)


def being_written(store: StoreState) -> set[bytes]:
    """The pages of open writes."""
    return {
        name
        for order in store.orders
        if order.kind is OrderKind.WRITE
        for name in names_of(order.key)[order.start_pages :]
    }


@law(
    "TIER-4",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a prefetch of pages that the cache lacks, with free host slots",
        lambda step: isinstance(step.operation, Prefetch) and _fetchable(step)[1] > 0,
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def what_is_missing_is_fetched(step: Step) -> Iterator[str]:
    """A prefetch asks for all pages of its key that the cache lacks, as many as have a host slot.

    It begins after the leading pages that the cache has. Where host copies need those above them,
    these are the pages on the host; under write_back, those on the host or the device. It evicts
    nothing: a caller that wants more room calls `evict_host` first.

    It asks also for pages that it does not know to be in the store: an earlier process, or another
    one, may have written them.

    Why: a page that is not asked for is computed, though the store has it.

    Seen broken: https://github.com/sgl-project/sglang/issues/40193
    """
    answer, store = step.outcome, step.before.store
    call = step.operation
    if not isinstance(call, Prefetch) or not isinstance(answer, Ordered) or store is None:
        return
    start, due = _fetchable(step)
    if answer.pages != due:
        yield f"{due} pages of the key can be fetched, and the order has {answer.pages}"
    elif due and answer.start_pages != start:
        yield f"the first page to fetch is {start}, and the order begins at {answer.start_pages}"


def _fetchable(step: Step) -> tuple[int, int]:
    """The first page that a prefetch has to fetch, and how many."""
    call, state = step.operation, step.before
    if not isinstance(call, Prefetch) or state.store is None or not state.store.is_open:
        return 0, 0
    start = 0
    for node, shared in path_of(state, call.key):
        on_device = not state.config.backed_parents and node.full.resident(GPU)
        if not (on_device or node.full.resident(CPU)):
            break
        start += shared
    free = len(state.pools.get(SLOTS_OF_STORES, NO_POOL).free)
    return start, min(len(call.key) - start, free)


def holders_stay(difference: Difference) -> bool:
    """Whether the same host slots are held, by the same orders."""
    if "store" in difference.fields:
        return False
    was, now = (
        state.pools.get(SLOTS_OF_STORES, NO_POOL) for state in (difference.before, difference.after)
    )
    return was.held == now.held


@law(
    "TIER-5",
    Kind.STATE,
    LawClass.SERVING,
    premise=Premise[Snapshot](
        "a prefetch with slots",
        lambda state: state.store is not None and any(each.slots for each in state.store.orders),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
    follows=holders_stay,
)
def reserved_slots_have_a_prefetch(state: Snapshot) -> Iterator[str]:
    """The host slots that are held are those of open prefetches, each of one.

    A prefetch takes one for each of its pages. It gives back those of arrived pages when it is
    ended, and the others once the store writes to them no more; ALLOC-8 finds those that come to
    nobody.

    Why: a slot that a prefetch keeps is lost to the host tier until a restart, and a busy server
    ends a thousand prefetches a minute. A slot that it gives back early is overwritten by a read
    that comes late.

    Seen broken: https://github.com/sgl-project/sglang/issues/13483,
    https://github.com/sgl-project/sglang/issues/31296,
    https://github.com/sgl-project/sglang/issues/27550
    """
    if state.store is None:
        return
    of_orders = Counter(slot for order in state.store.orders for slot in order.slots)
    held = state.pools.get(SLOTS_OF_STORES, NO_POOL).held
    for slot in sorted(held - of_orders.keys()):
        yield f"host slot {slot} is held, and no open prefetch has it"
    for slot in sorted(of_orders.keys() - held):
        yield f"host slot {slot} is that of a prefetch, and is not held"
    for slot, times in of_orders.items():
        if times > 1:
            yield f"host slot {slot} is that of {times} prefetches"


@law(
    "TIER-6",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a store, a prefetch or a poll of the store beside nodes",
        lambda step: (
            isinstance(step.operation, Store | Prefetch | PollStore) and len(step.before.nodes) > 1
        ),
    ),
    needs=NEEDS,
    enabled_if=has_a_store,
)
def orders_change_no_tree(step: Step) -> Iterator[str]:
    """A store, a prefetch and a poll of the store change nothing but orders and host slots.

    A prefetch takes exactly its slots, which were free. A poll frees exactly those of prefetches
    that were given up and have ended. No node, lock, copy or recency changes. The end of a prefetch
    places pages as a host insert, or where nothing has arrived changes nothing else either.

    Why: an engine orders and polls between any two calls. What an order moves besides is gone for a
    caller that has just matched it.

    Seen broken: not seen
    """
    call = step.operation
    idle_end = isinstance(call, EndPrefetch) and not arrived_of(step)
    if isinstance(step.outcome, Refused) or not (
        isinstance(call, Store | Prefetch | PollStore) or idle_end
    ):
        return
    name = type(call).__name__
    for field in ("nodes", "recency", "holds", "transfers", "usage", "swa_of_full"):
        if getattr(step.before, field) != getattr(step.after, field):
            yield f"{name} changed the {field} of the cache"
    was, now = _held_by_orders(step.before), _held_by_orders(step.after)
    for pool, old in step.before.pools.items():
        free = free_of(step.after, pool)
        moved = pool == SLOTS_OF_STORES
        due = old.free_set - (now - was) | (was - now) if moved else old.free_set
        if free != due:
            wrong = sorted(free.symmetric_difference(due))
            yield f"{name} changed which slots of {pool[0]} on {pool[1]} are free: {wrong}"
    taken = now - was
    if isinstance(step.outcome, Ordered) and isinstance(call, Prefetch):
        if len(taken) != step.outcome.pages:
            yield f"the prefetch is of {step.outcome.pages} pages, and took {len(taken)} slots"
        for slot in sorted(taken - step.before.pools[SLOTS_OF_STORES].free_set):
            yield f"the prefetch took host slot {slot}, which was not free"
    elif taken:
        yield f"{name} took the host slots {sorted(taken)}"


def _held_by_orders(state: Snapshot) -> set[Slot]:
    orders = () if state.store is None else state.store.orders
    return {slot for order in orders for slot in order.slots}
