"""MATCH: what a match finds, and what it leaves alone.

A match reports how many pages of a prompt are cached, on any medium and on the device, and returns
the device slots.

What readers get wrong: a match that finds too little is broken as well. The answer is right, but
the prompt is computed again, and nobody notices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from kvcanon.spec.config import Choosing
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.operations import Insert, Inserted, Match, Matched
from kvcanon.spec.oracle.window import window_start
from kvcanon.spec.snapshot import NO_POOL, ComponentState, PoolState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Key, NodeId, Slot
from kvcanon.spec.views import (
    COLUMN,
    PageRow,
    Step,
    path_of,
    present_pages,
    rows_along,
    usable_pages,
)


@law(
    "MATCH-1",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a match that finds something",
        lambda step: isinstance(step.outcome, Matched) and step.outcome.prefix_pages > 0,
    ),
    from_outside=visibility.ANSWERS,
)
def longest_usable_prefix(step: Step) -> Iterator[str]:
    """A match finds exactly the longest usable prefix of its key, on whichever media its data is.

    Pages are found by namespace and tokens. The same tokens in another namespace are other pages.
    A match that says where its key leaves the tree (`branch_pages`) says how many pages of it are
    in the tree, usable or not.

    Why: one page too many, and the model attends to data that is not there; one page too few, and
    it is computed again. A page of another tenant lets a prompt probe what that tenant has asked.

    Seen broken: https://github.com/sgl-project/sglang/issues/17061,
    https://github.com/sgl-project/sglang/issues/24943,
    https://github.com/vllm-project/vllm/issues/48959,
    https://github.com/vllm-project/vllm/issues/43559,
    https://github.com/vllm-project/vllm/issues/44701,
    https://github.com/sgl-project/sglang/issues/24638
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return
    expected = usable_pages(step.before, operation.key, (GPU, CPU))
    if outcome.prefix_pages != expected:
        yield (
            f"a match of {len(operation.key)} pages found {outcome.prefix_pages} usable pages "
            f"where {expected} are: {_in_words(step.before, operation.key)}"
        )
    branch, there = outcome.branch_pages, present_pages(step.before, operation.key)
    if branch is not None and branch != there:
        yield (
            f"a match of {len(operation.key)} pages says that its key leaves the tree after "
            f"{branch} pages; {there} are in it: {_in_words(step.before, operation.key)}"
        )


@law(
    "MATCH-2",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a match that finds something on the device",
        lambda step: isinstance(step.outcome, Matched) and step.outcome.device_pages > 0,
    ),
    from_outside=visibility.ANSWERS,
)
def device_prefix(step: Step) -> Iterator[str]:
    """The device prefix is exactly the longest prefix that is usable from the device alone.

    So it is never longer than the usable prefix. Data on the host and loads in flight do not count.

    Why: an engine starts to compute behind the device prefix. If it is too long, kernels read slots
    that nothing was written to; if too short, data is loaded that is already there.

    Seen broken: https://github.com/sgl-project/sglang/issues/25085,
    https://github.com/sgl-project/sglang/issues/25277
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return
    expected = usable_pages(step.before, operation.key, (GPU,))
    if outcome.device_pages != expected:
        yield (
            f"a match of {len(operation.key)} pages found {outcome.device_pages} pages usable from "
            f"{GPU} where {expected} are: {_in_words(step.before, operation.key)}"
        )
    if outcome.device_pages > outcome.prefix_pages:
        yield (
            f"a match found {outcome.device_pages} pages usable from {GPU} but only "
            f"{outcome.prefix_pages} usable at all"
        )


@law(
    "MATCH-3",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a match that returns slots",
        lambda step: isinstance(step.outcome, Matched) and bool(step.outcome.slots.counts()),
    ),
    from_outside=visibility.ANSWERS,
)
def slots_of_the_key(step: Step) -> Iterator[str]:
    """A match returns the slots of its own pages, in order.

    Full slots: one for each page of the device prefix. Window slots: those of the longest run of
    window data that ends with it. And the mamba state at its end, where the cache keeps states. All
    are of nodes in the namespace of the key.

    Why: the model reads whatever is behind the slots that it gets, and answers fluently from
    another prompt's KV. Under another adapter the same tokens have other KV.

    Seen broken: https://github.com/sgl-project/sglang/issues/25088,
    https://github.com/sgl-project/sglang/issues/22935,
    https://github.com/sgl-project/sglang/issues/26747,
    https://github.com/sgl-project/sglang/issues/36382,
    https://github.com/NVIDIA/TensorRT-LLM/issues/13124
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return
    rows = rows_along(step.after, operation.key)
    if not 0 <= outcome.device_pages <= len(rows):
        yield (
            f"a match found {outcome.device_pages} pages on {GPU} "
            f"where {len(rows)} pages of its key are in the tree"
        )
        return
    rows = rows[: outcome.device_pages]
    window = list(takewhile(lambda row: _filled(row, SWA), reversed(rows)))[::-1]
    end = [row for row in rows[-1:] if _filled(row, MAMBA)]
    for component, expected in ((FULL, rows), (SWA, window), (MAMBA, end)):
        yield from _other_slots(step.after, component, outcome.slots[component], expected)


