"""Chapter 19. Shortest: the part of a run that still shows what the whole run shows.

A broken law is understood from the few calls or events that it needs. *Delta debugging* (Zeller and
Hildebrandt, "Simplifying and isolating failure-inducing input", 2002) finds them: parts are left
out, the large ones first, as long as the rest still shows the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def cut(items: Sequence[Item], out: range) -> Sequence[Item]:
    """The items without those at some consecutive places."""
    return [*items[: out.start], *items[out.stop :]]


def shortest(
    items: Sequence[Item],
    shows: Callable[[Sequence[Item]], bool],
    *,
    keeps_last: bool = False,
    without: Callable[[Sequence[Item], range], Sequence[Item]] = cut,
) -> Sequence[Item]:
    """A part of the items that shows the fault, as all of them do, and none of it can be left out.

    `shows` says whether fewer items show it. `keeps_last` never leaves out the last item, at which
    the fault was seen. `without` leaves places out, where items depend on those before them.
    """
    size = max(1, len(items) // 2)
    while True:
        before = len(items)
        at = 0
        while at < (end := len(items) - keeps_last):
            fewer = without(items, range(at, min(at + size, end)))
            if shows(fewer):
                items = fewer
            else:
                at += size
        if size > 1:
            size //= 2
        elif len(items) == before:
            return items
