"""REC, continued: pages that an operation does not use keep their recency.

Only a match and an insert use a prefix. A load-back does not: the request has matched the prefix
before, and that match made it recent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import situations
from kvcanon.spec.laws.comparison import page_in_words
from kvcanon.spec.operations import Insert, InsertHost, LoadBack, Lock, Match, Operation
from kvcanon.spec.snapshot import Pool
from kvcanon.spec.types import CPU, FULL, MAMBA, Component, Medium
from kvcanon.spec.views import PageNumber, Step, pages_along, recency_orders

_PREFIX_CALLS = (Match, Lock, Insert, InsertHost, LoadBack)
"""Operations that may cut nodes, so that orders have to be compared page by page."""


@law(
    "REC-7",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="recency",
    premise=Premise[Step](
        "a change without a use of a prefix",
        lambda step: not isinstance(step.operation, Match | Insert) and situations.changed(step),
    ),
    needs=(Need.SNAPSHOT, Need.RECENCY),
)
def only_use_makes_recent(step: Step) -> Iterator[str]:
    """Only a match or an insert makes data recent, and only on its own path.

    Every other page keeps its age, its priority, the tick of its last use and, while it stays in
    its slots, its place among the others in every LRU order. On the path of a match ages and
    priorities stay, too. Load-backs, locks, evictions, settled copies and refused calls make
    nothing recent. By profile, cuts change recency; then ticks and orders are not checked in a step
    that cut. By profile, the host has its own order; then a load-back may move its own path there.

    Why: recency is the only evidence of what will be used again. If other operations blur it, later
    evictions are random.

    Seen broken: https://github.com/sgl-project/sglang/issues/38482,
    https://github.com/NVIDIA/TensorRT-LLM/issues/17926
    """
    if step.before is step.after or situations.broken_off(step):
        return
    used = _used(step)
    was_cut = bool(step.difference.touched) and not (
        step.after.nodes.keys() <= step.before.nodes.keys()
    )
    asks_order = step.before.profile.split_keeps_recency or not was_cut
    always = ("priority", "created")
    before, after = step.changed
    for number, was in before.items():
        now = after.get(number)
        if now is None or was[-3:] == now[-3:]:
            continue
        fields: tuple[str, ...] = (*always, "last_access") if asks_order else always
        if number in used:
            fields = always if isinstance(step.operation, Match) else ()
        for field in fields:
            if getattr(was, field) != getattr(now, field):
                yield (
                    f"{_name(step)} did not use {page_in_words(step.before, was)}; its {field} was "
                    f"{getattr(was, field)} and is {getattr(now, field)}"
                )
    if asks_order:
        yield from _overtaken(step, used)


def _used(step: Step) -> Collection[PageNumber]:
    """The pages on the path of a match or an insert, with the whole node in which its end lies."""
    call = step.operation
    if isinstance(call, (Match, Insert)) and step.used is not None:
        whole_nodes = pages_along(step, step.after, step.used).values()
        return set(step.numbers_of(call.key)).union(*whole_nodes)
    return ()


def _overtaken(step: Step, used: Collection[PageNumber]) -> Iterator[str]:
    """Pages that became more recent than others without being used."""
    call = step.operation
    if step.before.recency == step.after.recency:
        return
    if not isinstance(call, _PREFIX_CALLS):
        yield from _reordered(step)
        return
    own = step.numbers_of(call.key)
    for component, medium, order in recency_orders(step, call.key, tuple(Component)):
        # A mamba state is at the end of its node, so a part that was used without the end has none.
        loads = isinstance(call, LoadBack) and _is_own_order_of_host(step, component, medium)
        spared = own if loads or (used and component is MAMBA) else used
        moved = order.moved(without={*spared, *_replaced(step, component, medium)})
        for node_id, other_id in moved.items():
            node, other = step.after.nodes[node_id], step.after.nodes[other_id]
            yield (
                f"{_name(step)} did not use {step.after.describe(node)}, but it has overtaken "
                f"{step.after.describe(other)} in the order of {component} on {medium}"
            )


def _is_own_order_of_host(step: Step, component: Component, medium: Medium) -> bool:
    """Whether an order is not by last use, because by profile the host has its own."""
    return medium is CPU and component is not FULL and not step.before.profile.host_order_by_use


def _replaced(step: Step, component: Component, medium: Medium) -> list[PageNumber]:
    """Pages with other slots than before: they left a medium and came again."""
    return [
        each.number
        for each in step.lost
        if each.component is component and each.medium is medium and each.now is not None
    ]


def _reordered(step: Step) -> Iterator[str]:
    """LRU orders in which nodes that kept their slots changed places."""
    before, after = step.before, step.after
    for pool, old in before.recency.items():
        new = after.recency.get(pool, ())
        if old == new:
            continue
        there = set(old).intersection(new)
        was, now = [i for i in old if i in there], [i for i in new if i in there]
        if was != now:
            was, now = _unmoved(step, pool, was), _unmoved(step, pool, now)
        for first, second in zip(was, now, strict=False):
            if first != second:
                yield (
                    f"{_name(step)} used nothing, but in the order of {pool[0]} on {pool[1]} "
                    f"{after.describe(after.nodes[second])} stands where "
                    f"{after.describe(after.nodes[first])} stood"
                )
                break


def _unmoved(step: Step, pool: Pool, order: list[int]) -> list[int]:
    """Those nodes of an order that have the same slots in both states."""
    component, medium = pool
    old, new = step.before.nodes, step.after.nodes
    return [
        i
        for i in order
        if i in old
        and i in new
        and old[i][component].slots(medium) == new[i][component].slots(medium)
    ]


def _name(step: Step) -> str:
    """The operation, as "Match"."""
    operation: Operation = step.operation
    return type(operation).__name__
