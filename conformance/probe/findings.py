"""What a probe can find: kinds, the law that each breaks, and the finding itself."""

from __future__ import annotations

from enum import Enum

from attrs import frozen


class ProbeFault(Enum):
    """What is wrong: its name in JSON, and the law that it breaks."""

    TOKENS = ("wrong tokens", "DATA-1")
    SHARED = ("shared between namespaces", "MATCH-1")
    TOO_MANY = ("too many cached tokens", "MATCH-1")
    TOO_FEW = ("too few cached tokens", "MATCH-1")
    ORDER = ("evicted in the wrong order", "REC-3")
    WINDOW_ORDER = ("windows evicted in the wrong order", "REC-1")
    HELD = ("held after an abort", "LOCK-3")
    IN_USE = ("evicted while in use", "LOCK-4")
    PROMISED = ("promised and not served", "EVENT-4")
    UNPROMISED = ("served and not promised", "EVENT-4")
    STREAM = ("wrong events", "")
    """The law is that of the finding in the stream."""
    STALE = ("kept through a change of weights", "DATA-1")
    USAGE = ("wrong counts of tokens", "")
    ENDED = ("the server ended", "")

    def __init__(self, words: str, law: str) -> None:
        self.words = words
        self.law = law
        """Empty where there is none of its own."""


@frozen
class ProbeFinding:
    """One thing that is wrong."""

    fault: ProbeFault
    words: str
    """A sentence without a full stop."""
    round: str = ""
    at: int = -1
    """The place of the request that shows it among those of its round; -1 for none."""
    until: int = -1
    """The place of the last request that was sent before its reply ended; -1 for its own."""
    since: int = -1
    """The place of the request whose data is missed; -1 where none is known."""
    law: str = ""
    bounds: tuple[int, ...] = ()
    """Cached tokens that would be right: the most or the fewest; for an order, how many the request
    before must have so that this one must have at least the second number."""

    @property
    def last(self) -> int:
        """The place of the last request that may matter."""
        return max(self.at, self.until)

    @property
    def law_id(self) -> str:
        """The broken law; empty for a server that ended."""
        return self.law or self.fault.law
