"""Checks of block tables: their form, their owners, the pages that they reuse, and the bytes."""

from __future__ import annotations

from collections.abc import Iterator

from kvcanon.conformance.judge.explain import key_in_words
from kvcanon.conformance.judge.from_outside.request.state import ObservedRequests, Place, Prompt
from kvcanon.conformance.protocol.request import RequestId
from kvcanon.spec.types import FULL, MAMBA, SWA, Component, Counts, Slot, Slots
from kvcanon.spec.views import PageNumber


def table_of(seen: ObservedRequests, prompt: Prompt, slots: Slots) -> dict[Place, PageNumber]:
    """Check the form of a block table; returns the page in each slot."""
    size = len(prompt.key)
    for text in _malformed(seen, size, slots):
        seen.check("ALLOC-5", text)
    seen.check("ALLOC-5", None, met=size > 0)
    return {
        (component, slot): number
        for component, some in slots
        for slot, number in zip(reversed(some), reversed(prompt.numbers), strict=False)
    }


def check_owners(
    seen: ObservedRequests, request_id: RequestId, table: dict[Place, PageNumber]
) -> None:
    """Check that two running requests share a slot only for the same page."""
    text = None
    crosswise = {other for place in table for other in seen.others(place)}
    for _, slot in table.keys() & crosswise:
        text = (
            f"request {request_id} was given slot {slot} twice, for two components that share "
            "one pool"
        )
    for other_id, other in seen.running.items():
        for place in table.keys() & other.table.keys() if other_id != request_id else ():
            if place[0] is MAMBA or table[place] != other.table[place]:
                text = (
                    f"request {request_id} was given {place[0]} slot {place[1]}, which is in the "
                    f"block table of request {other_id} for something else"
                )
        for _, slot in crosswise & other.table.keys() if other_id != request_id else ():
            text = (
                f"request {request_id} was given slot {slot} of the one pool, which is in the "
                f"block table of request {other_id} for another component"
            )
    others = seen.running.keys() - {request_id}
    seen.check("ALLOC-1", text, met=bool(table) and (bool(others) or seen.one_pool))


def check_reuse(seen: ObservedRequests, prompt: Prompt, reused: int) -> None:
    """Check that reused pages were computed in this namespace, and that due pages are reused."""
    if not 0 <= reused <= len(prompt.key):
        seen.check("MATCH-2", f"{reused} pages of {len(prompt.key)} are said to be reused")
        return
    seen.check("MATCH-2", None, met=reused > 0)
    lost = any(number in seen.forgotten for number in prompt.numbers[:-1])
    seen.check("ALLOC-7", None, met=lost)
    for page, number in enumerate(prompt.numbers[:reused]):
        if number not in seen.computed:
            _check_uncomputed(seen, prompt, page)
            return
    seen.check("MATCH-1", None)
    due = max((_due_pages(seen, prompt, known) for known in seen.due), default=0)
    left_out = ", without those that evictions freed since" if seen.has_evicted else ""
    seen.check(
        "MATCH-6",
        f"only {reused} pages are reused: a finished request left the first {due} pages{left_out}, "
        "and no request since needed their slots"
        if reused < due
        else None,
        met=due > 0,
    )


def check_contents(seen: ObservedRequests, prompt: Prompt, slots: Slots, pages: int) -> None:
    """Check that the slots of the first `pages` and their window hold the computed data.

    Where a cache moves data, only reads show what a slot holds.
    """
    if SWA in seen.config.components:
        first = len(prompt.key) - len(slots.swa)
        needed = seen.window_from(pages)
        seen.check(
            "MATCH-3",
            f"{pages} pages are reused, and the table lacks {_page(prompt, needed)}, which is in "
            "their window"
            if needed < min(first, pages)
            else None,
            met=pages > 0,
        )
    if seen.moves:
        return
    for component, page, slot in computed_slots(seen, prompt, slots, pages):
        found = seen.content.get((component, slot))
        text = None
        if found != prompt.numbers[page]:
            what = "nothing" if found is None else "another page"
            where = f"{component} slot {slot}, which holds {what}"
            text = f"{_page(prompt, page)} is said to be in {where}"
        seen.check("MATCH-3", text)


