"""REC, continued: which nodes are evicted, in which order.

The state before an eviction determines it: the policy orders leaves, the last use window data and
mamba states, and it ends as soon as enough slots are free. So the laws replay it
(`spec.replay`) and compare the residency afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations, product

from attrs import evolve

from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds, premises, situations, visibility
from kvcanon.spec.laws.comparison import losses, parts_on_host, slot_of, total_uncopied, writes_back
from kvcanon.spec.laws.copies import failed_victims
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    HostInserted,
    HostPayload,
    Insert,
    Inserted,
    InsertHost,
    LoadDecision,
)
from kvcanon.spec.replay.backup import copies_fit, copies_several, enqueued_parts, replay_backups
from kvcanon.spec.replay.board import Board, Piece, board_of
from kvcanon.spec.replay.compare import (
    ObservedChanges,
    PageData,
    discrepancies,
    expected_changes,
    lost_on_device,
)
from kvcanon.spec.replay.device import Stays, evict_device
from kvcanon.spec.replay.host import HostChoices, evict_host
from kvcanon.spec.replay.host_insert import replay_host_insert
from kvcanon.spec.replay.load import Load, load_of, replay_load
from kvcanon.spec.snapshot import NO_POOL, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Component, Counts, Medium, NodeId
from kvcanon.spec.views import PageRow, Step

_ORDERS = (Need.SNAPSHOT, Need.RECENCY)
_BOTH = (GPU, CPU)
MOST_GIVEN_UP = 4
"""Up to so many duplicates that left, every order in which they may have left is tried; with
more, only how many slots were freed is checked."""


@law(
    "REC-3",
    Kind.STEP,
    LawClass.POLICY,
    chosen_by="eviction",
    premise=Premise[Step](
        "an eviction that had a choice",
        situations.chose_a_victim,
    ),
    needs=_ORDERS,
    from_outside=(visibility.EVICTIONS,),
)
def victims_in_policy_order(step: Step) -> Iterator[str]:
    """An eviction takes victims in policy order, one by one, until it has freed enough slots.

    This holds for evictions from device and host, and for those of a load-back, of an insert that
    backs up, and of a host insert. Components are served in the order full, swa, mamba; slots that
    one frees on the way count for the next. For a copy that cannot have all its slots, none is
    freed in the pools after the first that stays short. For full slots, the leaf with the smallest
    policy key leaves, and its parent can follow once it is a leaf; for window and mamba slots, the
    least recently used data that is not locked. A leaf leaves as a whole, except that of the last
    victim only the needed end may leave.

    Under write_back, data that leaves the device is copied to the host first if it fits there or
    host slots can be freed for it. On the host, only data that is nowhere else leaves, under
    write_back after the duplicates. If more than four duplicates leave, their orders are too many
    to compare; then, unless the host lacks slots for windows and states too, at most as many full
    slots may be free on the host as before, or fewer than the largest node has that left. What has
    no copy since its copy failed is gone; if an eviction copies more after a copy that came to
    nothing, or copies in vain what had left the host for another copy, it is not checked. By
    profile, a tombstone leaves with the last node below it; and where cuts change recency, steps
    that cut are not checked.

    Why: the operator chose the policy. A wrong victim, or one too many, is a prompt that should be
    cached. And replicas that evict differently run different plans and hang.

    Seen broken: https://github.com/kvcache-ai/Mooncake/issues/2976,
    https://github.com/sgl-project/sglang/issues/4987
    """
    if _was_cut(step):
        return
    seen = ObservedChanges(step)
    boards = _played(step, seen)
    if boards is None:
        return
    media, backs_up = _media(step), isinstance(step.operation, Insert)
    found = _without_gains(seen.changes(media), backs_up=backs_up)
    first: list[str] | None = None
    for board in boards:
        expected = _without_gains(expected_changes(board, media), backs_up=backs_up)
        wrong = list(discrepancies(step, expected, found))
        if not wrong or board.unsure or _copied_on(step):
            return
        first = first or wrong
    if _copied_again_in_vain(step):
        return
    if len(_given_up(step)) > MOST_GIVEN_UP and not isinstance(step.operation, EvictHost):
        yield from _freed_in_vain(step)
        return
    name = type(step.operation).__name__
    yield from (f"{name}: {words}" for words in first or ())


@law(
    "RES-11",
    Kind.STEP,
    LawClass.SERVING,
    premise=premises.HOST_INSERT,
    needs=_ORDERS,
    enabled_if=bounds.fetches_pages,
)
def fetched_data_is_placed(step: Step) -> Iterator[str]:
    """A host insert places as much of its data as fits on the host, and evicts only for that.

    Full data goes to the pages of the path that lack it, from the top, up to the first page that
    must not have it (below a gap, or below a copy in flight) or does not fit; pages that are not in
    the tree become a new leaf, as far as they fit. If that reaches the end of the key, the window
    and the mamba state are placed too, each whole or not at all. Data fits if it could be made
    room for; REC-3 checks what was evicted.

    Why: a request waits for the fetched pages. Pages that are dropped without need are fetched
    again, or computed.

    Seen broken: not seen
    """
    call = step.operation
    if not isinstance(call, InsertHost) or not isinstance(step.outcome, HostInserted):
        return
    if _was_cut(step) or parts_on_host(step.before):
        return
    seen = ObservedChanges(step)
    found = seen.changes(_BOTH)
    short = _is_short(step.before, call.payload)
    first: list[str] | None = None
    for board in _fetches(step, seen, call):
        expected = expected_changes(board, _BOTH)
        if short:
            expected, found = _gains(expected), _gains(found)
        wrong = list(discrepancies(step, expected, found))
        if not wrong or board.unsure:
            return
        first = first or wrong
    if len(_given_up(step)) <= MOST_GIVEN_UP:
        yield from first or ()


def _copied_on(step: Step) -> bool:
    """Whether a copy came to nothing and the call ordered another, which had more room then."""
    if step.asked is None or len(step.asked.orders) <= 1:
        return False
    flying = {each.transfer_id for each in step.after.transfers}
    return (
        bool(step.asked.failed)
        or _is_held_unseen(step.before)
        or any(
            each.transfer_id not in flying
            and (each.cancelled or not step.ended.get(each.transfer_id))
            for each in step.before.transfers
        )
    )


def _is_held_unseen(state: Snapshot) -> bool:
    """Whether some host slots are neither free nor shown, as those of a copy may be."""
    shown = {
        (component, slot)
        for node in state.nodes.values()
        for component, data in node.data.items()
        for slot in data.host or ()
    }
    shown |= {
        (component, slot)
        for each in state.transfers
        for component, slots in each.targets.items()
        for slot in slots
    }
    return any(
        (component, slot) not in shown and slot not in pool.free_set | pool.held
        for (component, medium), pool in state.pools.items()
        for slot in range(pool.capacity if medium is CPU else 0)
    )


def _gains(changes: dict[PageData, bool]) -> dict[PageData, bool]:
    """The changes without the data that left."""
    return {item: came for item, came in changes.items() if came}


def _makes_room(step: Step, call: InsertHost) -> bool:
    """Whether a host insert has to evict; by profile, what it does then is not specified."""
    return _is_short(step.before, call.payload) and not parts_on_host(step.before)


def _is_short(state: Snapshot, payload: HostPayload) -> bool:
    """Whether the host has fewer slots free than fetched data may take."""
    wanted = Counts(len(payload.full), len(payload.swa), len(payload.mamba))
    pools = {each: state.pools.get((each, CPU), NO_POOL) for each in Component}
    return any(len(pools[each].free) < wanted[each] for each in Component)


def _was_cut(step: Step) -> bool:
    """Whether a step cut nodes, and by profile cuts change recency."""
    keeps = step.before.profile.split_keeps_recency
    return not keeps and not step.after.nodes.keys() <= step.before.nodes.keys()


def _media(step: Step) -> tuple[Medium, ...]:
    if isinstance(step.operation, Insert):
        return (CPU,)
    # By profile, parts of nodes are copied alone, and which parts is not specified.
    parts = parts_on_host(step.before) and not isinstance(step.operation, EvictHost)
    return (GPU,) if parts else _BOTH


def _without_gains(changes: dict[PageData, bool], *, backs_up: bool) -> dict[PageData, bool]:
    """The changes without data that an insert brings to the host: RES-5 and RES-10 check that."""
    return {item: came for item, came in changes.items() if not (backs_up and came)}


def _played(step: Step, seen: ObservedChanges) -> Iterator[Board] | None:
    """The boards that a correct cache may reach; None where nothing could be evicted."""
    match step.operation, step.outcome:
        case Evict(counts), Evicted():
            return _evictions(step, seen, counts)
        case EvictHost(counts), Evicted():
            return _host_evictions(step, seen, counts)
        case Insert(), Inserted() if step.before.config.host_tier:
            return _backups(step, seen)
        case InsertHost() as call, HostInserted() if _makes_room(step, call):
            return _fetches(step, seen, call)
    load = load_of(step)
    return _loads(step, seen, load) if load is not None and load.may_evict else None


def _choices(step: Step, seen: ObservedChanges) -> Iterator[HostChoices]:
    """What a cache may choose: to evict for a copy that cannot fit, and the order of duplicates.

    If one operation frees host slots several times, that order matters more than once; and a state
    on the host may have left with its window data, or later with all that its node has there.
    """
    yield from _choices_of_order(step, seen)
    if _given_up(step) and {SWA, MAMBA} <= {*step.before.config.components}:
        for choices in _choices_of_order(step, seen):
            yield evolve(choices, states_stay=True)


def _choices_of_order(step: Step, seen: ObservedChanges) -> Iterator[HostChoices]:
    yield from _choices_of_room(step, seen)
    if isinstance(step.operation, EvictHost):
        return
    given_up, again = _given_up(step), _back_in_their_slots(step)
    if 1 < len(given_up) <= MOST_GIVEN_UP:
        for choices in _choices_of_room(step, seen):
            for order in permutations(given_up):
                yield evolve(choices, order=order)
    if again and len(given_up) + len(again) <= MOST_GIVEN_UP:
        for choices in _choices_of_room(step, seen):
            for order in permutations([*given_up, *again]):
                yield evolve(choices, gave_up=seen.may_have_given_up, order=order)


def _back_in_their_slots(step: Step) -> list[NodeId]:
    """Nodes that lost data on the device, whose host copies may have left and come back before."""
    same = {
        was.node_id: None
        for was, now in _duplicates(step)
        if lost_on_device(was, now) and slot_of(now, FULL, CPU) == was.slot(FULL, CPU)
    }
    return list(same)


def _given_up(step: Step) -> list[NodeId]:
    """The nodes whose host copies left while the device had their full data too."""
    gone = {
        was.node_id: None
        for was, now in _duplicates(step)
        if slot_of(now, FULL, CPU) != was.slot(FULL, CPU)
    }
    return list(gone)


def _duplicates(step: Step) -> Iterator[tuple[PageRow, PageRow | None]]:
    """The pages that had full data on both media under write_back, before and after."""
    before, after = step.changed
    for number, was in before.items() if writes_back(step.before) else ():
        if was.slot(FULL, CPU) is not None and was.slot(FULL, GPU) is not None:
            yield was, after.get(number)


def _copied_again_in_vain(step: Step) -> bool:
    """Whether a node's host copy left for another copy, and the copy that replaced it failed."""
    victims = failed_victims(step)
    return any(
        (FULL, slot) in victims
        for node_id in _given_up(step)
        for slot in step.before.nodes[node_id][FULL].device or ()
    )


