"""Lockstep: makes one call on several ranks, which agree with each other in the middle of it.

Each rank is in a thread, since it must wait for the others. But only one runs at a time, in the
order of the ranks, up to its next agreement or the end of its call; so a case is played the same
every time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kvcanon.spec.errors import SpecViolation

Answer = TypeVar("Answer")


class _Turn(Generic[Answer]):
    """One rank's call, in a thread that runs while the main thread waits for it."""

    def __init__(self, call: Callable[[], Answer]) -> None:
        self.asked: list[int] | None = None
        """What the rank gave to `agree`; None if its call has ended."""
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self._call = call
        self._agreed: Sequence[int] | SpecViolation = ()
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Run up to the first agreement or the end."""
        self._thread.start()
        self._others.acquire()

    def go_on(self, agreed: Sequence[int] | SpecViolation) -> None:
        """Return from `agree`, or raise there, and run up to the next agreement or the end."""
        self._agreed = agreed
        self._mine.release()
        self._others.acquire()

    def abandon(self) -> None:
        """Let the thread end that still waits, because this one was interrupted."""
        if self.asked is not None:
            self._agreed = SpecViolation("the call was given up")
            self._mine.release()

    def agree(self, arrivals: Sequence[int]) -> Sequence[int]:
        """Wait for the other ranks; called in the thread of the rank."""
        self.asked = [int(each) for each in arrivals]
        self._others.release()
        self._mine.acquire()
        if isinstance(self._agreed, SpecViolation):
            raise self._agreed
        return self._agreed

    def _run(self) -> None:
        try:
            self.answer = self._call()
        except BaseException as error:  # noqa: BLE001  # It is raised in the main thread.
            self.error = error
        self.asked = None
        self._others.release()


class Lockstep:
    """The agreement of some ranks."""

    def __init__(self, ranks: int) -> None:
        self._turns: list[_Turn[Any] | None] = [None] * ranks

    def agree_of(self, rank: int) -> Callable[[Sequence[int]], Sequence[int]]:
        """The `agree` of a rank's cache."""
        return partial(self._agree, rank)

    def call(self, calls: Sequence[Callable[[], Answer]]) -> list[Answer]:
        """Make a call on each rank. Raises: what the first rank that raised did.

        SpecViolation: one rank agreed with the others in a call, and another did not.
        """
        turns = [_Turn(call) for call in calls]
        self._turns = [*turns]
        try:
            for turn in turns:
                turn.start()
            while any(turn.asked is not None for turn in turns):
                agreed = _least([turn.asked for turn in turns])
                for turn in turns:
                    if turn.asked is not None:
                        turn.go_on(agreed)
        finally:
            self._turns = [None] * len(turns)
            for turn in turns:
                turn.abandon()
        for turn in turns:
            if turn.error is not None:
                raise turn.error
        return [turn.answer for turn in turns]  # type: ignore[misc]  # Each has ended.

    def _agree(self, rank: int, arrivals: Sequence[int]) -> Sequence[int]:
        turn = self._turns[rank]
        if turn is None:
            raise SpecViolation("called agree in a call that no rank waits in for the others")
        return turn.agree(arrivals)


def _least(asked: Sequence[list[int] | None]) -> Sequence[int] | SpecViolation:
    """The least of all ranks, or what is wrong."""
    sizes = [None if each is None else len(each) for each in asked]
    if len(set(sizes)) > 1:
        return SpecViolation(
            "the ranks do not agree on the same copies: they have "
            f"{', '.join('none' if size is None else str(size) for size in sizes)} in flight"
        )
    return [min(each) for each in zip(*(each or () for each in asked), strict=True)]
