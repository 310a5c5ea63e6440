"""Memory in a lasting case: how much more the process holds at its end than at a fifth of it.

A cache whose books grow with its operations, not with its pages, ends a server after days. Yet no
law can say so: the memory of a process is also that of its allocator, of its other threads and of
the judge, and a heap may grow for reasons of its own. So growth is a note in the report.

The judge's own books grow by a dozen bytes for each operation of such a case.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.long_actions import live_on
from kvcanon.conformance.workers.allowance import family_of

WARM_SHARE = 5
"""The first of so many parts of the case is not counted: pools, tables and caches fill meanwhile.
"""
LASTING_SECONDS = 45.0
"""Seconds that a lasting case may take; it is left when they are over."""


def is_lasting(case: Case) -> bool:
    """Whether a case is a lasting one."""
    return any(action.name == live_on.__name__ for action in case.actions)


@frozen
class Growth:
    """How memory grew."""

    operations: int
    """Operations of the cache meanwhile."""
    grown_bytes: int


class MemoryWatch:
    """Looks at the memory of this process, and of those that it started, twice in a case."""

    def __init__(self, case: Case) -> None:
        lasting = is_lasting(case)
        self._first = len(case.actions) // WARM_SHARE if lasting else 0
        self._last = len(case.actions) if lasting else 0
        self._before: tuple[int, int] | None = None
        self.growth: Growth | None = None
        """None before the end of the case, and where the system does not say."""

    def after(self, actions: int, operations: int) -> None:
        """Note that so many actions and operations are done."""
        if not self._last or actions not in (self._first, self._last):
            return
        held = _held_bytes()
        if held is None:
            return
        if actions == self._first:
            self._before = operations, held
        elif self._before is not None:
            before, held_before = self._before
            self.growth = Growth(operations - before, max(0, held - held_before))


def _held_bytes() -> int | None:
    """The resident memory of this process and of all that it started; None if nothing says so."""
    gc.collect()
    page = os.sysconf("SC_PAGE_SIZE")
    try:
        return sum(
            int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * page
            for pid in family_of(os.getpid())
        )
    except OSError:
        return None
