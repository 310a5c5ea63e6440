"""A trial: plays cases on one judged cache, in this process or in copies of it.

If the cache does not offer a configuration, the case is not played. Any other exception of its
factory is a finding. So is what ends the process in which a cache is played: the process leaves a
note of the case and the operation (`workers/notes.py`).
"""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from attrs import evolve, frozen

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Finding, Grounds, Tally
from kvcanon.conformance.check.time_limit import (
    LIMIT,
    SHORT_SECONDS,
    SHORT_WAITING_SECONDS,
    NotMade,
    adapter_in_time,
    made_in_time,
)
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import ALL_JUDGES, JudgeConfig
from kvcanon.conformance.protocol.adapter import INSIDE, Adapter, CacheKind, Unoffered, make_subject
from kvcanon.conformance.workers.ending import Ending, ProcessDied
from kvcanon.conformance.workers.hash_seeds import forget_seed
from kvcanon.conformance.workers.notes import MAKING
from kvcanon.spec.law import LAWS, LawClass, Need

_FRAME = re.compile(r'  File ".*", line \d+ in ')
_OF_JUDGE = re.compile(
    r'  File "(<string>|.*kvcanon.conformance.(cases|check|judge|report|workers).*)", line '
)


def adapter_as(name: str, *, black_box: bool = False) -> Adapter:
    """Load an adapter, and give it the name from the command line, for reports.

    As a black box it shows answers, events and bytes only. Raises: UsageError, also if its module
    ends or blocks its process.
    """
    adapter = evolve(adapter_in_time(name), name=name)
    return evolve(adapter, hides=adapter.hides | INSIDE) if black_box else adapter


def short_limit() -> AbstractContextManager[None]:
    """Set a shorter time limit in the block, to play a case that is known to hang."""
    return LIMIT.at_most(SHORT_SECONDS, SHORT_WAITING_SECONDS)


@frozen
class Trial:
    """A cache, and how it is judged."""

    adapter: Adapter
    judges: JudgeConfig = ALL_JUDGES
    against: Adapter | None = None
    """The cache to agree with."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        """Play a case. Returns the finding, of the cache or else of `against`, and the counts."""
        try:
            found, tallies = play(case, [self.adapter], self.judges, self.against)
        except UsageError as error:
            return self._not_made(case, error), Tally(cases=1)
        ours = [finding for finding in found if finding.cache == self.adapter.name]
        first = next(iter(ours or found), None)
        tally = tallies[self.adapter.name]
        return None if first is None else self.found(first), tally

    def found(self, finding: Finding) -> Finding:
        """A finding, with how this trial judges."""
        against = None if self.against is None else self.against.name
        case = finding.case
        if self.adapter.is_bare and not self.adapter.offer.namespaces:
            # Who plays it again loads an adapter that offers them.
            case = evolve(case, one_namespace=True)
        return evolve(finding, case=case, black_box=self.judges.black_box, against=against)

    def from_outside(self) -> Trial:
        """The same trial, judged by answers and events only."""
        return evolve(self, judges=evolve(self.judges, black_box=True))

    def seen_inside(self, finding: Finding) -> Finding:
        """A finding with the laws that its case breaks by then, judged by the cache's states.

        From outside, what a cache does on its own looks like a fault. So where its states show that
        laws of policy alone are broken by then, that is what was found.
        """
        if not self.shows_states(finding.case):
            return finding
        if not self.judges.black_box and finding.broken:
            return evolve(finding, inside=frozenset(finding.broken))
        by_states = evolve(self, judges=evolve(self.judges, black_box=False), against=None)
        seen, _ = by_states.play(finding.case)
        if seen is None or seen.operation > finding.operation:
            return finding
        inside = frozenset(seen.broken)
        if self.judges.black_box and inside and all(map(_is_policy, inside)):
            kept = {name: getattr(finding, name) for name in ("origin", "times", "reduced")}
            return evolve(seen, inside=inside, **kept)
        return evolve(finding, inside=inside)

    def shows_states(self, case: Case) -> bool:
        """Whether the cache shows its states in a case."""
        if Need.SNAPSHOT in self.adapter.hides or self.adapter.kind is CacheKind.REQUEST:
            return False
        try:
            made = made_in_time(lambda: make_subject(self.adapter, case.config))
        except (UsageError, Unoffered):
            return False
        return Need.SNAPSHOT in made.shows

    def _not_made(self, case: Case, error: UsageError) -> Finding:
        text = f"no cache of this configuration could be made: {error}"
        cache, name = self.adapter.name, error.name if isinstance(error, NotMade) else "not made"
        return self.found(Finding(cache, Grounds.CRASH, name, (), text, text, case, 0, 0))


def _is_policy(law_id: str) -> bool:
    return LAWS[law_id].law_class is LawClass.POLICY


# Cases that end their process.


@frozen
class TrialApart(Trial):
    """A trial in which each case is played in a copy of this process."""

    def play(self, case: Case) -> tuple[Finding | None, Tally]:
        """Play a case, as `Trial` does; the end of the copy is a finding."""
        # Most checks see no process end, and do not wait for this import.
        from kvcanon.conformance.workers.fork import in_fork  # noqa: PLC0415

        played = Trial(self.adapter, self.judges, self.against)
        try:
            return in_fork(lambda _: _alone(played, case))
        except ProcessDied as died:
            other = self.against.name if self.against is not None else None
            ended = finding_of(died.ending, case, self.adapter.name, other)
            return self.found(ended), Tally(cases=1)


def _alone(trial: Trial, case: Case) -> tuple[Finding | None, Tally]:
    """Play a case in this copy of a process; to start another one for a rank takes long."""
    forget_seed()
    return trial.play(case)


def apart(trial: Trial) -> TrialApart:
    """The same trial, in copies of this process."""
    return TrialApart(trial.adapter, trial.judges, trial.against)


def finding_of(ending: Ending, case: Case, cache: str, against: str | None = None) -> Finding:
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
        case=case,
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
