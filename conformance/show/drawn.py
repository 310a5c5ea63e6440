"""From what the tree of a page is drawn, and what a page lacks for that."""

from __future__ import annotations

from enum import StrEnum

from kvcanon.spec.law import SITE


class DrawnFrom(StrEnum):
    """From what the tree is drawn; the page leaves out the panels for which it knows nothing."""

    STATE = "state"
    EVENTS = "events"
    """Each block that an event stored is a node, with the media that it is on."""
    NOTHING = "nothing"
    """There is no tree: the page has calls and answers."""


_LACKS = {
    DrawnFrom.EVENTS: (
        "{} does not show its state: the tree has what its events say, each page as a node, "
        "without slots, locks and windows. A method snapshot in its adapter shows the rest; see "
        "{}adapters.html."
    ),
    DrawnFrom.NOTHING: (
        "{} shows neither its state nor events, so that there is no tree: this page has calls and "
        "answers. To draw one, give its adapter take_events, which shows its blocks, or snapshot, "
        "which shows everything; see {}adapters.html."
    ),
}


def lacks(drawn: DrawnFrom, cache: str) -> tuple[str, ...]:
    """What a page lacks for its cache, and the mend, in words; nothing if its state is known."""
    return (_LACKS[drawn].format(cache, SITE),) if drawn in _LACKS else ()
