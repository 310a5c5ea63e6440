"""Answers that were cut by what stands between the probe and its server.

A proxy that cuts an answer and an engine that dies look alike until the next prompt.
"""

from __future__ import annotations

import time
from collections import Counter

from attrs import define, field

from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.prompt_sender import FIRST_TOKEN, REPLY_TOKENS
from kvcanon.conformance.probe.talk import EngineFacts, ProbeRequest, PromptSpace
from kvcanon.conformance.probe.transport import ServerProblem

CUT = "an answer was cut"
UNCUT = "give the address of the engine itself, or let what is between wait longer"
TRIES = 3
"""Times that a server is asked whether it lives."""
PAUSE_SECONDS = 0.5
"""Before the first of them; it doubles each time. An engine whose process dies takes its server
with it, but not at once."""


def unjudged_prompt(name: str, facts: EngineFacts, vocabulary: int) -> ProbeRequest:
    """A prompt that only shows whether a server answers."""
    space = PromptSpace(name if facts.salts else "")
    tokens = tuple(FIRST_TOKEN + at % (vocabulary - FIRST_TOKEN) for at in range(8))
    return ProbeRequest(name, tokens, REPLY_TOKENS, space)


@define
class CutAnswers:
    """Tells answers that were cut from those of a server that ended, and counts them."""

    player: ProbePlayer
    vocabulary: int
    counts: Counter[str] = field(factory=Counter)
    """By what was played, as the name of a round."""

    def is_cut(self, problem: ServerProblem, during: str) -> bool:
        """Whether an answer was cut, and the server lives: it is asked, and the cut is counted."""
        if not (problem.may_be_cut and self._lives()):
            return False
        self.counts[during] += 1
        return True

    def _lives(self) -> bool:
        """Whether the server answers a prompt, now or soon."""
        prompt = unjudged_prompt("does the server live", self.player.facts, self.vocabulary)
        for number in range(TRIES):
            time.sleep(PAUSE_SECONDS * 2**number)
            try:
                self.player.ask_again(prompt)
            except ServerProblem as problem:
                if not problem.may_be_cut:
                    return not problem.is_end
            else:
                return True
        return False

    @property
    def words(self) -> str:
        """How many there were, and where."""
        count = self.counts.total()
        ended = (
            "answer of the server ended before its end"
            if count == 1
            else "answers of the server ended before their end"
        )
        where = ", ".join(f"{number} in {name}" for name, number in self.counts.items())
        return f"{count} {ended} ({where}), and it answered the next prompt; {UNCUT}"
