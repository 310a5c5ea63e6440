"""Folding: which pages a stream of events says are on a medium.

Each page and medium is folded on its own: a reader that mixes media or namespaces finds pages that
are not there.
"""

from __future__ import annotations


def fold_page(present: bool, history: tuple[bool, ...]) -> bool:
    """Whether one page is on one medium after its events (True is a store, False a remove).

    pre: len(history) <= 8
    post: __return__ == (history[-1] if history else present)
    """
    for stored in history:
        present = stored
    return present


def is_alternating(present: bool, history: tuple[bool, ...]) -> bool:
    """Whether one page is stored only when absent, and removed only when present.

    pre: len(history) <= 8
    post: __return__ == all(a != b for a, b in zip((present,) + history, history))
    """
    for stored in history:
        if stored == present:
            return False
        present = stored
    return True
