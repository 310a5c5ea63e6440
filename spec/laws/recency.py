"""REC: recency, that is, what a use of a prefix makes recent.

Full data is evicted leaf by leaf in the order of the policy. Window data and mamba states are
evicted by their last use, each component in an LRU order of its own, on each medium.

What readers get wrong: a prefix hit does not use all data along the path. The end of the prefix
attends to all full data, to the window data of one window, and to one mamba state. Only these
become recent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from kvcanon.spec.config import Choosing, MambaRefresh
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations
from kvcanon.spec.laws.comparison import slot_of
from kvcanon.spec.operations import Insert, Inserted, InsertHost, Refused
from kvcanon.spec.oracle.eviction import refresh
from kvcanon.spec.oracle.window import window_nodes, window_start
from kvcanon.spec.types import CPU, GPU, MAMBA, SWA, Component, Key, NodeId
from kvcanon.spec.views import (
    PageNumber,
    Step,
    Stop,
    pages_along,
    pages_of_cut_nodes,
    path_of,
    present_pages,
    recency_orders,
    rows_along,
)

_ORDERS = (Need.SNAPSHOT, Need.RECENCY)


@law(
    "REC-1",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=Premise[Step](
        "a use of a prefix with window data out of its reach",
        situations.window_left_behind,
    ),
    needs=_ORDERS,
    enabled_if=bounds.has_pages_beyond_the_window,
)
def window_only_refresh(step: Step) -> Iterator[str]:
    """A match or an insert makes only the window data at the end of its prefix recent.

    The prefix of a match is the usable one, that of an insert is its key. The window data of the
    last window, and of one page before it (the cushion), becomes more recent than all other window
    data, node by node, the node nearest to the end last. A node that has any of these pages becomes
    recent as a whole. No other window data becomes recent: to walk through a node is no use of it.
    By profile, the cushion need not become recent. By profile, cuts change recency; then nodes that
    were cut are not checked. By profile, the host has its own order; then the host is not checked.

    Why: a long prompt that is used again and again would keep all its window data for ever. Most of
    it is out of reach, and it evicts the windows of other prompts.

    Seen broken: https://github.com/sgl-project/sglang/pull/26615
    """
    used = step.used
    if used is None or SWA not in step.after.config.components:
        return
    if present_pages(step.after, used) < len(used):
        return  # The end is not in the tree: MATCH-6 checks whether a leaf may be dropped.
    window, size = step.after.config.window_tokens or 1, step.after.config.page_size
    path = path_of(step.after, used)
    lengths_upwards = tuple([stop.shared_pages * size for stop in reversed(path)])
    near = path[len(path) - window_nodes(lengths_upwards, window, size) :]
    may_move = range(_pages(path) - _pages(near), len(used))
    must_lead = may_move
    if not step.after.profile.cushion_refreshed:
        must_lead = range(window_start(len(used), window, size), len(used))
    yield from _refreshed(step, used, SWA, may_move, must_lead)


@law(
    "REC-2",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=Premise[Step](
        "a use of a prefix while there are nodes off its path",
        lambda step: situations.used_pages(step) > 0 and situations.others_before(step),
    ),
    needs=_ORDERS,
)
def full_path_refresh(step: Step) -> Iterator[str]:
    """A match or an insert makes all full data of its prefix recent, and no other full data.

    The nodes of the prefix become more recent than all others, which keep the tick of their last
    use. A node that is used in part, and not cut, counts as used. By profile, cuts change recency;
    then the parts of cut nodes are not checked.

    Why: the end of a prefix needs all pages before it. A part that stays old is evicted first, and
    everything below it is lost with it.

    Seen broken: https://github.com/sgl-project/sglang/issues/8931,
    https://github.com/sgl-project/sglang/issues/12007
    """
    used = step.used
    if used is None or (not used and step.before is step.after):
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
    pages = moved.union(*pages_along(step, state, used).values())
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


@law(
    "REC-5",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=Premise[Step](
        "a use of a prefix where mamba states are kept",
        lambda step: situations.used_pages(step) > 0 and MAMBA in step.after.config.components,
    ),
    needs=_ORDERS,
    enabled_if=lambda run: run.config.mamba,
)
def state_refresh(step: Step) -> Iterator[str]:
    """A match or an insert makes only the mamba state at the end of its prefix recent.

    By profile (`mamba_refresh`), the states above it on the path become recent too.

    Why: a mamba state is of use at its own position only. A hit on a longer prefix is no evidence
    for the states above, and there are few slots for states.

    Seen broken: https://github.com/sgl-project/sglang/issues/31643
    """
    used = step.used
    if used is None or MAMBA not in step.after.config.components:
        return
    if present_pages(step.after, used) < len(used):
        return  # The end is not in the tree: MATCH-6 checks whether a leaf may be dropped.
    end = len(used)
    only_end = step.after.profile.mamba_refresh is MambaRefresh.NODE
    pages = range(max(0, end - 1) if only_end else 0, end)
    yield from _refreshed(step, used, MAMBA, pages, pages)


@law(
    "REC-6",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=premises.INSERT,
    needs=(*_ORDERS, Need.AGES),
)
def insert_ranks_its_path(step: Step) -> Iterator[str]:
    """An insert raises priorities on its path to its own, and gives all its new pages one new age.

    A page keeps the age that it has, and its priority if that is higher. New pages are younger than
    all others. Window data and mamba states that an insert or a host insert adds where there were
    none are more recent than all data off its path. By profile, the host has its own order; then
    the host is not checked.

    Why: otherwise pages that should stay longest leave first.

    Seen broken: https://github.com/vllm-project/vllm/issues/47802
    """
    yield from _arrived_behind(step)
    call = step.operation
    if not isinstance(call, Insert) or not isinstance(step.outcome, Inserted):
        return
    before = rows_along(step.before, call.key)
    ages = {row.created for row in rows_along(step.after, call.key)[len(before) :]}
    if len(ages) > 1:
        yield f"the new pages of one insert were created at {sorted(ages)}, and not at once"
    oldest_new = max((node.created for node in step.before.below_root()), default=-1)
    for page, now in enumerate(rows_along(step.after, call.key)):
        was = before[page] if page < len(before) else None
        where = f"page {page} in"
        wanted = call.priority if was is None else max(was.priority, call.priority)
        if now.priority != wanted:
            said = f"has priority {now.priority} after an insert; it should be {wanted}"
            yield f"{where} {_name(step, now.node_id)} {said}"
        if was is not None and now.created != was.created:
            said = f"was created at {was.created}, and now at {now.created}"
            yield f"{where} {_name(step, now.node_id)} {said}"
        if was is None and now.created <= oldest_new:
            said = f"is new, but created at {now.created}, not after {oldest_new}"
            yield f"{where} {_name(step, now.node_id)} {said}"


def _arrived_behind(step: Step) -> Iterator[str]:
    """Data that an insert added and that is not more recent than data it did not use."""
    call = step.operation
    if not isinstance(call, Insert | InsertHost) or isinstance(step.outcome, Refused):
        return
    if step.before.recency == step.after.recency:
        return
    own = set(step.numbers_of(call.key)).union(*pages_along(step, step.before, call.key).values())
    for component, medium, order in recency_orders(step, call.key, (SWA, MAMBA)):
        if medium is CPU and not step.after.profile.host_order_by_use:
            continue
        new = [page for page in order.after if page in own and _was_nowhere(step, page, component)]
        others = dict.fromkeys(order.before).keys() - own
        newest = next((piece for piece in reversed(order.after) if piece in others), None)
        if new and newest is not None and order.after.index(newest) > order.after.index(new[0]):
            yield (
                f"{type(call).__name__} brought {component} data of "
                f"{_name(step, order.node_id(new[0]))} to {medium}, but it is not more recent than "
                f"that of {_name(step, order.node_id(newest))}, which it did not use"
            )


def _was_nowhere(step: Step, page: PageNumber, component: Component) -> bool:
    """Whether a page had no data of a component before a step, on either medium."""
    before, after = step.changed
    was = before.get(page)
    return page in after and all(slot_of(was, component, medium) is None for medium in (GPU, CPU))


def _pages(stops: Sequence[Stop]) -> int:
    return sum(stop.shared_pages for stop in stops)


def _refreshed(
    step: Step, used: Key, component: Component, may_move: range, must_lead: range
) -> Iterator[str]:
    """Whether an order is the one before, with these pages of the used key moved to its end."""
    if not used and step.before is step.after:
        return
    numbers = step.numbers_of(used)
    free = {numbers[at] for at in may_move} | _moved_by_cuts(step)
    whole = list(pages_along(step, step.after, used).values())
    if may_move and whole and component is not MAMBA:
        # The last node may be used in part; a mamba state is never at the end of a part.
        free.update(whole[-1])
    # The last page of each node is enough: the pages of a node are adjacent in an order.
    ends = set(accumulate(stop.shared_pages for stop in path_of(step.after, used)))
    leading = [numbers[at] for at in must_lead if at + 1 in ends]
    for _, medium, order in recency_orders(step, used, (component,)):
        if medium is CPU and not step.after.profile.host_order_by_use:
            continue
        stayed, stayed_after = order.kept(without=free)
        moved = order.overtaken(stayed, stayed_after)
        if moved:
            yield from _moved_in_words(step, used, f"{component} on {medium}", moved)
            continue
        now = dict.fromkeys(order.after)
        wanted = refresh(tuple(stayed), tuple([page for page in leading if page in now]))
        relevant = set(wanted)
        found = [piece for piece in now if piece in relevant]
        for node_id, other_id in order.overtaken(found, wanted).items():
            yield (
                f"{_end_in_words(step, used)} used the {component} data of "
                f"{_name(step, node_id)} on {medium}, but it is not more recent than that of "
                f"{_name(step, other_id)}"
            )


def _moved_by_cuts(step: Step) -> set[PageNumber]:
    """The pages whose recency is not checked, because by profile cuts change it.

    A load that a match begins on its own cuts nodes that the match made recent as a whole.
    """
    profile = step.after.profile
    checked = profile.split_keeps_recency and profile.loads is Choosing.AS_CANON
    return set() if checked else pages_of_cut_nodes(step)


def _moved_in_words(step: Step, used: Key, name: str, moved: dict[NodeId, NodeId]) -> Iterator[str]:
    """Nodes that became more recent although the end of the used prefix does not reach them."""
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
