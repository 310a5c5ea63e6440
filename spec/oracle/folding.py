"""Folding: what a stream of events says is where.

What readers get wrong: a stream is not a log to be believed line by line but a sum. A reader that
joins the sum to a second, different one (another medium, another namespace) is told of pages that
are not there.
"""

from __future__ import annotations


def fold_page(present: bool, history: tuple[bool, ...]) -> bool:
    """Whether one page is on one medium after its events (True a store, False a remove).

    pre: len(history) <= 8
    post: __return__ == (history[-1] if history else present)
    """
    for stored in history:
        present = stored
    return present


def is_alternating(present: bool, history: tuple[bool, ...]) -> bool:
    """Whether the events of one page make sense: it is stored when absent, removed when present.

    pre: len(history) <= 8
    post: __return__ == all(a != b for a, b in zip((present,) + history, history))
    """
    for stored in history:
        if stored == present:
            return False
        present = stored
    return True
