"""REC: recency, or what a use of a prefix says about what to keep.

Full data is kept by the policy, leaf by leaf; window data and recurrent states by their last use,
each in an order of its own, on each medium.

What readers get wrong: to use a prefix is not to use all of its data. Its end sees all full data,
the window data of one window, and one state. What it cannot see it does not keep alive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate

from kvcanon.spec.config import MambaRefresh
from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws.uncovered import uncovered
from kvcanon.spec.operations import Evict, EvictHost, Insert, Inserted, Match, Matched, Refused
from kvcanon.spec.oracle.eviction import policy_key
from kvcanon.spec.oracle.recency import refresh
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.snapshot import NodeState, Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.types import (
    CPU,
    FULL,
    GPU,
    MAMBA,
    SWA,
    Component,
    Key,
    Medium,
    NodeId,
    WritePolicy,
)
from kvcanon.spec.views import (
    PageNumber,
    Step,
    Stop,
    overtaking,
    page_orders,
    pages_along,
    pages_of_cut_nodes,
    path_of,
    present_pages,
    rows_along,
)

_ORDERS = (Need.SNAPSHOT, Need.RECENCY)


@law("REC-1", Kind.STEP, needs=_ORDERS)
def window_only_refresh(step: Step) -> Iterator[str]:
    """The end of a match or of an insert makes only the window data of its own window recent.

    The end is that of the usable prefix, or of the inserted key. All window data within the window
    becomes more recent than all that stays, the nearer to the end the more. Nothing else moves,
    except that a node is moved as a whole, and that one page more than the window counts as near:
    walking down a path touches nothing. Where the profile says that cuts move recency, the nodes
    that were cut are not asked; nor is the host, where it has an order of its own.

    Why: a long prompt that is used again and again would keep all of its window data for ever. No
    one can reach most of it, and it pushes out the windows of others.

    Seen broken: https://github.com/sgl-project/sglang/pull/26615
    """
    used = used_prefix(step)
    if used is None or SWA not in step.after.config.components:
        return
    if present_pages(step.after, used) < len(used):
        return  # There is no such end: MATCH-6 says whether a leaf may be dropped.
    window, size = step.after.config.window_tokens or 1, step.after.config.page_size
    path = path_of(step.after, used)
    lengths_upwards = tuple([stop.shared_pages * size for stop in reversed(path)])
    near = path[len(path) - window_nodes(lengths_upwards, window, size) :]
    may_move = range(_pages(path) - _pages(near), len(used))
    must_lead = range(window_start(len(used), window, size), len(used))
    yield from _refreshed(step, used, SWA, may_move, must_lead)


@law("REC-2", Kind.STEP, needs=_ORDERS)
def full_path_refresh(step: Step) -> Iterator[str]:
    """A match or an insert makes all full data of its prefix recent, and no other.

    Its nodes become more recent than all others, each of which keeps the tick of its last use. A
    node that is used in part, and not cut, is used. Where the profile says that cuts move recency,
    the parts of a node that was cut are not asked.

    Why: the end of a prefix sees all that comes before it. If a part of it stayed old it would be
    evicted first, and take the use of everything below it along.

    Seen broken: https://github.com/sgl-project/sglang/issues/8931,
    https://github.com/sgl-project/sglang/issues/12007
    """
    used = used_prefix(step)
    if used is None:
        return
    state, operation = step.after, type(step.operation).__name__
    path = {stop.node.node_id: stop.node for stop in path_of(state, used)}
    moved = _moved_by_cuts(step)
    parts = {row.node_id for number, row in step.changed[1].items() if number in moved}
    others = (node for node in state.below_root() if node.node_id not in path.keys() | parts)
    newest = max(others, key=lambda node: node.last_access, default=None)
    for node in path.values():
        if newest is not None and node.last_access <= newest.last_access:
            yield (
                f"{operation} used {state.describe(node)}, last accessed at {node.last_access}, "
                f"which is not after {state.describe(newest)} at {newest.last_access}"
            )
    before, after = step.changed
    pages = moved.union(*pages_along(state, used, step.numbers).values())
    said: set[NodeId] = set()
    for number, row in after.items():
        old = before.get(number)
        if number in pages or old is None or row.node_id in said:
            continue
        if row.last_access != old.last_access:
            said.add(row.node_id)
            yield (
                f"{operation} did not use {state.describe(state.nodes[row.node_id])}, but its last "
                f"access was {old.last_access} and is {row.last_access}"
            )


@law("REC-3", Kind.STEP, needs=_ORDERS)
def victims_in_policy_order(step: Step) -> Iterator[str]:
    """Who is evicted comes before everyone in the same position who stays.

    Asked of evictions for one component. Where full slots were asked for, no leaf stays whose rank
    under the policy is lower than a victim's; where window slots or states were, no unlocked data
    that was used less recently. On the host only what is nowhere else is in that position. Under
    write_back a leaf that has to be copied first may find no room, and stays where something locked
    hangs below it. By profile, a tombstone may leave with what uncovered it, whose turn it was.

    Why: the policy is what an operator has chosen to keep. A victim out of turn is a prompt that
    ought to be there, and replicas that evict differently run different plans and hang.

    Seen broken: https://github.com/kvcache-ai/Mooncake/issues/2976
    """
    operation = step.operation
    if not isinstance(operation, (Evict, EvictHost)) or isinstance(step.outcome, Refused):
        return
    asked = [component for component in Component if operation.counts[component] > 0]
    if len(asked) != 1:
        return
    medium = GPU if isinstance(operation, Evict) else CPU
    if asked == [FULL]:
        yield from _leaves_out_of_turn(step, medium)
    else:
        yield from _data_out_of_turn(step, asked[0], medium)


@law("REC-4", Kind.STATE, needs=_ORDERS)
def ties_cannot_occur(state: Snapshot) -> Iterator[str]:
    """There is always exactly one next victim.

    No two leaves of a medium have the same rank under the policy, and every order of recency names
    exactly the nodes that have its data, each once. Where the profile says that the host has an
    order of its own, window data and states that are on the device too are not in it.

    Why: replicas must pick the same victim without talking. Where two are equal, one picks by
    address and another by chance, and the next collective waits for ever. A node that is in no
    order is never evicted; one that is there twice is freed twice.

    Seen broken: https://github.com/lightseekorg/tokenspeed/pull/248,
    https://github.com/sgl-project/sglang/issues/8931
    """
    for medium, is_leaf in ((GPU, is_device_leaf), (CPU, is_host_leaf)):
        ranked: dict[tuple[int, int], NodeState] = {}
        for node in state.below_root():
            if is_leaf(state, node):
                other = ranked.setdefault(_rank(state, node), node)
                if other is not node:
                    yield (
                        f"{state.describe(node)} and {state.describe(other)} are leaves on "
                        f"{medium} and have the same rank {_rank(state, node)}"
                    )
    for component in state.config.components:
        for medium in (GPU, CPU):
            yield from _misnamed(state, component, medium)


@law("REC-5", Kind.STEP, needs=_ORDERS)
def state_refresh(step: Step) -> Iterator[str]:
    """The end of a match or of an insert makes only its own recurrent state recent.

    A cache whose profile says so (`mamba_refresh`) makes those above it on the path recent too.

    Why: a state is of use at its own position only. That a longer prefix was used is no evidence
    for the states on the way, and a pool of states is small.

    Seen broken: https://github.com/sgl-project/sglang/issues/31643
    """
    used = used_prefix(step)
    if used is None or MAMBA not in step.after.config.components:
        return
    end = len(used)
    only_end = step.after.profile.mamba_refresh is MambaRefresh.NODE
    pages = range(max(0, end - 1) if only_end else 0, end)
    yield from _refreshed(step, used, MAMBA, pages, pages)


@law("REC-6", Kind.STEP, needs=(*_ORDERS, Need.AGES))
def insert_ranks_its_path(step: Step) -> Iterator[str]:
    """An insert raises priorities on its path to its own, and gives new pages its own age.

    A page keeps the age that it has, and a higher priority. All new pages of an insert are of one
    age, younger than everything else.

    Why: what was asked to stay longest, or was there first, leaves in the wrong order.

    Seen broken: https://github.com/vllm-project/vllm/issues/47802
    """
    asked = step.operation
    if not isinstance(asked, Insert) or not isinstance(step.outcome, Inserted):
        return
    before = rows_along(step.before, asked.key)
    oldest_new = max((node.created for node in step.before.below_root()), default=-1)
    for page, now in enumerate(rows_along(step.after, asked.key)):
        was = before[page] if page < len(before) else None
        where = f"page {page} in {step.after.describe(step.after.nodes[now.node_id])}"
        wanted = asked.priority if was is None else max(was.priority, asked.priority)
        if now.priority != wanted:
            yield f"{where} has priority {now.priority} after an insert; it should be {wanted}"
        if was is not None and now.created != was.created:
            yield f"{where} was created at {was.created}, and now at {now.created}"
        if was is None and now.created <= oldest_new:
            yield f"{where} is new, but created at {now.created}, not after {oldest_new}"


def used_prefix(step: Step) -> Key | None:
    """What a match or an insert used: the usable prefix, or all of the inserted key."""
    operation, outcome = step.operation, step.outcome
    if isinstance(operation, Match) and isinstance(outcome, Matched):
        return operation.key.prefix(max(0, outcome.prefix_pages))
    if isinstance(operation, Insert) and isinstance(outcome, Inserted):
        return operation.key
    return None


def _pages(stops: Sequence[Stop]) -> int:
    return sum(stop.shared_pages for stop in stops)


def _refreshed(
    step: Step, used: Key, component: Component, may_move: range, must_lead: range
) -> Iterator[str]:
    """Whether an order is the one before, with these pages of the used key put to its end."""
    numbers = step.numbers.of_key(used)
    free = {numbers[at] for at in may_move} | _moved_by_cuts(step)
    whole = list(pages_along(step.after, used, step.numbers).values())
    if may_move and whole and component is not MAMBA:
        # The last node may be used in part; a state is never at the end of a part.
        free.update(whole[-1])
    # Of each node its last page is enough: the pages of a node lie next to each other in an order.
    ends = set(accumulate(stop.shared_pages for stop in path_of(step.after, used)))
    leading = [numbers[at] for at in must_lead if at + 1 in ends]
    for _, medium, order in page_orders(step, used, (component,)):
        if medium is CPU and not step.after.profile.host_order_by_use:
            continue
        moved = order.moved(without=free)
        yield from _moved_in_words(step, used, f"{component} on {medium}", moved)
        if moved:
            continue
        now, (stayed, _) = dict.fromkeys(order.after), order.kept(without=free)
        wanted = refresh(tuple(stayed), tuple([page for page in leading if page in now]))
        relevant = set(wanted)
        found = [piece for piece in now if piece in relevant]
        behind = overtaking(found, wanted).items()
        for node_id, other_id in {order.node_id(a): order.node_id(b) for a, b in behind}.items():
            if node_id != other_id:
                yield (
                    f"{_end_in_words(step, used)} used the {component} data of "
                    f"{_name(step, node_id)} on {medium}, but it is not more recent than that of "
                    f"{_name(step, other_id)}"
                )


def _moved_by_cuts(step: Step) -> set[PageNumber]:
    """The pages whose recency means nothing, because the profile says that cuts move it."""
    return set() if step.after.profile.split_keeps_recency else pages_of_cut_nodes(step)


def _moved_in_words(step: Step, used: Key, name: str, moved: dict[NodeId, NodeId]) -> Iterator[str]:
    """What became more recent though the end that was used does not reach it."""
    size = step.after.config.page_size
    on_path = {stop.node.node_id for stop in path_of(step.after, used)}
    for node_id, other_id in moved.items():
        distance = (len(used) - step.after.end(step.after.nodes[node_id])) * size
        above = node_id in on_path and distance > 0
        where = f"{distance} tokens above that end" if above else "not on its path"
        yield (
            f"{_end_in_words(step, used)} moved {_name(step, node_id)}, which is {where}, in "
            f"the order of {name}: it has overtaken {_name(step, other_id)}"
        )


def _end_in_words(step: Step, used: Key) -> str:
    tokens = len(used) * step.after.config.page_size
    return f"{type(step.operation).__name__}, which ended at token {tokens},"


def _name(step: Step, node_id: NodeId) -> str:
    return step.after.describe(step.after.nodes[node_id])


def _rank(state: Snapshot, node: NodeState) -> tuple[int, int]:
    """The place of a leaf in the order of the policy; the smallest leaves first."""
    return policy_key(
        state.config.eviction_policy,
        node.hit_count,
        node.last_access,
        node.created,
        node.priority,
    )


def _leaves_out_of_turn(step: Step, medium: Medium) -> Iterator[str]:
    """Victims of full pressure that a leaf which stayed should have preceded."""
    state = step.before
    gone = _evicted(step, FULL, medium)
    is_leaf = is_device_leaf if medium is GPU else is_host_leaf
    stayed = [
        node
        for node in state.below_root()
        if node.node_id not in gone and is_leaf(state, node) and not _must_stay(state, node)
    ]
    first = min(stayed, key=lambda node: _rank(state, node), default=None)
    taken_along = uncovered(step, medium)
    for victim in gone.values():
        only_here = medium is GPU or victim[FULL].device is None
        chosen = only_here and victim.node_id not in taken_along
        if first is not None and chosen and _rank(state, victim) > _rank(state, first):
            yield (
                f"{state.describe(victim)} was evicted from {medium} with rank "
                f"{_rank(state, victim)} under {state.config.eviction_policy}, but leaf "
                f"{state.describe(first)} with rank {_rank(state, first)} stayed"
            )


def _data_out_of_turn(step: Step, component: Component, medium: Medium) -> Iterator[str]:
    """Victims of window or state pressure that were used after data which stayed."""
    state = step.before
    gone = _evicted(step, component, medium)
    first: NodeState | None = None
    order = state.recency.get((component, medium), ())
    for node in [state.nodes[node_id] for node_id in order if node_id in state.nodes]:
        data = node[component]
        only_here = medium is GPU or data.device is None
        if data.lock_refs or data.loading is not None or data.backing is not None or not only_here:
            continue
        if node.node_id not in gone:
            first = first or node
        elif first is not None:
            yield (
                f"{component} data of {state.describe(node)} was evicted from {medium}, but that "
                f"of {state.describe(first)}, used less recently and not locked, stayed"
            )


def _evicted(step: Step, component: Component, medium: Medium) -> dict[NodeId, NodeState]:
    """The nodes that lost a component's data on a medium, as they were before."""
    before, after = step.changed
    gone: dict[NodeId, NodeState] = {}
    for number, row in before.items():
        new = after.get(number)
        if row.slot(component, medium) is None:
            continue
        if new is None or new.slot(component, medium) is None:
            gone[row.node_id] = step.before.nodes[row.node_id]
    return gone


