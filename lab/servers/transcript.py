"""What a server answered to a script: replies in the order of requests, and the folded events."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from kvcanon.lab.servers.script import Tokens


@frozen
class EngineReply:
    """What a server answered to one request."""

    name: str
    tokens: Tokens
    """The generated tokens."""
    device_tokens: int = 0
    """Cached tokens that were on the device."""
    host_tokens: int = 0
    """Cached tokens that were loaded back from the host."""
    retractions: int = 0
    """How often the request was taken back from a full batch."""
    ending: str = "length"
    """Why it ended: `length`, `abort`, or an error in words."""
    resident: Tokens = ()
    """Pages on the device and on the host afterwards, from events; empty if not looked at."""
    overlap: Tokens = ()
    """Leading pages of the prompt on the device, and on either medium, beforehand; as above."""

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that were not computed."""
        return self.device_tokens + self.host_tokens


@frozen
class RoundTranscript:
    """The replies of a round, and what events say is cached after it."""

    name: str
    replies: tuple[EngineReply, ...]
    pages: Mapping[str, tuple[int, ...]]
    """The hashes of the cached pages by medium, sorted."""
    removed: int = 0
    """Pages that were removed from the device so far."""


@frozen
class Transcript:
    """Everything that one server answered."""

    server: str
    core: str
    """The class of the tree core, from the server's log."""
    rounds: tuple[RoundTranscript, ...]
    event_faults: tuple[str, ...] = ()
    """What was wrong with the stream of events."""
    death: str = ""
    """The last words of a server that ended before the script did; empty otherwise."""

    @property
    def replies(self) -> dict[str, EngineReply]:
        """The replies by the names of their requests."""
        return {reply.name: reply for each in self.rounds for reply in each.replies}
