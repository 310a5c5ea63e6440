"""REC, continued: whose turn it is to leave.

An eviction is determined by the state before it: the policy ranks leaves, the last use ranks window
data and states, and as soon as there is room it ends. So it is played again on paper, as `replay`
has it, and what is where afterwards must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from attrs import evolve

from kvcanon.spec.law import Kind, Need, law
from kvcanon.spec.laws import premises
from kvcanon.spec.laws.comparing import parts_on_host, slot_of, writes_back
from kvcanon.spec.operations import (
    Evict,
    Evicted,
    EvictHost,
    HostInserted,
    Insert,
    Inserted,
    InsertHost,
    LoadDecision,
)
from kvcanon.spec.replay.backup import due_backups, enqueued_parts, replay_backups
from kvcanon.spec.replay.board import Board, board_of
from kvcanon.spec.replay.compare import ObservedChanges, PageData, discrepancies, expected_changes
from kvcanon.spec.replay.device import Stays, evict_device
from kvcanon.spec.replay.host import HostChoices, evict_host
from kvcanon.spec.replay.host_insert import replay_host_insert
from kvcanon.spec.replay.load import replay_load
from kvcanon.spec.replay.missing import Load, load_of
from kvcanon.spec.types import CPU, FULL, GPU, Counts, Medium, NodeId
from kvcanon.spec.views import Step

_ORDERS = (Need.SNAPSHOT, Need.RECENCY)
_BOTH = (GPU, CPU)
MOST_GIVEN_UP = 4
"""Of so many duplicates that left every order is tried; of more, what follows is not asked."""


@law("REC-3", Kind.STEP, premises.CHOICE_OF_VICTIM, needs=_ORDERS)
def victims_in_policy_order(step: Step) -> Iterator[str]:
    """An eviction takes the victims whose turn it is, one after the other, until there is room.

    This holds for whoever makes room: an eviction from the device or the host, a load-back, and an
    insert that backs up. Components are served in the order full, swa, mamba; what one frees by the
    way counts for the next. For full slots the leaf leaves that ranks first under the policy, and
    its parent takes its turn once it is a leaf; for window slots and states what was used least
    recently and is not locked. A leaf leaves whole, except that of the last victim only the end may
    leave that is needed. Data that leaves the device under write_back is copied to the host first,
    where there is room or can be made. On the host only what is nowhere else leaves, and under
    write_back duplicates before it. By profile, a tombstone leaves with what uncovered it, and
    where a cut moves recency, steps that cut are not asked.

    Why: the policy is what an operator has chosen to keep. A victim out of turn, or one more than
    was needed, is a prompt that ought to be there; and replicas that evict differently run
    different plans and hang.

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
        if not wrong or board.unsure:
            return
        first = first or wrong
    if len(_given_up(step)) > MOST_GIVEN_UP and not isinstance(step.operation, EvictHost):
        return  # There are too many orders to try.
    name = type(step.operation).__name__
    yield from (f"{name}: {words}" for words in first or ())


@law("RES-11", Kind.STEP, premises.HOST_INSERT, needs=_ORDERS)
def fetched_data_is_placed(step: Step) -> Iterator[str]:
    """A host insert places what it was given as far as there is room, and evicts only for that.

    Full data goes down the path, to pages that lack it, up to the first page that must not have it
    (below a gap, or a copy that is still in flight) or has no room; what is not in the tree becomes
    a leaf, as long as fits. Where that reaches the end of the key, the window and the state are
    placed too, each whole or not at all. Victims leave as for any other eviction from the host.

    Why: the pages were fetched for a request that waits for them. What is dropped without need is
    fetched again, or computed.

    Seen broken: not seen
    """
    asked = step.operation
    if not isinstance(asked, InsertHost) or not isinstance(step.outcome, HostInserted):
        return
    if _was_cut(step) or parts_on_host(step.before):
        return
    seen = ObservedChanges(step)
    found = seen.changes(_BOTH)
    first: list[str] | None = None
    for choices in _choices(step, seen):
        board = replay_host_insert(step.before, asked, choices)
        wrong = list(discrepancies(step, expected_changes(board, _BOTH), found))
        if not wrong or board.unsure:
            return
        first = first or wrong
    if len(_given_up(step)) <= MOST_GIVEN_UP:
        yield from first or ()