def _must_stay(state: Snapshot, leaf: NodeState) -> bool:
    """Whether a leaf may find no way out under write_back: what hangs below it may not go along."""
    if state.config.write_policy is not WritePolicy.WRITE_BACK:
        return False
    below = list(state.children(leaf))
    for node in below:
        below.extend(state.children(node))
    return any(data.lock_refs for node in below for data in node.data.values())


def _misnamed(state: Snapshot, component: Component, medium: Medium) -> Iterator[str]:
    """Where an order of recency does not name exactly the nodes that have its data."""
    name = f"the order of {component} on {medium}"
    on_host_alone = medium is CPU and component is not FULL and not state.profile.host_order_by_use
    owners = {
        node.node_id
        for node in state.below_root()
        if node[component].slots(medium) is not None
        and not (on_host_alone and node[component].device is not None)
    }
    named = Counter(state.recency.get((component, medium), ()))
    for node_id in sorted(owners - named.keys()):
        yield f"{state.describe(state.nodes[node_id])} has {component} data and is not in {name}"
    for node_id, times in named.items():
        node = state.nodes.get(node_id)
        words = (
            f"node {node_id}, which is not in the tree," if node is None else state.describe(node)
        )
        if node_id not in owners:
            yield f"{words} is in {name} and has no {component} data there"
        if times > 1:
            yield f"{words} is in {name} {times} times"
