"""Puts the frames of one publisher in order: those that arrive live, and those of a replay.

Until a replay has ended, live frames are held, up to a bound; the frames of the replay go before
them. To tell a publisher that restarted from one that repeats a batch, the last batch that was seen
is requested again and compared, even where the numbers happen to continue. Frames that no replay
has are left out, so that the reader sees the gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from zlib import crc32

from attrs import define, evolve, field

from kvcanon.live.frames import BatchPlace, Frame, SequenceTracker

MOST_HELD_FRAMES = 10_000
MOST_HELD_BYTES = 1 << 26
"""Of one publisher, while a replay of it is read."""


@define
class FrameOrder:
    """Where the stream of one publisher stands, and what waits for a replay."""

    can_ask: bool
    """Whether the publisher serves replays."""
    wanted: int | None = None
    """The number from which a replay is wanted; None if none is."""
    held: deque[Frame] = field(factory=deque)
    held_bytes: int = 0
    _tracker: SequenceTracker = field(factory=SequenceTracker)
    _compared: int | None = None
    """The last number that was seen, whose batch a replay gives again to be compared."""
    _asked: int = -1
    """For the gap before this number a replay was asked already."""
    _filled: range = range(0)
    """Batches that a replay gave; they are left out where they arrive after it."""
    _anew: bool = False
    """Whether the next frame is the first of another publisher."""

    def joined(self) -> None:
        """A connection was made: want a replay of what was sent before, or of the last batch."""
        if not self.can_ask or self.wanted is not None:
            return
        last = (self._tracker.expected or 0) - 1
        self._want(max(last, 0), compared=None if last < 0 else last)

    def asked(self) -> None:
        """Note that a replay was requested: it has all that was sent before what is held by now.

        Of frames that are held later it may lack those just before them, which were sent after it
        and before the subscription was in effect.
        """
        if self.held:
            self._asked = self.held[0].sequence

    def take(self, frame: Frame) -> Iterator[Frame]:
        """Give a live frame with its place, or hold it while a replay is wanted."""
        if self.wanted is None:
            yield from self._place(frame)
        else:
            self._hold(frame)

    def is_full(self) -> bool:
        """Whether as much is held as may be."""
        return len(self.held) > MOST_HELD_FRAMES or self.held_bytes > MOST_HELD_BYTES

    def give(self, sequence: int, payload: bytes, received: float) -> Iterator[Frame]:
        """Give a batch of a replay with its place; nothing where it was seen, or goes too far."""
        last, self._compared = self._compared, None
        if last is not None:
            if not self._tracker.is_same_run(sequence, payload):
                self._begin_anew()
                if sequence:
                    return
                # This replay is all that the other publisher has.
                last = None
            elif sequence <= last:
                return
        if self.has_reached(sequence):
            return
        expected = self._tracker.expected
        if expected is not None and not self._anew and sequence < expected and last is not None:
            return
        placed = self._tracker.look(sequence, crc32(payload))
        if placed.place is BatchPlace.REPEATED:
            return
        placed = self._tracker.place(sequence, crc32(payload))
        self._filled = range(min(self._filled.start, sequence), sequence + 1)
        topic, source = (self.held[0].topic, self.held[0].source) if self.held else (b"", 0)
        frame = Frame(source, topic, sequence, payload, received, replayed=True, placed=placed)
        yield evolve(frame, anew=self._take_anew())

    def has_reached(self, sequence: int) -> bool:
        """Whether a replay has reached the frames that are held."""
        return bool(self.held) and sequence >= self.held[0].sequence

    def end(self, *, answered: bool) -> Iterator[Frame]:
        """The replay is over, or given up: give what was held."""
        never_came_so_far = answered and self._compared is not None
        self.wanted = self._compared = None
        if never_came_so_far:
            self._begin_anew()
            return
        if not answered:
            self.asked()
        while self.held and self.wanted is None:
            frame = self.held.popleft()
            self.held_bytes -= len(frame.payload)
            yield from self._place(frame)

    def flush(self) -> Iterator[Frame]:
        """Give what is held with the gaps that it has, as nobody can be asked any more."""
        self.wanted = self._compared = None
        can_ask, self.can_ask = self.can_ask, False
        while self.held:
            yield from self._place(self.held.popleft())
        self.held_bytes, self.can_ask = 0, can_ask

    def _place(self, frame: Frame) -> Iterator[Frame]:
        checksum = crc32(frame.payload)
        looked = self._tracker.look(frame.sequence, checksum)
        if looked.place is BatchPlace.REPEATED and frame.sequence in self._filled:
            return
        if looked.restarted:
            self._asked = -1
        if looked.place is BatchPlace.AFTER_GAP and self.can_ask and frame.sequence > self._asked:
            first = looked.missing.start
            goes_on = self._tracker.expected is not None and not looked.restarted
            # The last batch that was seen comes again, so that another publisher shows itself.
            self._filled = range(first, first)
            self._want(first - 1 if goes_on else first, compared=first - 1 if goes_on else None)
            self._hold(frame, first=True)
            return
        placed = self._tracker.place(frame.sequence, checksum)
        yield evolve(frame, anew=self._take_anew(), placed=placed)

    def _want(self, number: int, compared: int | None) -> None:
        self.wanted, self._compared = number, compared

    def _hold(self, frame: Frame, *, first: bool = False) -> None:
        (self.held.appendleft if first else self.held.append)(frame)
        self.held_bytes += len(frame.payload)

    def _begin_anew(self) -> None:
        """Another publisher took the place of the one before: want all that it has."""
        self._tracker.forget()
        self._anew, self._asked, self._filled = True, -1, range(0)
        self._want(0, compared=None)

    def _take_anew(self) -> bool:
        anew, self._anew = self._anew, False
        return anew