@law(
    "MATCH-5",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a match that changes recency, or cuts",
        lambda step: isinstance(step.outcome, Matched) and situations.changed(step),
    ),
)
def match_only_looks(step: Step) -> Iterator[str]:
    """A match changes nothing but recency and where nodes are cut.

    Pages keep data, locks, hits and the copies that they wait for; free lists, owners and counts
    stay as they are. LOCK-10 and ASYNC-7 check receipts and transfers, REC laws check recency,
    EVENT-5 checks that no event is emitted. By profile a match counts hits at the nodes of its
    usable prefix (RES-7).

    Why: an engine matches every waiting request at every step. If a match evicts data or locks it,
    requests that do not run yet take memory from those that do.

    Seen broken: https://github.com/sgl-project/sglang/issues/27038
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return
    yield from _changed_pages(step, outcome.prefix_pages)
    yield from _changed_books(step)


@law(
    "MATCH-6", Kind.STEP, LawClass.SERVING, premise=premises.INSERT, from_outside=visibility.ANSWERS
)
def inserted_is_found(step: Step) -> Iterator[str]:
    """After an insert its whole key is on the device, with all data that it brought or found there.

    Every page has full data. Window data and mamba states are there where they were before, or
    where the insert handed over a slot; MATCH-8 is of states before its end. The outcome says how
    many pages had full data before. By profile, window slots that were handed over for pages before
    the last window may be freed; and where leaves without window data are not kept, new pages of an
    insert without window slots may be gone. An insert may leave out new pages, if it says that it
    freed their slots (ASK-5); all that was there stays.

    Why: the request gave its slots away and goes on with what the cache has instead. And the next
    turn of the conversation computes again whatever is missing.

    Seen broken: https://github.com/sgl-project/sglang/issues/29351,
    https://github.com/sgl-project/sglang/issues/34823,
    https://github.com/vllm-project/vllm/issues/53498
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Insert) or not isinstance(outcome, Inserted):
        return
    key, brought = operation.key, operation.slots
    before, after = rows_along(step.before, key), rows_along(step.after, key)
    present = len(list(takewhile(lambda row: _filled(row, FULL), before)))
    if outcome.present_pages != present:
        yield (
            f"an insert says that {outcome.present_pages} of its {len(key)} pages had full data on "
            f"{GPU} before, and {present} had"
        )
    chooses = _chooses(step)
    dropped = _dropped_leaf(step, operation, len(before), len(after))
    if len(after) < (len(before) if chooses else len(key)) and not dropped:
        yield f"only {len(after)} of {len(key)} inserted pages are in the tree afterwards"
    begins = {
        FULL: operation.start_pages,
        SWA: max(len(key) - len(brought.swa), _first_kept_window(step.after, key)),
        MAMBA: len(key) - (len(key) - 1 in operation.pages_of(MAMBA)),
    }
    if chooses:
        begins |= {each: len(key) for each in begins if not outcome.adopted[each]}
    said: set[tuple[NodeId, Component]] = set()
    for at, row in enumerate(after):
        old = before[at] if at < len(before) else None
        for component, begin in begins.items():
            if _kept(component, old, row, brought=at >= begin) or (row.node_id, component) in said:
                continue
            said.add((row.node_id, component))
            had = old is not None and old.slot(component, GPU) is not None
            reason = "it was there before" if had else "the insert builds on it"
            yield (
                f"{component} data of page {at} of an inserted key is not on {GPU} afterwards, in "
                f"{step.after.describe(step.after.nodes[row.node_id])}; "
                f"{'the insert brought a slot for it' if at >= begin else reason}"
            )


