"""Goes on after a process died in a part of the cases: the other cases are played all the same.

The result of a part that dies is lost with its process. The cases before the deadly one are played
again and the cases after it for the first time, so that the result is that of one process after
the other, whatever the number of jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol, Self, TypeVar

from kvcanon.conformance.workers.ending import ProcessDied


class Addable(Protocol):
    """The result of some cases, to which that of later ones is added."""

    def add(self, later: Self, /) -> None:
        """Add the result of later cases."""

    @property
    def over(self) -> bool:
        """Whether no further case is to be played."""


Result = TypeVar("Result", bound=Addable)


def play_part(
    part: Sequence[int],
    first: Future[Result],
    submit: Callable[[Sequence[int]], Future[Result]],
    deadly: Callable[[Sequence[int], ProcessDied], tuple[int, Result]],
    total: Result,
) -> Result:
    """Add the results of a part to a total, whose first try has begun.

    `deadly` says in which case of a part a process died, and with which result. Raises: as it does.
    """
    pieces: deque[Sequence[int] | Result] = deque([part])
    future: Future[Result] | None = first
    while pieces and not total.over:
        piece = pieces.popleft()
        if not isinstance(piece, Sequence):
            total.add(piece)
            continue
        try:
            total.add((future or submit(piece)).result())
        except ProcessDied as died:
            number, result = deadly(piece, died)
            at = piece.index(number)
            before, after = piece[:at], piece[at + 1 :]
            pieces.extendleft([each for each in (after, result, before) if each or each is result])
        future = None
    return total
