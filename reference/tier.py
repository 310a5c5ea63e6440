"""The tier below the host: writes pages to a store, and fetches them from there.

Orders to the store are about pages, not about nodes: a write has the bytes of its pages from the
start, and a fetch fills host slots that it holds itself. So neither locks anything, and what the
tree does meanwhile does not matter. What was fetched enters the tree as a host insert.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kvcanon.reference.events import emit_in_store, emit_not_in_store
from kvcanon.reference.host_insert import insert_host
from kvcanon.reference.match import on_device
from kvcanon.reference.slots import release
from kvcanon.reference.state import Node, OpenOrder, State, Tier
from kvcanon.reference.tree import walk, walked_pages
from kvcanon.spec.errors import BadArgument, SpecViolation
from kvcanon.spec.events import BlockStored
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.operations import HostInserted, HostPayload, Ordered
from kvcanon.spec.tier import OrderId, OrderKind, OrderProgress, StoreOrder, seal, unseal
from kvcanon.spec.types import CPU, FULL, Key, Slot


def store(state: State, key: Key) -> Ordered:
    """Order the write of the host pages of a key that follow those that are stored."""
    tier = _require_store(state)
    slots = _leading_host_slots(state, key)
    hashes = _hashes(key)[: len(slots)]
    start = next((at for at, name in enumerate(hashes) if name not in tier.stored), len(hashes))
    being_written = {name for order in tier.writes() for name in order.hashes}
    if not tier.is_open or start == len(hashes) or hashes[start] in being_written:
        return Ordered(None, start, 0)
    payloads = state.pools[FULL, CPU].payloads
    blank = bytes(state.config.slot_bytes)
    records = [
        seal(name, payloads.get(slot, blank))
        for name, slot in zip(hashes[start:], slots[start:], strict=True)
    ]
    order = OpenOrder(
        state.new_id(), OrderKind.WRITE, key.prefix(len(slots)), start, hashes[start:]
    )
    tier.orders[order.order_id] = order
    tier.queue.submit(
        StoreOrder(order.order_id, order.kind, order.key, start, record=records.__getitem__)
    )
    return Ordered(order.order_id, start, len(records))


def prefetch(state: State, key: Key) -> Ordered:
    """Order the fetch of the pages of a key that the cache lacks, into free host slots."""
    tier, pool = _require_store(state), state.pools[FULL, CPU]
    start = _pages_there(state, key)
    count = min(len(key) - start, pool.free_slots)
    if not tier.is_open or count == 0:
        return Ordered(None, start, 0)
    slots = pool.take(count)
    pool.held.update(slots)
    fetched = key.prefix(start + count)
    hashes = _hashes(fetched)[start:]
    order = OpenOrder(state.new_id(), OrderKind.FETCH, fetched, start, hashes, slots)
    tier.orders[order.order_id] = order
    accept = partial(_accept, state, order, slots)
    tier.queue.submit(StoreOrder(order.order_id, order.kind, fetched, start, accept=accept))
    return Ordered(order.order_id, start, count)


def _accept(
    state: State, order: OpenOrder, slots: tuple[Slot, ...], page: int, record: bytes
) -> bool:
    """Take a record into the slot of its page, if it proves to be that page."""
    data = unseal(order.hashes[page], record, state.config.slot_bytes)
    if data is not None:
        state.pools[FULL, CPU].payloads[slots[page]] = data
    return data is not None


def poll_store(state: State) -> tuple[OrderProgress, ...]:
    """Take the progress that all orders have on every rank, and count the pages that are stored."""
    tier = state.tier
    if tier is None:
        return ()
    for each in tier.queue.poll():
        tier.reported[each.order_id] = each
    moved: list[OrderProgress] = []
    for order_id, progress in _on_all_ranks(state, tier).items():
        order = tier.orders[order_id]
        if (progress.pages, progress.ended) != (order.pages, order.ended):
            moved.append(progress)
            _count(state, tier, order, progress)
        if order.ended and (order.kind is OrderKind.WRITE or order.cancelled):
            _close(state, tier, order)
    return tuple(moved)


def end_prefetch(state: State, order_id: OrderId) -> HostInserted:
    """Place what has arrived of a prefetch, and give the other slots back once it has ended."""
    tier = state.tier
    order = None if tier is None else tier.orders.get(order_id)
    if tier is None or order is None or order.kind is not OrderKind.FETCH or order.cancelled:
        raise BadArgument("order_id", f"is {order_id}, which no open prefetch has")
    arrived, order.slots = order.slots[: order.pages], order.slots[order.pages :]
    payloads = state.pools[FULL, CPU].payloads
    fetched = tuple([payloads[slot] for slot in arrived])
    _give_back(state, arrived)
    if order.ended:
        _close(state, tier, order)
    else:
        order.cancelled = True
        tier.queue.stop(order_id)
    key = order.key.prefix(order.start + len(fetched))
    if not fetched or walked_pages(walk(state, key)) < order.start:
        return HostInserted(0, 0, 0, len(fetched))
    return insert_host(state, key, order.start, HostPayload(fetched))


def start_anew(state: State, *, keep_store: bool) -> None:
    """Give up all orders, and forget what is in the store; slots come free as the orders end."""
    tier = state.tier
    if tier is None:
        return
    for order in tier.orders.values():
        if not (order.cancelled or order.ended):
            tier.queue.stop(order.order_id)
        order.cancelled = True
    tier.stored.clear()
    tier.is_open &= keep_store


def _require_store(state: State) -> Tier:
    if state.tier is None:
        raise BadArgument("store", "is none; make the cache with a store below its host tier")
    return state.tier


def _hashes(key: Key) -> tuple[bytes, ...]:
    return page_hashes(namespace_seed(key.namespace), key.pages)


def _leading_host_slots(state: State, key: Key) -> tuple[Slot, ...]:
    """The host slots of the leading pages of a key that are all on the host."""
    slots: list[Slot] = []
    for node, shared in walk(state, key):
        if not _on_host(node):
            break
        slots += (node.data[FULL].host or ())[:shared]
    return tuple(slots)


def _on_host(node: Node) -> bool:
    full = node.data[FULL]
    return full.host is not None and full.backing is None


def _pages_there(state: State, key: Key) -> int:
    """The leading pages of a key below which fetched pages can be placed."""
    pages = 0
    for node, shared in walk(state, key):
        will_do = not state.config.backed_parents and on_device(node.data[FULL])
        if not (will_do or _on_host(node)):
            break
        pages += shared
    return pages


def _on_all_ranks(state: State, tier: Tier) -> Mapping[OrderId, OrderProgress]:
    """How far each open order is, on the rank that is least far."""
    orders = list(tier.orders)
    here = [tier.reported.get(each, OrderProgress(each, 0, ended=False)) for each in orders]
    if state.agree is None or not orders:
        return dict(zip(orders, here, strict=True))
    ours = [number for each in here for number in (each.pages, int(each.ended))]
    least = list(state.agree(ours))
    if len(least) != len(ours) or any(m > n for m, n in zip(least, ours, strict=True)):
        raise SpecViolation(f"agree got {ours} and returned {least}; return the least of all ranks")
    return {
        each: OrderProgress(each, least[2 * at], ended=bool(least[2 * at + 1]))
        for at, each in enumerate(orders)
    }


def _count(state: State, tier: Tier, order: OpenOrder, progress: OrderProgress) -> None:
    """Note how far an order is, and which pages are therefore in the store, or not."""
    was, order.pages, order.ended = order.pages, progress.pages, progress.ended
    if order.cancelled:
        return
    for page in range(was, order.pages):
        _note_stored(state, tier, order, page)
    if order.kind is OrderKind.FETCH and order.ended and order.pages < len(order.hashes):
        _note_missing(state, tier, order.hashes[order.pages])


def _note_stored(state: State, tier: Tier, order: OpenOrder, page: int) -> None:
    """A page is in the store; it counts if the page before it does."""
    at = order.start + page
    before = order.hashes[page - 1 : page] or _hashes(order.key.prefix(at))[-1:]
    parent, name = before[0] if before else None, order.hashes[page]
    if name in tier.stored or (parent is not None and parent not in tier.stored):
        return
    event = BlockStored(name, parent, order.key.pages[at], tier.queue.medium, order.key.namespace)
    tier.stored[name] = event
    emit_in_store(state, event)


def _note_missing(state: State, tier: Tier, name: bytes) -> None:
    """A page is not in the store: it does not count any more, nor do those that follow it."""
    if name not in tier.stored:
        return
    followers: dict[bytes | None, list[bytes]] = {}
    for each, event in tier.stored.items():
        followers.setdefault(event.parent_hash, []).append(each)
    leaving, waiting = list[bytes](), [name]
    while waiting:
        leaving.append(waiting.pop())
        waiting += followers.get(leaving[-1], ())
    for each in reversed(leaving):
        emit_not_in_store(state, tier.stored.pop(each))


def _close(state: State, tier: Tier, order: OpenOrder) -> None:
    """Forget an order that has ended, and free the slots that it still holds."""
    _give_back(state, order.slots)
    del tier.orders[order.order_id]
    tier.reported.pop(order.order_id, None)


def _give_back(state: State, slots: tuple[Slot, ...]) -> None:
    state.pools[FULL, CPU].held.difference_update(slots)
    release(state, FULL, CPU, slots)