@law(
    "MATCH-7",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a match that finds data of a load-back in flight",
        situations.finds_of_loads,
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS),
    enabled_if=bounds.has_host_tier,
    from_outside=(visibility.LOADS,),
)
def pending_loads_named(step: Step) -> Iterator[str]:
    """A match names exactly the transfers that are loading data of the usable prefix.

    Why: an engine that does not know of a load computes what is about to arrive; one that gets a
    wrong transfer waits for a copy that has nothing to do with its prompt.

    Seen broken: https://github.com/ai-dynamo/dynamo/issues/15079
    """
    operation, outcome = step.operation, step.outcome
    if not isinstance(operation, Match) or not isinstance(outcome, Matched):
        return
    found = rows_along(step.before, operation.key)[: max(0, outcome.prefix_pages)]
    expected = sorted({load for row in found for load in row.loading if load is not None})
    if sorted(outcome.pending) != expected:
        yield (
            f"a match of {outcome.prefix_pages} usable pages names transfers "
            f"{list(outcome.pending)} as pending; {expected} are loading them"
        )


@law(
    "MATCH-8",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "an insert that hands over a state before its end",
        lambda step: isinstance(step.outcome, Inserted) and bool(_inner_states(step)),
    ),
    enabled_if=lambda run: run.config.mamba and run.states_within,
    from_outside=visibility.ANSWERS,
)
def states_are_kept(step: Step) -> Iterator[str]:
    """An insert that hands over states before its end keeps a state at each of their pages.

    It is the one that was there before, or the one that was handed over (ALLOC-11). It stays until
    it is evicted (MATCH-5, TREE-5, EVICT-1), and a match ends at the deepest one (MATCH-1). By
    profile (`path_states`) a path keeps so many states only: then an insert may free those with
    which it has more, but not the deepest. A cache that leaves out new pages (ASK-5) leaves out
    their states.

    Why: a state is of use at its own position alone. Where many prompts share a beginning and
    part, the states at their ends serve nobody else, and without one where they part all of them
    compute the beginning again.

    Seen broken: https://github.com/sgl-project/sglang/issues/22935,
    https://github.com/sgl-project/sglang/issues/37584
    """
    operation = step.operation
    if not isinstance(operation, Insert) or not isinstance(step.outcome, Inserted):
        return
    if not _inner_states(step) or (not step.outcome.adopted[MAMBA] and _chooses(step)):
        return
    rows = rows_along(step.after, operation.key)
    for page in _due_states(step, operation):
        if page < len(rows) and not _filled(rows[page], MAMBA):
            where = step.after.describe(step.after.nodes[rows[page].node_id])
            yield (
                f"page {page} of an inserted key, in {where}, has no mamba state on {GPU} "
                "afterwards; the insert brought one for it"
            )


def _chooses(step: Step) -> bool:
    """Whether an insert may leave out pages, or says that it did."""
    return step.after.profile.admission is Choosing.OWN or left_out_pages(step) > 0


def _inner_states(step: Step) -> list[int]:
    """The pages before the end of its key at which an insert hands over states."""
    call = step.operation
    if not isinstance(call, Insert):
        return []
    return [page for page in call.pages_of(MAMBA) if page < len(call.key) - 1]


def _due_states(step: Step, call: Insert) -> Sequence[int]:
    """The pages at which an insert must keep the states that it hands over."""
    handed, most = call.pages_of(MAMBA), step.after.profile.path_states
    if not most:
        return handed
    rows = rows_along(step.before, call.key)
    there = [row for row in rows if row.slot(MAMBA, GPU) is not None and row.depth not in handed]
    return handed[-max(1, most - len(there)) :]


def left_out_pages(step: Step) -> int:
    """Pages of its key that an insert did not keep, where it says that it freed their slots."""
    call, outcome = step.operation, step.outcome
    if not isinstance(call, Insert) or not isinstance(outcome, Inserted):
        return 0
    kept = len(rows_along(step.after, call.key))
    if _dropped_leaf(step, call, len(rows_along(step.before, call.key)), kept):
        return 0
    left_out = len(call.key) - max(kept, call.start_pages)
    return left_out if outcome.freed[FULL] >= left_out else 0


def _first_kept_window(state: Snapshot, key: Key) -> int:
    """The first page of a key whose window data an insert must keep."""
    config = state.config
    if config.window_tokens is None or state.profile.unreachable_windows_kept:
        return 0
    return window_start(len(key), config.window_tokens, config.page_size)


def _dropped_leaf(step: Step, call: Insert, before: int, after: int) -> bool:
    """Whether all new pages of an insert are gone, and the profile allows that."""
    windowed = step.after.config.window_tokens is not None and not call.slots.swa
    return windowed and not step.after.profile.tombstone_leaves and after == before


def _filled(row: PageRow, component: Component) -> bool:
    """Whether a page has a component's data on the device, settled."""
    column = COLUMN[component]
    return row.device[column] is not None and row.loading[column] is None


