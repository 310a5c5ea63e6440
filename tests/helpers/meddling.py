"""Steps of every operation, and the same steps with one more thing changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from attrs import evolve, frozen

from kvcanon.reference import ManualEngine
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.difference import Difference
from kvcanon.spec.errors import CacheError
from kvcanon.spec.events import BlockRemoved
from kvcanon.spec.law import LAWS, Kind
from kvcanon.spec.operations import HostPayload, Refused, method_of
from kvcanon.spec.snapshot import NodeState, PoolState, Snapshot
from kvcanon.spec.types import FULL, GPU, Counts, Key, Slots, WritePolicy
from kvcanon.spec.views import Step
from planting import steps_of

DEVICE = CacheConfig(device_slots=Counts(full=12))
HOST = CacheConfig(
    device_slots=Counts(full=12),
    host_slots=Counts(full=12),
    write_policy=WritePolicy.WRITE_THROUGH,
)
LATE = 1_000_000
"""A tick after all others."""


def _key(*tokens: int) -> Key:
    return Key(tuple((token,) for token in tokens))


def _put(cache: Cache, *tokens: int) -> None:
    slots = cache.allocate(Counts(full=len(tokens)))
    cache.insert(_key(*tokens), 0, slots)


def _use(cache: Cache, engine: ManualEngine) -> None:
    """Call every operation of a cache without a host tier, and some that are refused."""
    del engine
    for tokens in ((1, 2, 3), (1, 4), (5, 6)):
        _put(cache, *tokens)
    first, held = cache.lock(_key(1, 2)), cache.allocate(Counts(full=1))
    cache.match(_key(5, 6))
    cache.match(_key(1, 4))
    second = cache.lock(_key(5))
    cache.unlock_window(second)
    cache.unlock(second)
    with suppress(CacheError):
        cache.lock(_key(9, 9))
    with suppress(CacheError):
        cache.insert(_key(7, 8), 1, Slots((99,)))
    with suppress(CacheError):
        cache.reset()
    with suppress(CacheError):
        cache.free(Slots((99,)))
    cache.take_events()
    _put(cache, 1, 2, 8)
    cache.free(held)
    cache.evict(Counts(full=1))
    cache.unlock(first)
    cache.allocate(Counts(full=1))
    cache.reset()


def _use_host(cache: Cache, engine: ManualEngine) -> None:
    """Call the operations of the host tier."""
    for tokens in ((1, 2, 3), (1, 4), (5, 6)):
        _put(cache, *tokens)
    for transfer_id in tuple(engine.open_transfer_ids):
        engine.acknowledge(transfer_id)
    cache.poll()
    cache.evict(Counts(full=2))
    for tokens in ((1, 2, 3), (1, 4)):
        cache.load_back(_key(*tokens))
    cache.flush()
    cache.insert_host(_key(7), 0, HostPayload((bytes(8),)))
    cache.evict(Counts(full=4))
    cache.evict_host(Counts(full=1))


def real_steps() -> Iterator[Step]:
    """Steps of every operation of the plain cache."""
    yield from steps_of(DEVICE, _use)
    yield from steps_of(HOST, _use_host)


@frozen
class Meddled:
    """A step that changes one thing more than its operation may."""

    operation: str
    """The method, or "a refused call"."""
    column: str
    """What was changed, as the table of the docs names it."""
    own: bool
    """Whether it is on the path of the operation's key."""
    step: Step
    real: Step


def meddled() -> Iterator[Meddled]:
    """All steps, each with each thing changed once."""
    for step in real_steps():
        refused = isinstance(step.outcome, Refused)
        name = "a refused call" if refused else method_of(type(step.operation))
        for column, own, state in _states(step):
            difference = Difference(step.before, state)
            yield Meddled(name, column, own, evolve(step, after=state, difference=difference), step)
        stray = evolve(step, events=(*step.events, BlockRemoved(b"x" * 32, GPU)))
        yield Meddled(name, "events", False, stray, step)


def broken_by(step: Step) -> set[str]:
    """The laws of steps and states that a step breaks."""
    broken = set[str]()
    for law in LAWS.values():
        if law.kind is not Kind.STREAM:
            judged = step if law.kind is Kind.STEP else step.after
            with suppress(LookupError):  # A state that makes no sense.
                if any(True for _ in law.check(judged)):
                    broken.add(law.law_id)
    return broken


def _states(step: Step) -> Iterator[tuple[str, bool, Snapshot]]:
    """The state after a step with one thing changed: its column, whether it is the call's own."""
    state = step.after
    pages = set(getattr(getattr(step.operation, "key", None), "pages", ()))
    for node in state.nodes.values():
        if node.parent_id is not None:
            own = not pages.isdisjoint(node.pages)
            for column, changed in _in_node(state, node):
                yield column, own, changed
    pool = state.pools[FULL, GPU]
    if pool.free:
        yield "slots", False, _with_pool(state, evolve(pool, free=pool.free[1:]))
    if pool.held:
        fewer = frozenset(sorted(pool.held)[1:])
        yield "slots", False, _with_pool(state, evolve(pool, held=fewer))


def _in_node(state: Snapshot, node: NodeState) -> Iterator[tuple[str, Snapshot]]:
    data = node[FULL]
    later = {
        pool: (*[each for each in order if each != node.node_id], node.node_id)
        for pool, order in state.recency.items()
        if node.node_id in order
    }
    recent = _with(state, evolve(node, last_access=LATE))
    yield "recency", evolve(recent, recency={**state.recency, **later})
    yield "recency", _with(state, evolve(node, priority=node.priority + 1))
    yield "hits", _with(state, evolve(node, hit_count=node.hit_count + 1))
    locked = evolve(data, lock_refs=data.lock_refs + 1)
    yield "locks", _with(state, evolve(node, data={**node.data, FULL: locked}))
    if data.device:
        moved = evolve(data, device=tuple(slot + 20 for slot in data.device))
        yield "pages", _with(state, evolve(node, data={**node.data, FULL: moved}))
    if not node.child_ids and node.parent_id is not None:
        parent = state.nodes[node.parent_id]
        left = {each: here for each, here in state.nodes.items() if each != node.node_id}
        fewer = tuple(each for each in parent.child_ids if each != node.node_id)
        yield "pages", _with(evolve(state, nodes=left), evolve(parent, child_ids=fewer))


def _with(state: Snapshot, node: NodeState) -> Snapshot:
    return evolve(state, nodes={**state.nodes, node.node_id: node})


def _with_pool(state: Snapshot, pool: PoolState) -> Snapshot:
    return evolve(state, pools={**state.pools, (FULL, GPU): pool})
