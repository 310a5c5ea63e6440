"""EVENT: the events that a cache emits for routers.

A router knows only from events where a prefix is cached, and sends requests there. So the sum of
the events must be true at every moment, and emitted in an order in which a prefix is never promised
before all of it is there. These are all events (`laws.emission`):

    operation            medium    event    of the pages                   order       only under
    (new cache)          all       cleared  all                            alone
    insert               GPU       stored   new on the device              root first
    insert               CPU       removed  host victims, for backups      leaf first  write-through
    insert_host          CPU       removed  host victims                   leaf first
    insert_host          CPU       stored   placed, or refilled            root first
    end_prefetch         CPU       stored   placed, or refilled            root first
    evict, load_back     CPU       removed  host victims, or below them    leaf first  write_back
    evict, load_back     CPU       stored   victims, once they are copied  root first  write_back
    evict, load_back     GPU       removed  victims                        leaf first
    evict_host           CPU       removed  victims                        leaf first
    load_back            GPU       stored   loaded, at the enqueue         root first  enqueued
    settle, poll, flush  CPU       stored   backed up, at the copy's end   root first
    settle, poll, flush  GPU       stored   loaded, at the copy's end      root first  acknowledged
    settle, poll, flush  CPU       removed  loaded, once on the device     leaf first  exclusive
    settle, poll, flush  GPU       removed  loaded, if the copy failed     leaf first  enqueued
    poll_store           DISK      removed  not found there                leaf first
    poll_store           DISK      stored   written, or found there        root first
    poll_store           EXTERNAL  removed  not found there                leaf first
    poll_store           EXTERNAL  stored   written, or found there        root first
    reset                all       cleared  all                            alone
    (any)                all       none     window data and states alone

    event    hash         parent
    stored   of the page  hash of the page before; none for a first page
    removed  of the page  not named
    cleared  not named    not named

`laws.emission` explains the terms, and which order holds between media.

What readers get wrong: events describe *full* data that is *resident*. Window data and mamba states
come and go without events, and so does a copy until it is acknowledged.

Where `CacheConfig.events` is off these laws check nothing, except that EVENT-5 reports a cache that
emits events all the same.

See also: `oracle.folding`, and ASYNC-4 for the stores of a finished copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.spec.events import BlockRemoved, BlockStored, Resident
from kvcanon.spec.law import Kind, LawClass, Need, Premise, Stream, law
from kvcanon.spec.laws import situations, visibility
from kvcanon.spec.laws.expected_events import (
    churns,
    closed_media,
    is_truth,
    listed,
    may_send,
    moves_below_host,
    moves_of,
    replaces_events,
    residency_of,
    shown_media,
    stores_and_removes,
)
from kvcanon.spec.laws.page_hashes import everywhere, short
from kvcanon.spec.operations import Refused, Reset
from kvcanon.spec.oracle.folding import is_alternating
from kvcanon.spec.types import Medium
from kvcanon.spec.views import Step

NEEDS = (Need.SNAPSHOT, Need.EVENTS)


@law(
    "EVENT-1",
    Kind.STREAM,
    LawClass.SOUND,
    premise=Premise[Stream](
        "a store of a page that has a parent",
        lambda stream: situations.stores_a_child(stream.events),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def parents_first(stream: Stream) -> Iterator[str]:
    """A store comes after the store of the page before it on the same medium.

    On the host this is not demanded under write_back, where a parent may lack a backup.

    Why: otherwise a router promises a prefix with a gap, and the request computes what it was sent
    to reuse.

    Seen broken: https://github.com/vllm-project/vllm/issues/58119
    """
    if not stream.state.config.events:
        return
    so_far = stream.start.ahead()
    closed = closed_media(stream.state)
    for event in stream.events:
        if isinstance(event, BlockStored) and event.parent_hash and event.medium in closed:
            parent = (event.medium, event.parent_hash)
            if parent not in so_far:
                yield (
                    f"page {short(event.block_hash)} was stored on {event.medium} while the page "
                    f"before it, {short(event.parent_hash)}, was not there"
                )
        so_far.fold(event)


@law(
    "EVENT-2",
    Kind.STREAM,
    LawClass.SOUND,
    premise=Premise[Stream](
        "a remove",
        lambda stream: any(isinstance(event, BlockRemoved) for event in stream.events),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def stores_and_removes_alternate(stream: Stream) -> Iterator[str]:
    """A page is stored on a medium only while absent there, and removed only while present.

    Why: a router that counts copies ends with a page that never leaves, or that left while a copy
    is still there.

    Seen broken: https://github.com/vllm-project/vllm/issues/55092,
    https://github.com/vllm-project/vllm/issues/48933,
    https://github.com/ai-dynamo/dynamo/issues/8012
    """
    if not stream.state.config.events:
        return
    so_far = stream.start.ahead()
    for event in stream.events:
        if isinstance(event, BlockStored | BlockRemoved):
            stored = isinstance(event, BlockStored)
            present = (event.medium, event.block_hash) in so_far
            if not is_alternating(present, (stored,)):
                verb = "stored on" if stored else "removed from"
                yield (
                    f"page {short(event.block_hash)} was {verb} {event.medium}, where it was "
                    f"{'already' if stored else 'not'}"
                )
        so_far.fold(event)


@law(
    "EVENT-4",
    Kind.STREAM,
    LawClass.SOUND,
    premise=Premise[Stream](
        "an event",
        lambda stream: bool(stream.events),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def stream_is_residency(stream: Stream) -> Iterator[str]:
    """The sum of the events is exactly what is resident, page by page, on each medium.

    Why: a router believes this sum. Pages that it lacks are computed again; for pages that it
    believes in and that are gone, it sends requests to the wrong engine.

    Seen broken: https://github.com/sgl-project/sglang/issues/38486,
    https://github.com/sgl-project/sglang/issues/32537,
    https://github.com/sgl-project/sglang/issues/29750,
    https://github.com/LMCache/LMCache/issues/3532
    """
    state = stream.state
    if not state.config.events:
        return
    folded = stream.folded
    if stream.there is not None and folded.agrees_with(stream.there):
        return
    if is_truth(folded, state):
        return
    reported, there = set(folded), residency_of(state)
    pages = everywhere(state)
    for medium in shown_media(state):
        for wrong, problem in (
            (there - reported, "is resident without a store"),
            (reported - there, "is not resident"),
        ):
            found = sorted(name for held, name in wrong if held is medium)
            for name in found[:1]:
                place = pages.get(name)
                where = place.describe(state) if place is not None else "nowhere in the tree"
                yield (
                    f"the events are wrong about {len(found)} pages on {medium}: "
                    f"{short(name)}, {where}, {problem}"
                )


@law(
    "EVENT-5",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a change without events",
        lambda step: situations.changed(step) and not step.events,
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def silence(step: Step) -> Iterator[str]:
    """Operations that move no full data emit no events: matches, locks, slot calls, refusals.

    Where events are off, nothing is emitted at all. EVENT-10 checks what the other operations may
    emit.

    Why: an event without a change makes a router drop a prefix that is still there, or promise one
    that is not.

    Seen broken: not seen
    """
    if not step.events:
        return
    name = type(step.operation).__name__
    if not step.after.config.events:
        yield f"events are off, and {name} sent {listed(step.events)}"
    elif isinstance(step.outcome, Refused) and not situations.broken_off(step):
        yield f"{name} was refused and sent {listed(step.events)}"
    elif not may_send(step) and not isinstance(step.operation, Reset) and not replaces_events(step):
        yield f"{name} sent {listed(step.events)}"


@law(
    "EVENT-10",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "an event",
        lambda step: bool(step.events),
    ),
    needs=NEEDS,
    from_outside=(visibility.EVENTS,),
)
def media_of_operations(step: Step) -> Iterator[str]:
    """Each page that comes to a medium is stored there once, and each that leaves is removed once.

    Nothing else is emitted, and each operation emits only what it can cause: an insert, for
    instance, never removes a page from the device. Only an eviction under write_back may copy a
    page to the host and take it away again.

    A page is on a medium when its full data is in a slot that no copy has yet to fill. So the store
    of a copy is emitted when the copy is acknowledged (by profile, that of a load-back at its
    enqueue), and an eviction of window data or a mamba state alone emits nothing.

    Why: a page that comes without an event is never requested; for one that leaves without an
    event, requests go to the wrong engine. A store that is emitted too early sends requests to data
    that may never arrive; a remove for window data makes routers drop a prefix that is still there.

    Seen broken: https://github.com/sgl-project/sglang/pull/22894,
    https://github.com/sgl-project/sglang/pull/24718,
    https://github.com/sgl-project/sglang/issues/32537,
    https://github.com/sgl-project/sglang/issues/38486,
    https://github.com/LMCache/LMCache/issues/5076
    """
    if not step.after.config.events or isinstance(step.operation, Reset):
        return
    wrong = list(_wrong_moves(step))
    if wrong and not replaces_events(step):
        yield from wrong


def _wrong_moves(step: Step) -> Iterator[str]:
    """The events that the operation may not emit, and the pages that moved without their events."""
    name = type(step.operation).__name__
    allowed = may_send(step)
    histories: dict[Resident, list[bool]] = {}
    for event in stores_and_removes(step):
        stored = isinstance(event, BlockStored)
        histories.setdefault((event.medium, event.block_hash), []).append(stored)
        if (stored, event.medium) not in allowed:
            verb = "store on" if stored else "remove from"
            yield f"{name} may not {verb} {event.medium}; it did, page {short(event.block_hash)}"
    moves, below = moves_of(step), moves_below_host(step)
    for item in {**moves, **below, **histories}:
        medium, page = item
        move, history = moves.get(item), histories.get(item, [])
        came = below.get(item) if move is None else move.came
        net, due = 2 * sum(history) - len(history), 0 if came is None else 1 if came else -1
        if net != due or (len(history) > abs(due) and not churns(step, medium)):
            happened = {0: "neither came to nor left", 1: "came to", -1: "left"}[due]
            where = _in_words(step, medium, page) if move is None else move.describe()
            yield (
                f"{where} {happened} {medium} in this {name}; it "
                f"was stored {history.count(True)} times and removed {history.count(False)} times"
            )


def _in_words(step: Step, medium: Medium, page: bytes) -> str:
    """A page that did not move, and the transfer that it waits for."""
    place = everywhere(step.after).get(page)
    if place is None:
        return f"page {short(page)}, which is not in the tree,"
    pending = place.node.full.pending(medium)
    waits = f", whose slots transfer {pending} has yet to fill," if pending is not None else ""
    return f"{place.describe(step.after)}{waits}"
