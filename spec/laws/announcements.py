"""Announcements: what a state, or a step, obliges a cache to say; shared by several areas.

Events speak of full data that is there: in a slot, with no copy still to fill it. From that follows
what a state adds up to, page by page and medium by medium, and what each step has to tell.

What readers get wrong: the host has an in-between that the device has not. A page whose backup is
in flight owns a host slot, and must not be announced there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat

from kvcanon.spec.config import StoreMoment
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import (
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Residency,
    Resident,
)
from kvcanon.spec.laws.comparing import MEDIA
from kvcanon.spec.laws.emission import emissions
from kvcanon.spec.laws.names import PageNames, Place, short
from kvcanon.spec.operations import Evict, LoadBack
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, FULL, GPU, Medium, WritePolicy
from kvcanon.spec.views import PageRow, Step


class Told:
    """What has been said so far, while a stream is read."""

    def __init__(self, start: Residency) -> None:
        self._start: Residency | None = start
        self._since: dict[Resident, bool] = {}

    def __contains__(self, item: Resident) -> bool:
        said = self._since.get(item)
        return said if said is not None else self._start is not None and item in self._start

    def hear(self, event: Event) -> None:
        """Take one more event."""
        if isinstance(event, AllBlocksCleared):
            self._start, self._since = None, {}
        else:
            self._since[event.medium, event.block_hash] = isinstance(event, BlockStored)


def residency_of(state: Snapshot) -> set[Resident]:
    """What is where, and must have been said: the name of each page, on each medium."""
    names, there = PageNames(state), set[Resident]()
    for node in state.below_root():
        for medium in MEDIA:
            if is_announced(state, node, medium):
                there.update(zip(repeat(medium), names.of(node), strict=False))
    return there


def is_truth(told: Residency, state: Snapshot) -> bool:
    """Whether what was told is what is where: as comparing with `residency_of`, and cheaper.

    A set of all that is there would be made of as many new pairs, for nothing where all is well.
    """
    said = set(told.base)
    for item, present in told.changes.items():
        (said.add if present else said.discard)(item)
    names, count = PageNames(state), 0
    for node in state.below_root():
        for medium in MEDIA:
            if is_announced(state, node, medium):
                held = names.of(node)
                count += len(held)
                if not said.issuperset(zip(repeat(medium), held, strict=False)):
                    return False
    return count == len(said)


def moved_on(told: Residency, difference: Difference) -> Residency | None:
    """What is where after a step, where `told` is what was where before, each name once.

    None where a name is not to be relied on: two pages have it, or a page that stayed changed its.
    """
    if not difference.touched:
        return told
    names_before, names_after = PageNames(difference.before), PageNames(difference.after)
    left, came = list[Resident](), list[Resident]()
    for node_id in difference.touched:
        was, now = difference.before.nodes.get(node_id), difference.after.nodes.get(node_id)
        media_before = _announced_on(difference.before, was)
        media_after = _announced_on(difference.after, now)
        if was is not None and now is not None:
            same_names = (was.parent_id, was.pages, was.hashes) == (
                now.parent_id,
                now.pages,
                now.hashes,
            )
            if media_before == media_after and same_names:
                continue
            if names_before.of(was)[-1:] != names_after.of(now)[-1:]:
                return None
        if was is not None:
            left.extend((m, name) for m in media_before for name in names_before.of(was))
        if now is not None:
            came.extend((m, name) for m in media_after for name in names_after.of(now))
    gone, arrived = set(left).difference(came), set(came).difference(left)
    if len(came) != len(set(came)) or any(item in told for item in arrived):
        return None
    changes = {**dict.fromkeys(gone, False), **dict.fromkeys(arrived, True)}
    return Residency(told.base, {**told.changes, **changes})


def _announced_on(state: Snapshot, node: NodeState | None) -> list[Medium]:
    """The media on which a node's pages must have been announced; none of the root's."""
    if node is None or node.node_id == state.root_id:
        return []
    return [medium for medium in MEDIA if is_announced(state, node, medium)]


def is_announced(state: Snapshot, node: NodeState, medium: Medium) -> bool:
    """Whether a node's full data is there, so that its store must have been sent.

    A profile may announce a load-back at its enqueue; then its slots alone count.
    """
    full = node[FULL]
    if medium is GPU and announces_at_enqueue(state):
        return full.device is not None
    return full.resident(medium)


def announces_at_enqueue(state: Snapshot) -> bool:
    """Whether a load-back is announced before its bytes are there; the canon says no."""
    return state.profile.load_back_announced is StoreMoment.ENQUEUED


def closed_media(state: Snapshot) -> tuple[Medium, ...]:
    """The media on which no page is without the page before it: under write_back, the device."""
    return (GPU,) if _writes_back(state) else MEDIA


def may_send(step: Step) -> set[tuple[bool, Medium]]:
    """What an operation can bring about, and so send: True for a store, and the medium."""
    rows = emissions(type(step.operation), FULL, step.after.config, step.after.profile)
    return {(row.event is BlockStored, row.medium) for row in rows if row.medium is not None}


def churns(step: Step, medium: Medium) -> bool:
    """Whether an operation may bring a page to a medium and take it away again, or the reverse.

    Only an eviction under write_back: what it copied for one victim may have to go for the next.
    """
    return (
        medium is CPU and isinstance(step.operation, Evict | LoadBack) and _writes_back(step.after)
    )


def moves_of(step: Step) -> Mapping[Resident, tuple[bool, str]]:
    """The pages that came to a medium (True) or left it (False), each with its place in words."""
    before, after = step.changed
    names_before, names_after = PageNames(step.before), PageNames(step.after)
    moves: dict[Resident, tuple[bool, str]] = {}

    def note(place: Place, state: Snapshot, medium: Medium, *, came: bool) -> None:
        moves[medium, place.name] = (came, place.describe(state))

    for number in before.keys() | after.keys():
        was, now = before.get(number), after.get(number)
        for medium in MEDIA:
            came = now is not None and _row_announced(step.after, now, medium)
            if came is (was is not None and _row_announced(step.before, was, medium)):
                continue
            if now is not None:
                note(names_after.row_place(now), step.after, medium, came=came)
            elif was is not None:
                note(names_before.row_place(was), step.before, medium, came=came)
    return moves


def stores_and_removes(step: Step) -> Iterator[BlockStored | BlockRemoved]:
    """The events of a step that speak of a page."""
    return (event for event in step.events if not isinstance(event, AllBlocksCleared))


def listed(events: Sequence[Event]) -> str:
    """Events in words: the first few, and how many more."""
    words = [
        type(event).__name__
        if isinstance(event, AllBlocksCleared)
        else f"{type(event).__name__}({short(event.block_hash)}, {event.medium})"
        for event in events[:3]
    ]
    more = f" and {len(events) - 3} more" if len(events) > 3 else ""
    return ", ".join(words) + more or "nothing"


def _row_announced(state: Snapshot, row: PageRow, medium: Medium) -> bool:
    """As `is_announced`, of one page."""
    if row.slot(FULL, medium) is None:
        return False
    pending = row.loading[0] if medium is GPU else row.backing[0]
    return pending is None or (medium is GPU and announces_at_enqueue(state))


def _writes_back(state: Snapshot) -> bool:
    return state.config.write_policy is WritePolicy.WRITE_BACK
