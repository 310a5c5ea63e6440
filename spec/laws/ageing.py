"""REC, continued: what is no use.

Only a match and an insert use a prefix, and what they make recent the laws before this one say.
All else that a cache does, it does to its own books, and the order of victims is none of them.

What readers get wrong: to load a prefix back is not to use it. Whoever wanted it has matched it
before, and it is as recent as that match has made it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import changes, page_in_words, slot_of
from kvcanon.spec.laws.situations import used_prefix
from kvcanon.spec.operations import (
    Insert,
    InsertHost,
    LoadBack,
    Lock,
    Match,
    Operation,
)
from kvcanon.spec.snapshot import Pool
from kvcanon.spec.types import CPU, FULL, MAMBA, Component, Medium
from kvcanon.spec.views import PageNumber, Step, pages_along, recency_orders

_PREFIX_CALLS = (Match, Lock, Insert, InsertHost, LoadBack)
"""What may cut nodes, so that orders have to be compared page by page."""


@law("REC-7", Kind.STEP, premises.CHANGE_WITHOUT_USE, needs=(Need.SNAPSHOT, Need.RECENCY))
def only_use_makes_recent(step: Step) -> Iterator[str]:
    """Nothing but a match or an insert makes anything recent, and these only on their own path.

    Every other page keeps its age, its priority, the tick of its last use and, while it stays in
    its slots, its place among the others in every order of recency. On the path of a match ages
    and priorities stay, too. A load-back is no use, and neither are locks, evictions, copies that
    end, and calls that are refused. Where the profile says that cuts move recency, a step that cut
    is not asked for ticks and orders; where it says that the host has an order of its own, a load
    may change the places of its own path there.

    Why: recency is the only evidence there is of what will be used again. Blurred by whatever else
    comes by, it makes every later eviction an accident.

    Seen broken: https://github.com/sgl-project/sglang/issues/38482,
    https://github.com/NVIDIA/TensorRT-LLM/issues/17926
    """
    if step.before is step.after:
        return
    used = _used(step)
    was_cut = not step.after.nodes.keys() <= step.before.nodes.keys()
    asks_order = step.before.profile.split_keeps_recency or not was_cut
    always = ("priority", "created")
    for change in changes(step):
        was, now = change.before, change.after
        if was is None or now is None or was[-3:] == now[-3:]:
            continue
        fields: tuple[str, ...] = (*always, "last_access") if asks_order else always
        if change.number in used:
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
    """The pages on the path of a match or an insert, with all of the node that its end is in."""
    asked, used = step.operation, used_prefix(step)
    if isinstance(asked, (Match, Insert)) and used is not None:
        whole_nodes = pages_along(step.after, used, step.numbers).values()
        return set(step.numbers.of_key(asked.key)).union(*whole_nodes)
    return ()


def _overtaken(step: Step, used: Collection[PageNumber]) -> Iterator[str]:
    """What became more recent than something else, and was not used."""
    asked = step.operation
    if not isinstance(asked, _PREFIX_CALLS):
        yield from _reordered(step)
        return
    if step.before.recency == step.after.recency:
        return
    for component, medium, order in recency_orders(step, asked.key, tuple(Component)):
        # A state is at the end of a node, and so never in a part that was used without its end.
        own = frozenset(step.numbers.of_key(asked.key))
        loads = isinstance(asked, LoadBack) and _is_own_order_of_host(step, component, medium)
        spared = own if loads or (used and component is MAMBA) else used
        moved = order.moved(without={*spared, *_replaced(step, component, medium)})
        for node_id, other_id in moved.items():
            node, other = step.after.nodes[node_id], step.after.nodes[other_id]
            yield (
                f"{_name(step)} did not use {step.after.describe(node)}, but it has overtaken "
                f"{step.after.describe(other)} in the order of {component} on {medium}"
            )


def _is_own_order_of_host(step: Step, component: Component, medium: Medium) -> bool:
    """Whether an order is not that of the last use."""
    return medium is CPU and component is not FULL and not step.before.profile.host_order_by_use


def _replaced(step: Step, component: Component, medium: Medium) -> Iterator[PageNumber]:
    """Pages that have other slots than before: they left a medium and came again."""
    for change in changes(step):
        was, now = (
            slot_of(change.before, component, medium),
            slot_of(change.after, component, medium),
        )
        if was is not None and now is not None and was != now:
            yield change.number


def _reordered(step: Step) -> Iterator[str]:
    """Orders of recency in which nodes that are in both states, in the same slots, moved."""
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
    """Those of an order that have the same slots in both states."""
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
    """What was asked, as "Match"."""
    operation: Operation = step.operation
    return type(operation).__name__
