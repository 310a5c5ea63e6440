"""Follows the KV events of the server that is probed. Apart, since it needs the extra `live`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.talk import EngineFacts, ProbeRequest, SentRequest
from kvcanon.live.follower import Follower, FollowerConfig
from kvcanon.live.frames import Frame, Source
from kvcanon.live.served import PROMISED, Overlap, ServedRequest, ServedSums, mismatch_of, overlap
from kvcanon.live.stream_recording import StreamRecorder
from kvcanon.live.subscriber import Subscriber

QUIET_SECONDS = 0.05
"""How long nothing must come before all events of an idle server have come."""
MOST_SECONDS = 0.5
"""A stream that never gets quiet is left after so long."""
LATE_SECONDS = 2.0
"""How long nothing must come before no late event of a starved publisher explains a difference."""
LEAST_COMPARED = 5
"""After so many requests without an event about one, the stream is another server's."""
JOIN_SECONDS = 0.5
"""How long a connection takes at most."""


@contextmanager
def stream_beside(
    source: Source, ignored: frozenset[str], record: Path | None = None
) -> Iterator[StreamBeside]:
    """Follow the events of a server, and record them if a file is given.

    Raises: BadEndpoint, for an address that no socket can have.
    """
    with ExitStack() as stack:
        subscriber = stack.enter_context(Subscriber([source]))
        recorder = None
        if record is not None:
            recorder = stack.enter_context(StreamRecorder(record, [source]))
        follower = Follower(0, FollowerConfig(ignored=ignored, finding_prompts=True))
        made = StreamBeside(subscriber, follower, recorder)
        made.settle("the beginning", JOIN_SECONDS)
        yield made


@define
class StreamBeside:
    """A stream, what it promises, and what was wrong with it."""

    subscriber: Subscriber
    follower: Follower
    recorder: StreamRecorder | None = None
    sums: ServedSums = field(factory=ServedSums)
    found: list[ProbeFinding] = field(factory=list)
    batches: int = 0
    late: int = 0
    """Requests that were not compared, since events came late."""
    unknown: int = 0
    """Requests that were not compared, since several ranks or groups of layers publish."""
    differed: bool = False
    """Whether a difference was found that no late event explains; no other is waited for then."""

    def settle(self, round_name: str, seconds: float | None = None) -> float:
        """Fold batches until none comes, and return the time of the earliest."""
        quiet = QUIET_SECONDS if seconds is None else seconds
        earliest, ends = float("inf"), time.monotonic() + max(MOST_SECONDS, quiet)
        while time.monotonic() < ends:
            arrived = list(self.subscriber.receive(quiet))
            if not arrived:
                break
            for each in arrived:
                if self.recorder is not None:
                    self.recorder.write(each)
                findings = self.follower.take(each)
                if isinstance(each, Frame):
                    earliest = min(earliest, self.follower.counts.last_timestamp)
                self.batches += 1
                self.found += [
                    ProbeFinding(
                        ProbeFault.STREAM,
                        f"{round_name}: {finding.what}. {finding.belief.removesuffix('.')}",
                        round_name,
                        law=finding.law_id,
                    )
                    for finding in findings
                ]
        return earliest

    def promise(self, request: ProbeRequest) -> Overlap | None:
        """What the stream promises for a request before it is sent; None if it cannot be known.

        Hashes and events of SGLang leave `extra_key` out, so such prompts cannot be found.
        """
        if request.space.extra_key or request.abort_after:
            return None
        space = request.space
        promised = overlap(self.follower, request.tokens, space.salt, space.lora)
        self.unknown += promised is None
        return promised

    def compare(
        self, promised: Overlap | None, real: ProbeRequest, sent: SentRequest, facts: EngineFacts
    ) -> bool:
        """Compare what was promised with what was served; `real` is the request as it was sent.

        Returns whether all events of earlier requests had come when it was sent.
        """
        earliest = self.settle(sent.round)
        if earliest < sent.began:
            self.late += 1
            return False
        if promised is None or not (real.space.salt or self.follower.saw_all):
            return True
        if not self.batches or sent.reply.cached is None or sent.reply.retracted:
            return True
        reply, space = sent.reply, real.space
        served = ServedRequest(
            real.tokens, reply.cached or 0, reply.tiers, sent.began, space.salt, space.lora
        )
        mismatch = mismatch_of(promised, served, partly=facts.window != 0 or facts.speculative)
        if mismatch is not None and not self.differed:
            if self.settle(sent.round, LATE_SECONDS) < sent.began:
                self.late += 1
                return False
            self.differed = True
        self.sums.add(promised, served)
        if mismatch is not None:
            kind = ProbeFault.PROMISED if mismatch.kind == PROMISED else ProbeFault.UNPROMISED
            words = f"{sent.round}: {sent.request.name}: {mismatch.words}"
            self.found.append(ProbeFinding(kind, words, sent.round))
        return True

    def take_found(self, *, sent: bool) -> list[ProbeFinding]:
        """What was found since the last call; `sent` says whether requests were sent.

        Raises: UsageError, if this is no stream of the server.
        """
        endpoint = self.subscriber.sources[0].endpoint
        if sent and not self.batches:
            raise UsageError(
                f"nothing came from {endpoint}: check the address, and that the engine publishes "
                "KV events"
            )
        sums = self.sums
        if sums.requests >= LEAST_COMPARED and sums.served and not sums.promised:
            raise UsageError(
                f"{endpoint} tells of none of the prompts that were served from the cache: is it "
                f"the stream of this server? {sums.requests} requests were compared"
            )
        found, self.found = self.found, []
        return found