def _freed_in_vain(step: Step) -> Iterator[str]:
    """Host slots that came free for no copy, whatever the order in which duplicates left.

    Room for a copy is made node by node until there is enough, so that what is left over is smaller
    than the last node. Room that was made in vain is smaller than the victim that was not copied.
    """
    victims = losses(step, GPU)
    if not victims:
        return  # Room was made for other data than that of victims.
    if parts_on_host(step.before) or failed_victims(step) or _lacked_other_slots(step):
        return  # Full slots may have come free on the way, for other data.
    largest = max(len(each.node.pages) for each in [*victims, *losses(step, CPU)])
    pool = (FULL, CPU)
    was, now = (len(state.pools[pool].free) for state in (step.before, step.after))
    most = max(was, largest - 1)
    if now > most:
        yield (
            f"{type(step.operation).__name__}: {now} full slots are free on {CPU}, where {was} "
            f"were; the largest node that left has {largest} pages, so that {most} at most can be "
            "left over when room is made"
        )


def _lacked_other_slots(step: Step) -> bool:
    """Whether the windows and states of victims may have found too few free slots on the host."""
    needed = total_uncopied(loss.node for loss in losses(step, GPU))
    return any(
        needed[component] > len(step.before.pools.get((component, CPU), NO_POOL).free)
        for component in (SWA, MAMBA)
    )


