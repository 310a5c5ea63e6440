"""EVENT, continued: the first event, resets, and the order in which events leave."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.cache import Cache
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, Resident
from kvcanon.spec.law import Kind, LawClass, Need, Premise, Stream, law
from kvcanon.spec.laws import bounds, situations, visibility
from kvcanon.spec.laws.expected_events import (
    closed_media,
    describes,
    listed,
    may_give_up,
    replaces_events,
    stores_and_removes,
)
from kvcanon.spec.laws.page_hashes import changed_pages, short
from kvcanon.spec.operations import Refused, Reset, TakeEvents, Taken
from kvcanon.spec.types import Medium, NodeId
from kvcanon.spec.views import Step

NEEDS = (Need.SNAPSHOT, Need.EVENTS)


@law(
    "EVENT-8",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a reset",
        lambda step: isinstance(step.operation, Reset) and situations.went_well(step),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS, (Cache.reset,)),
)
def reset_clears(step: Step) -> Iterator[str]:
    """A reset emits exactly one AllBlocksCleared, and no other operation emits one.

    EVENT-11 says when another operation emits one as well: when too many events wait to be taken.

    Why: otherwise routers go on sending requests to an empty cache.

    Seen broken: not seen
    """
    if not step.after.config.events:
        return
    if isinstance(step.operation, Reset) and not isinstance(step.outcome, Refused):
        full = step.after.events == (AllBlocksCleared(),) and may_give_up(step)
        if step.events != (AllBlocksCleared(),) and not full:
            yield f"the reset sent {listed(step.events)}, not one AllBlocksCleared"
    elif AllBlocksCleared() in step.events and not replaces_events(step):
        yield f"{type(step.operation).__name__} sent AllBlocksCleared"


@law(
    "EVENT-11",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "events that are taken",
        lambda step: isinstance(step.outcome, Taken) and bool(step.outcome.events),
    ),
    needs=NEEDS,
)
def taken_once(step: Step) -> Iterator[str]:
    """Events are handed out once, all of them, in the order in which they were emitted.

    No more than `CacheConfig.max_pending_events` wait. When more would, all that wait are replaced
    by AllBlocksCleared and a store of each page that is resident, until they are taken.

    Why: an event that is lost between cache and router is lost for good; nobody can ask for it
    again. So where nobody takes the events and some must be dropped, AllBlocksCleared makes the
    router begin anew, and the stores after it say all that is resident.

    Seen broken: not seen
    """
    waiting, left = step.before.events, step.after.events
    if isinstance(step.operation, TakeEvents):
        if isinstance(step.outcome, Taken) and step.outcome.events != waiting:
            yield f"{len(waiting)} events waited, and {listed(step.outcome.events)} were taken"
        if isinstance(step.outcome, Taken) and left:
            yield f"after all events were taken, {listed(left)} still wait"
    elif replaces_events(step):
        if not describes(left, step.after) or not may_give_up(step):
            yield f"{len(waiting)} events waited, and {type(step.operation).__name__} changed them"
    elif len(left) > step.after.config.max_pending_events and not describes(left, step.after):
        yield f"{len(left)} events wait, and at most {step.after.config.max_pending_events} may"


@law(
    "EVENT-12",
    Kind.STEP,
    LawClass.POLICY,
    premise=Premise[Step](
        "two pages that are removed",
        lambda step: sum(isinstance(event, BlockRemoved) for event in step.events) > 1,
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def children_leave_first(step: Step) -> Iterator[str]:
    """A page is removed from a medium after the pages that build on it.

    By profile the pages of one node may be removed in any order, after those of all nodes below it.
    On the host this is not demanded under write_back, where a parent may lack a backup.

    Why: otherwise, between the two events, a router promises a prefix whose beginning is gone.

    Seen broken: https://github.com/NVIDIA/TensorRT-LLM/issues/4596
    """
    if not step.after.config.events:
        return
    closed = closed_media(step.after)
    gone = [
        event for event in step.events if isinstance(event, BlockRemoved) and event.medium in closed
    ]
    if len(gone) < 2:
        return
    before, _ = changed_pages(step)
    inside_too = step.before.profile.removes_end_first
    removed: set[Resident] = set()
    begun: set[tuple[Medium, NodeId | None]] = set()
    for event in gone:
        removed.add((event.medium, event.block_hash))
        place = before.get(event.block_hash)
        if place is None:
            continue
        where = f"{place.describe(step.before)} was removed from {event.medium} after"
        if (event.medium, place.parent) in removed and (inside_too or not place.at):
            yield f"{where} the page before it, {short(place.parent)}"
        elif (event.medium, place.node.parent_id) in begun:
            yield f"{where} a page of node {place.node.parent_id}, which is above it"
        begun.add((event.medium, place.node.node_id))


@law(
    "EVENT-13",
    Kind.STREAM,
    LawClass.SERVING,
    premise=Premise[Stream]("the first events of a cache", lambda it: it.begins),
    needs=NEEDS,
)
def begins_cleared(stream: Stream) -> Iterator[str]:
    """The first event of a cache is AllBlocksCleared.

    Why: otherwise a router that knew the cache before a restart goes on requesting pages that are
    gone.

    Seen broken: https://github.com/sgl-project/sglang/pull/24718
    """
    if not stream.state.config.events or not stream.begins:
        return
    if stream.events[:1] != (AllBlocksCleared(),):
        yield f"the first events of the cache are {listed(stream.events)}, not AllBlocksCleared"


@law(
    "EVENT-14",
    Kind.STEP,
    LawClass.SERVING,
    premise=Premise[Step](
        "a page that leaves one medium in a step that brings it to another",
        situations.sends_both_ways,
    ),
    needs=NEEDS,
    enabled_if=bounds.writes_back,
)
def moved_pages_are_never_nowhere(step: Step) -> Iterator[str]:
    """A page that moves between media is stored on the new one before it is removed from the old.

    Why: otherwise, between the two events, a router believes that no engine has the page, and sends
    the prompt elsewhere.

    Seen broken: not seen
    """
    if not step.after.config.events:
        return
    removed: dict[bytes, Medium] = {}
    for event in stores_and_removes(step):
        if isinstance(event, BlockRemoved):
            removed[event.block_hash] = event.medium
        elif removed.pop(event.block_hash, event.medium) is not event.medium:
            yield (
                f"page {short(event.block_hash)} was removed from one medium before it was stored "
                f"on {event.medium}"
            )
