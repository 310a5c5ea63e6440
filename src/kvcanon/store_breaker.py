"""The breaker of a store: leaves a store alone that does not answer, and tries it again.

A store that failed a call rests. After the rest one call tries it: if that goes well, the store is
used as before; if not, it rests twice as long, up to a limit. Meanwhile a cache answers as without
a store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

FIRST_REST_SECONDS = 1.0
LONGEST_REST_SECONDS = 30.0


@dataclass(eq=False)
class StoreBreaker:
    """Whether a store may be called. One thread asks it at a time."""

    clock: Callable[[], float]
    first_rest_seconds: float = FIRST_REST_SECONDS
    longest_rest_seconds: float = LONGEST_REST_SECONDS
    rests: int = 0
    """How often the store was left alone."""
    rest_seconds: float = 0.0
    """The length of the present rest; 0 while the store is used."""
    _until: float = 0.0
    _is_tried: bool = False

    @property
    def is_resting(self) -> bool:
        """Whether the store is left alone, or on trial."""
        return self.rest_seconds > 0

    @property
    def admits(self) -> bool:
        """Whether a call may be made now."""
        return not self.is_resting or (not self._is_tried and self.clock() >= self._until)

    def begin_call(self) -> bool:
        """Note a call that was admitted; answers whether it is the trial after a rest."""
        self._is_tried = self.is_resting
        return self._is_tried

    def note_answer(self, *, is_trial: bool) -> bool:
        """Note that a call was answered; says whether the store's rest is over by that.

        What was begun before the rest shows nothing about the store as it is now.
        """
        if not is_trial:
            return False
        self.rest_seconds, self._is_tried = 0.0, False
        return True

    def note_failure(self, *, is_trial: bool) -> bool:
        """Note that a call failed, or was given up; says whether a rest begins by that."""
        if self.is_resting and not is_trial:
            return False
        longer = max(self.first_rest_seconds, 2 * self.rest_seconds)
        self.rest_seconds = min(longer, self.longest_rest_seconds)
        self._until, self._is_tried = self.clock() + self.rest_seconds, False
        self.rests += 1
        return True

    def note_untried(self, *, is_trial: bool) -> None:
        """Note that a call was not made after all; the next one may be the trial."""
        if is_trial:
            self._is_tried = False