def _choices_of_room(step: Step, seen: ObservedChanges) -> Iterator[HostChoices]:
    first = HostChoices(seen.gave_up, tries_in_vain=True, failed=_failed(step))
    yield first
    if not step.before.profile.locks_hold_host_copies:
        yield evolve(first, held_first=True)
    if writes_back(step.before) or isinstance(step.operation, Insert | InsertHost):
        yield evolve(first, tries_in_vain=False)


def _failed(step: Step) -> Callable[[Piece, Component], bool] | None:
    """Whether the copy of a piece's data failed in a step; None if no copy did."""
    victims = failed_victims(step)
    if not victims:
        return None

    def failed(piece: Piece, component: Component) -> bool:
        if piece.node_id is None:
            return False
        device = step.before.nodes[piece.node_id][component].device or ()
        at = 0 if component is MAMBA else piece.begin - step.before.starts[piece.node_id]
        return device[at : at + 1] != () and (component, device[at]) in victims

    return failed


def _tails(seen: ObservedChanges) -> tuple[Stays, Stays]:
    """Whether the rest of a victim that lost only its end may be evicted later in the same step."""
    return seen.stays, seen.stays_at_first


def _evictions(step: Step, seen: ObservedChanges, asked: Counts) -> Iterator[Board]:
    for stays, choices in product(_tails(seen), _choices(step, seen)):
        board = board_of(step.before)
        evict_device(board, asked, stays, choices)
        yield board


