"""Expected events: what a cache must have emitted in a state, and must emit in a step.

Events describe full data that is resident: in a slot that no copy has yet to fill. A page whose
backup is in flight owns a host slot, and no store may be emitted for it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from kvcanon.spec.config import StoreMoment
from kvcanon.spec.difference import Difference
from kvcanon.spec.events import (
    Ahead,
    AllBlocksCleared,
    BlockRemoved,
    BlockStored,
    Event,
    Residency,
    Resident,
)
from kvcanon.spec.laws.comparison import MEDIA, writes_back
from kvcanon.spec.laws.emission import emissions
from kvcanon.spec.laws.page_hashes import PageHashes, Place, short
from kvcanon.spec.operations import Evict, LoadBack, PollStore, Reset, Taken
from kvcanon.spec.snapshot import NodeState, Snapshot
from kvcanon.spec.types import CPU, DISK, EXTERNAL, FULL, GPU, Medium
from kvcanon.spec.views import PageRow, Step


def residency_of(state: Snapshot) -> set[Resident]:
    """Every page of a state on each medium where it is resident, as (medium, page hash)."""
    hashes, there, at_enqueue = PageHashes(state), set[Resident](), emits_at_enqueue(state)
    for node in state.below_root():
        for medium in _media_of(node, at_enqueue=at_enqueue):
            there.update(zip(repeat(medium), hashes.of(node), strict=False))
    return there | below_host(state)


def below_host(state: Snapshot) -> set[Resident]:
    """The pages that count as being in the store below the host."""
    store = state.store
    return set() if store is None else {(store.medium, name) for name in store.stored}


def is_truth(residency: Iterable[Resident], state: Snapshot) -> bool:
    """Whether a residency that events describe is that of a state.

    The same as a comparison with `residency_of`, but it builds no set of all pages.
    """
    said = set(residency)
    stored = below_host(state)
    if not said >= stored:
        return False
    hashes, count, at_enqueue = PageHashes(state), len(stored), emits_at_enqueue(state)
    for node in state.below_root():
        for medium in _media_of(node, at_enqueue=at_enqueue):
            held = hashes.of(node)
            count += len(held)
            if not said.issuperset(zip(repeat(medium), held, strict=False)):
                return False
    return count == len(said)


def moved_on(residency: Residency, difference: Difference) -> Ahead | None:
    """The residency after a step, computed from `residency`, the one before it.

    None where hashes are not reliable: two pages share one, or a page that stayed changed its hash.
    """
    if not difference.touched and "store" not in difference.fields:
        return residency.ahead()
    before, after = difference.before, difference.after
    hashes_before, hashes_after = PageHashes(before), PageHashes(after)
    at_enqueue = emits_at_enqueue(after)
    left, came = [*below_host(before)], [*below_host(after)]
    for node_id in difference.touched:
        was, now = before.nodes.get(node_id), after.nodes.get(node_id)
        stays = was is not None and now is not None and was.hashes == now.hashes
        if stays and node_id not in difference.rebuilt:
            continue  # Only its use changed.
        media_before = _media_of(was, at_enqueue=at_enqueue)
        media_after = _media_of(now, at_enqueue=at_enqueue)
        if was is not None and now is not None:
            same_hashes = (was.parent_id, was.pages, was.hashes) == (
                now.parent_id,
                now.pages,
                now.hashes,
            )
            if media_before == media_after and same_hashes:
                continue
            if hashes_before.of(was)[-1:] != hashes_after.of(now)[-1:]:
                return None
        if was is not None:
            left += [(m, page_hash) for m in media_before for page_hash in hashes_before.of(was)]
        if now is not None:
            came += [(m, page_hash) for m in media_after for page_hash in hashes_after.of(now)]
    gone, arrived = set(left).difference(came), set(came).difference(left)
    if len(came) != len(set(came)) or any(item in residency for item in arrived):
        return None
    return Ahead(residency, {**dict.fromkeys(gone, False), **dict.fromkeys(arrived, True)})


def _media_of(node: NodeState | None, *, at_enqueue: bool) -> list[Medium]:
    """The media on which a node's full data is resident, so that a store must have been emitted.

    A profile may emit the store of a load-back at its enqueue; then a slot is enough.
    """
    if node is None:
        return []
    full, media = node.full, list[Medium]()
    if full.device is not None and (at_enqueue or full.loading is None):
        media.append(GPU)
    if full.host is not None and full.backing is None:
        media.append(CPU)
    return media


def emits_at_enqueue(state: Snapshot) -> bool:
    """Whether the store of a load-back is emitted before its bytes arrive; by default it is not."""
    return state.profile.load_back_announced is StoreMoment.ENQUEUED


def closed_media(state: Snapshot) -> tuple[Medium, ...]:
    """The media on which parents stay as long as their children: under write_back not the host."""
    media = (GPU,) if writes_back(state) else MEDIA
    return media if state.store is None else (*media, state.store.medium)


def shown_media(state: Snapshot) -> tuple[Medium, ...]:
    """The media of which a state shows what is there: without a store none below the host."""
    return MEDIA if state.store is None else (*MEDIA, state.store.medium)


def may_send(step: Step) -> set[tuple[bool, Medium]]:
    """The events that an operation may emit, by medium: True for a store, False for a remove."""
    rows = emissions(type(step.operation), FULL, step.after.config, step.after.profile)
    return {(row.event is BlockStored, row.medium) for row in rows if row.medium is not None}


def churns(step: Step, medium: Medium) -> bool:
    """Whether an operation may both bring a page to a medium and take it away again.

    Only an eviction under write_back may: the host copy of one victim may have to make way for the
    copy of the next; and a poll of the store, when one order wrote a page and another missed it.
    """
    if isinstance(step.operation, PollStore):
        return medium in (DISK, EXTERNAL)
    return (
        medium is CPU and isinstance(step.operation, Evict | LoadBack) and writes_back(step.after)
    )


class PageMove(NamedTuple):
    """A page that came to a medium or left it, with its place in one of the states."""

    came: bool
    place: Place
    state: Snapshot

    def describe(self) -> str:
        """The page in words."""
        return self.place.describe(self.state)


def moves_of(step: Step) -> Mapping[Resident, PageMove]:
    """The pages that came to a medium or left it."""
    before, after = step.changed
    hashes_before, hashes_after = PageHashes(step.before), PageHashes(step.after)
    moves: dict[Resident, PageMove] = {}
    at_enqueue = emits_at_enqueue(step.after)
    for number in before.keys() | after.keys():
        was, now = before.get(number), after.get(number)
        if was is not None and now is not None and was[2:6] == now[2:6]:
            continue  # It has the same slots, and waits for the same copies.
        there_before = _row_stored(was, at_enqueue=at_enqueue)
        there_after = _row_stored(now, at_enqueue=at_enqueue)
        if there_before == there_after:
            continue
        for medium, there, came in zip(MEDIA, there_before, there_after, strict=True):
            if came is there:
                continue
            if now is not None:
                move = PageMove(came, hashes_after.row_place(now), step.after)
            elif was is not None:
                move = PageMove(came, hashes_before.row_place(was), step.before)
            moves[medium, move.place.page_hash] = move
    return moves


def moves_below_host(step: Step) -> Mapping[Resident, bool]:
    """The pages that came to the store below the host, or left it: True if they came."""
    if "store" not in step.difference.fields:
        return {}
    was, now = below_host(step.before), below_host(step.after)
    return {**dict.fromkeys(was - now, False), **dict.fromkeys(now - was, True)}


def stores_and_removes(step: Step) -> Iterator[BlockStored | BlockRemoved]:
    """The events of a step that name a page."""
    return (event for event in step.events if not isinstance(event, AllBlocksCleared))


def describes(events: Sequence[Event], state: Snapshot) -> bool:
    """Whether events describe a state to a router that knows nothing.

    All is cleared, and then each page that is resident is stored once on each of its media.
    """
    stores = [event for event in events[1:] if isinstance(event, BlockStored)]
    there = residency_of(state)
    return (
        events[:1] == (AllBlocksCleared(),)
        and len(events) == 1 + len(stores) == 1 + len(there)
        and {(event.medium, event.block_hash) for event in stores} == there
    )


def replaces_events(step: Step) -> bool:
    """Whether the step dropped pending events and replaced them by a description of the state.

    Then `Step.events` are all events that are pending now.
    """
    waited, wait = step.before.events, step.after.events
    if isinstance(step.outcome, Taken):
        return False
    if wait[: len(waited)] != waited:
        return True
    # Nothing waited, so that it has to be told from a cache that clears where it must not.
    begins_anew = not waited and wait[:1] == (AllBlocksCleared(),)
    return begins_anew and not isinstance(step.operation, Reset) and may_give_up(step)


def may_give_up(step: Step) -> bool:
    """Whether the events that waited, and those of a step, may be more than may wait."""
    if any(churns(step, medium) for medium in (CPU, DISK)) or (
        step.before.events and describes(step.before.events, step.before)
    ):
        return True
    emitted = 1 if isinstance(step.operation, Reset) else len(moves_of(step))
    return len(step.before.events) + emitted > step.after.config.max_pending_events


def listed(events: Sequence[Event]) -> str:
    """Events in words: the first three, and how many more."""
    words = [
        type(event).__name__
        if isinstance(event, AllBlocksCleared)
        else f"{type(event).__name__}({short(event.block_hash)}, {event.medium})"
        for event in events[:3]
    ]
    more = f" and {len(events) - 3} more" if len(events) > 3 else ""
    return ", ".join(words) + more or "nothing"


def _row_stored(row: PageRow | None, *, at_enqueue: bool) -> tuple[bool, bool]:
    """Whether a page's full data is resident on the device, and on the host, as `_media_of`."""
    if row is None:
        return False, False
    on_device = row.device[0] is not None and (at_enqueue or row.loading[0] is None)
    return on_device, row.host[0] is not None and row.backing[0] is None