def _kept(component: Component, old: PageRow | None, new: PageRow, *, brought: bool) -> bool:
    """Whether a page has on the device what it had and what was brought; always full data."""
    if old is not None and old.slot(component, GPU) is not None:
        if new.slot(component, GPU) is None:
            return False
        brought = brought or _filled(old, component)
    return _filled(new, component) or not (brought or component is FULL)


def _in_words(state: Snapshot, key: Key) -> str:
    """The residency of each node along the path of a key, in words."""
    parts = []
    for node, shared_pages in path_of(state, key):
        whole = shared_pages == len(node.pages)
        shared = "" if whole else f", of which {shared_pages} pages are shared,"
        where = [f"{component} {_places(node[component])}" for component in state.config.components]
        parts.append(f"{state.describe(node)}{shared} has {', '.join(where)}")
    return "; ".join(parts) or "no page of it is in the tree"


def _places(data: ComponentState) -> str:
    """The media where data is, in words."""
    places = [str(medium) for medium in (GPU, CPU) if data.resident(medium)]
    pending = [
        f"on its way to {medium}" for medium in (GPU, CPU) if data.pending(medium) is not None
    ]
    return " and ".join(places + pending) or "nowhere"


def _other_slots(
    state: Snapshot, component: Component, returned: tuple[Slot, ...], expected: list[PageRow]
) -> Iterator[str]:
    """Slots that a match returned and that are not those of these pages."""
    if len(returned) != len(expected):
        yield (
            f"a match returned {len(returned)} {component} slots where its pages have "
            f"{len(expected)} on {GPU}"
        )
        return
    for slot, row in zip(returned, expected, strict=True):
        if slot != row.slot(component, GPU):
            yield (
                f"a match returned {component} slot {slot} for page {row.depth}; in "
                f"{state.describe(state.nodes[row.node_id])} it is {row.slot(component, GPU)}"
                f"{_whose(state, component, slot)}"
            )


def _whose(state: Snapshot, component: Component, slot: Slot) -> str:
    """The node that has a device slot, as the end of a message; empty where no node has it."""
    for node in state.below_root():
        if slot in (node[component].device or ()):
            return f"; slot {slot} is that of {state.describe(node)} in {node.namespace}"
    return ""


def _changed_pages(step: Step, used_pages: int) -> Iterator[str]:
    """Pages in which a match changed more than recency and cuts, each node once."""
    before, after = step.changed
    said: set[NodeId] = set()
    counted = _counted_nodes(step, used_pages)
    for number, row in {**after, **before}.items():
        old, new = before.get(number), after.get(number)
        fields = _LOOKED_AT if new is None or new.node_id not in counted else _LOOKED_AT[:-1]
        changes = [
            f"{field} was {getattr(old, field, 'nothing')} and is {getattr(new, field, 'nothing')}"
            for field in fields
            if getattr(old, field, None) != getattr(new, field, None)
        ]
        if changes and row.node_id not in said:
            said.add(row.node_id)
            yield f"a match changed page {row.depth} of node {row.node_id}: {'; '.join(changes)}"


_LOOKED_AT = ("depth", "device", "host", "loading", "backing", "lock_refs", "hit_count")


def _counted_nodes(step: Step, used_pages: int) -> set[NodeId]:
    """The nodes at which a match may count hits, by profile: those of its usable prefix."""
    call, state = step.operation, step.after
    if not isinstance(call, Match) or not state.profile.hits_counted_at_match:
        return set()
    path = path_of(state, call.key)
    return {node.node_id for node, _ in path if state.starts[node.node_id] < used_pages}


def _changed_books(step: Step) -> Iterator[str]:
    """Pools, counts and mapping entries that a match changed."""
    before, after = step.before, step.after
    for name, pool in before.pools.items():
        now = after.pools.get(name, NO_POOL)
        if pool != now and _unordered(pool) != _unordered(now):
            yield f"a match changed which {name[0]} slots on {name[1]} are free or held"
    if before.usage != after.usage:
        yield f"a match changed the counts of usage from {before.usage} to {after.usage}"
    if before.swa_of_full != after.swa_of_full:
        changed = dict(before.swa_of_full.items() ^ after.swa_of_full.items())
        yield f"a match changed the window slots of full slots {sorted(changed)}"


def _unordered(pool: PoolState) -> tuple[int, list[Slot], frozenset[Slot]]:
    """A pool without the order of its free slots."""
    return (pool.capacity, sorted(pool.free), pool.held)