def _page(prompt: Prompt, page: int) -> str:
    return f"page {page} of {key_in_words(prompt.key)}"


def computed_slots(
    seen: ObservedRequests, prompt: Prompt, slots: Slots, pages: int
) -> Iterator[tuple[Component, int, Slot]]:
    """Return a table's full slots of the first `pages`, and the window slots that they need."""
    for component, begin in ((FULL, 0), (SWA, seen.window_from(pages))):
        first = len(prompt.key) - len(slots[component])
        for page, slot in enumerate(slots[component], first):
            if begin <= page < pages:
                yield component, page, slot


def check_refused(seen: ObservedRequests, request_id: RequestId, prompt: Prompt) -> None:
    """Check that a request was refused only where running requests leave too few slots.

    Window slots and mamba states of running requests cannot be seen, so caches with either are
    judged only while no request runs. A request may need two states: the one that it starts from,
    and its own.
    """
    states = seen.config.device_slots.mamba if MAMBA in seen.config.components else 2
    if seen.config.host_tier or states < 2 or (seen.running and not seen.full_only):
        return
    before = seen.running.get(request_id)
    missing = len(prompt.key) - (len(before.prompt.key) if before is not None else 0)
    free = seen.config.device_slots.full - len(seen.held())
    if SWA in seen.config.components:
        free = min(free, seen.config.device_slots.swa)
    seen.check(
        "REFUSE-1",
        f"slots for {missing} pages were refused, and running requests leave {free} slots"
        if missing <= free
        else None,
    )


def check_freed(seen: ObservedRequests, wanted: Counts, freed: Counts) -> None:
    """Check that an eviction frees no more slots than a pool has."""
    text = None
    for component in Component:
        if not 0 <= freed[component] <= seen.capacity(component):
            text = f"an eviction of {wanted} is said to have freed {freed[component]} {component}"
    seen.check("ALLOC-3", text, met=bool(wanted))


def _malformed(seen: ObservedRequests, size: int, slots: Slots) -> Iterator[str]:
    window = size - seen.window_from(size)
    bounds = {
        FULL: (size, size),
        SWA: (window, size),
        MAMBA: (min(1, size), min(1, size)),
    }
    for component, some in slots:
        least, most = bounds[component] if component in seen.config.components else (0, 0)
        if not least <= len(some) <= most:
            yield f"a block table of {size} pages has {len(some)} {component} slots"
        if len(set(some)) < len(some):
            yield f"a block table has a {component} slot twice: {list(some)}"
        foreign = [s for s in some if not 0 <= s < seen.capacity(component)]
        if foreign:
            yield f"a block table has {component} slots {foreign}, which no pool has"


def _check_uncomputed(seen: ObservedRequests, prompt: Prompt, page: int) -> None:
    """Note which law is broken by the reuse of a page that was not computed."""
    name = _page(prompt, page)
    if prompt.numbers[page] in seen.forgotten:
        seen.check("ALLOC-7", f"{name} is reused, which was computed before the reset only")
    elif seen.anywhere(prompt.key)[page] in seen.computed_anywhere:
        seen.check(
            "MATCH-1",
            f"{name} is reused, and no request computed it in its namespace; in another namespace "
            "the same tokens were computed",
        )
    else:
        seen.check("MATCH-2", f"{name} is reused, and no request has computed it")


def _due_pages(seen: ObservedRequests, prompt: Prompt, known: Prompt) -> int:
    """Return how many pages of a prompt must be reused, because a finished prompt has them."""
    shared = 0
    for ours, theirs in zip(prompt.numbers, known.numbers, strict=False):
        if ours != theirs:
            break
        shared += 1
    if not seen.full_only and shared < len(known.key):
        # Only the end of the finished prompt is sure to have window data and mamba states.
        return 0
    due = min(shared, len(prompt.key) - 1)
    return due if seen.full_only or due == shared else 0