def _host_evictions(step: Step, seen: ObservedChanges, asked: Counts) -> Iterator[Board]:
    for choices in _choices(step, seen):
        board = board_of(step.before)
        evict_host(board, asked, choices)
        yield board


def _loads(step: Step, seen: ObservedChanges, load: Load) -> Iterator[Board]:
    for stays, choices in product(_tails(seen), _choices(step, seen)):
        yield replay_load(step.before, load, stays, choices, evicts=True)
    if load.outcome.decision is LoadDecision.NO_ROOM:
        no_choice = HostChoices(seen.gave_up, tries_in_vain=False)
        yield replay_load(step.before, load, seen.stays, no_choice, evicts=False)


def _fetches(step: Step, seen: ObservedChanges, call: InsertHost) -> Iterator[Board]:
    for choices in _choices(step, seen):
        yield replay_host_insert(step.before, call, choices)


def _backups(step: Step, seen: ObservedChanges) -> Iterator[Board]:
    if not any(node.hit_count for node in step.after.below_root()):
        return  # Hits are not shown, so it is not known which backups were due.
    if isinstance(step.outcome, Inserted) and step.outcome.backups and not enqueued_parts(step):
        return  # Copies are not shown, so it is not known for which of them slots were freed.
    if all(seen.changes((CPU,)).values()) and copies_fit(step):
        return  # Nothing left the host, and nothing had to.
    for choices in _choices(step, seen):
        yield replay_backups(step, choices)
        if copies_several(step):
            yield replay_backups(step, choices, node_by_node=True)
