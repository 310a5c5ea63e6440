"""What ends the process in which a cache is played, as a finding like any other.

The process leaves a note of the case and the operation (`workers/notes.py`). The case is reduced
by plays in copies of a process in which no cache was made before.
"""

from __future__ import annotations

import re

from attrs import frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.finding import Finding, Grounds, Tally
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.workers.ending import Ending, ProcessDied
from kvcanon.conformance.workers.fork import in_fork
from kvcanon.conformance.workers.notes import MAKING

DEATHS_ENOUGH = 4
"""Processes that a cache may end before its search ends: each takes as long as many cases."""
PLAYS = 300
"""The most plays to reduce a case in copies of a process, each of which takes long to make."""
REDUCED_SECONDS = 2.0
"""The time limit of an action in plays that make a case small, once it is known to hang."""

_DEATH = re.compile(r"SIG[A-Z0-9+]+|signal \d+|exit code \d+")

_FRAME = re.compile(r'  File ".*", line \d+ in ')
_OF_JUDGE = re.compile(
    r'  File "(<string>|.*kvcanon.conformance.(cases|check|judge|report|workers).*)", line '
)


def is_death(finding: Finding) -> bool:
    """Whether a finding is the end of the process."""
    return finding.grounds is Grounds.CRASH and _DEATH.fullmatch(finding.name) is not None


def finding_of(ending: Ending, cache: str, against: str | None = None) -> Finding:
    """The finding of a process that ended in a case of a cache, or of the one to agree with."""
    noted = ending.noted
    where = f", in {noted.name}" if noted.name else ""
    if noted.name == MAKING:
        where = ", while it was made"
    text = f"{ending.text}{where}"
    return Finding(
        cache=against if noted.compared and against is not None else cache,
        grounds=Grounds.CRASH,
        name=ending.name,
        broken=(),
        text=text,
        words=f"{text}\n\n{without_judge(ending.words)}".strip(),
        action=noted.action,
        operation=noted.operation,
    )


def without_judge(words: str) -> str:
    """The stacks of a process, each without the frames of the judge that called the cache."""
    kept: list[str] = []
    frames: list[str] = []
    for line in [*words.splitlines(), ""]:
        if _FRAME.match(line):
            frames.append(line)
            continue
        while len(frames) > 1 and _OF_JUDGE.match(frames[-1]):
            frames.pop()
        kept += [*frames, line]
        frames = []
    return "\n".join(kept).strip()


@frozen
class TrialApart(Trial):
    """A trial in which each case is played in a copy of this process."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        """Play a case, as `Trial` does; the end of the copy is a finding."""
        played = Trial(self.adapter, self.judges, self.against)
        try:
            return in_fork(lambda _: played.play(case))
        except ProcessDied as died:
            other = self.against.name if self.against is not None else None
            return finding_of(died.ending, self.adapter.name, other), Tally(cases=1)


def apart(trial: Trial) -> TrialApart:
    """The same trial, in copies of this process."""
    return TrialApart(trial.adapter, trial.judges, trial.against)