def _was_cut(step: Step) -> bool:
    """Whether a step cut nodes, and the profile says that this moves recency."""
    keeps = step.before.profile.split_keeps_recency
    return not keeps and not step.after.nodes.keys() <= step.before.nodes.keys()


def _media(step: Step) -> tuple[Medium, ...]:
    if isinstance(step.operation, Insert):
        return (CPU,)
    # By profile parts of nodes are copied alone; which ones, nobody has written down.
    parts = parts_on_host(step.before) and not isinstance(step.operation, EvictHost)
    return (GPU,) if parts else _BOTH


def _without_gains(changes: dict[PageData, bool], *, backs_up: bool) -> dict[PageData, bool]:
    """What an insert brings to the host is for RES-5 and RES-10 to say."""
    return {item: came for item, came in changes.items() if not (backs_up and came)}


def _played(step: Step, seen: ObservedChanges) -> Iterator[Board] | None:
    """The boards that a sound cache may come to; None where nothing could be evicted."""
    match step.operation, step.outcome:
        case Evict(counts), Evicted():
            return _evictions(step, seen, counts)
        case EvictHost(counts), Evicted():
            return _host_evictions(step, seen, counts)
        case Insert(), Inserted() if step.before.config.host_tier:
            return _backups(step, seen)
    load = load_of(step)
    return _loads(step, seen, load) if load is not None and load.may_evict else None


def _choices(step: Step, seen: ObservedChanges) -> Iterator[HostChoices]:
    """Whether victims leave for room that cannot be made is free, and which duplicate leaves first.

    Where room is made several times in one operation, more depends on that order.
    """
    for choices in _choices_of_room(step, seen):
        yield choices
    given_up = _given_up(step)
    if 1 < len(given_up) <= MOST_GIVEN_UP and not isinstance(step.operation, EvictHost):
        for choices in _choices_of_room(step, seen):
            for order in permutations(given_up):
                yield evolve(choices, order=order)


def _given_up(step: Step) -> list[NodeId]:
    """The nodes whose host copies left while the device had their full data too."""
    if not writes_back(step.before):
        return []
    before, after = step.changed
    gone = {
        row.node_id: None
        for number, row in before.items()
        if row.slot(FULL, CPU) is not None
        and row.slot(FULL, GPU) is not None
        and slot_of(after.get(number), FULL, CPU) != row.slot(FULL, CPU)
    }
    return list(gone)


def _choices_of_room(step: Step, seen: ObservedChanges) -> Iterator[HostChoices]:
    yield HostChoices(seen.gave_up, tries_in_vain=True)
    if not step.before.profile.locks_hold_host_copies:
        yield HostChoices(seen.gave_up, tries_in_vain=True, held_first=True)
    if writes_back(step.before) or isinstance(step.operation, Insert | InsertHost):
        yield HostChoices(seen.gave_up, tries_in_vain=False)


def _tails(seen: ObservedChanges) -> tuple[Stays, Stays]:
    """Whether the rest of a victim of which only the end had to leave may leave at a later turn."""
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


def _backups(step: Step, seen: ObservedChanges) -> Iterator[Board]:
    if not any(node.hit_count for node in step.after.below_root()):
        return  # No hits are shown, and so not what was due.
    if isinstance(step.outcome, Inserted) and step.outcome.backups and not enqueued_parts(step):
        return  # No copies are shown, and so not what room was made for.
    tried = any(not due.done() for due in due_backups(step)) or enqueued_parts(step)
    if not tried and all(seen.changes((CPU,)).values()):
        return
    for choices in _choices(step, seen):
        yield replay_backups(step, choices)
