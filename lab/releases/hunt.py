"""A hunt: plays cases on one cache of a release until one law is broken.

It runs in the environment of the release, reads the hunt from its argument, and writes the result
to stdout:

    python -m kvcanon.lab.releases.hunt '{"cache": "sglang", "law": "REC-1", ...}'

Only the given law is checked. Any other failure or exception ends its case, and does not count as
found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from attrs import Factory, asdict, evolve, frozen

from kvcanon.conformance.cases.case import case_to_json, config_from_json
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.reduce import reduce_case
from kvcanon.conformance.check.result import CodeLine, Finding, Tally
from kvcanon.conformance.check.trial import Trial
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig, find_law
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.report.call_code import code_lines
from kvcanon.conformance.report.failure_replay import judges_of, replay_finding
from kvcanon.conformance.report.script import answer_line, script_of
from kvcanon.lab.releases.past_bugs import Drawn
from kvcanon.spec.types import WritePolicy

HERE = str(Path(__file__).resolve())
"""This module, by its full name."""


@frozen
class Hunt:
    """What to search for, and for how long."""

    cache: str
    law_id: str
    words: str
    """Text that a finding must contain; empty if any finding of the law counts."""
    drawn: Drawn
    seed: int
    cases: int
    """The most cases to play."""
    seconds: float
    """The time after which no new case starts."""

    def is_found_by(self, finding: Finding) -> bool:
        """Whether a finding is of this bug."""
        return self.law_id in finding.broken and self.words in finding.text


@frozen
class Hunted:
    """The result of a hunt."""

    found: bool
    exercised: int
    """How often the law was exercised."""
    cases: int
    steps: int
    seconds: float
    """The time of playing cases alone, without setup and reduction."""
    cut_short: bool = False
    """Whether the time ran out before all cases were played."""
    text: str = ""
    """One sentence about the failure in the shortest case found."""
    calls: tuple[str, ...] = ()
    """The calls of that case, each with its result."""
    case: Mapping[str, object] = Factory(dict)
    script: str = ""
    """A script that makes these calls."""


def hunt(wanted: Hunt) -> Hunted:
    """Play cases until one breaks the law. Raises: UsageError."""
    adapter = evolve(load_adapter(wanted.cache), name=wanted.cache)
    adapter = evolve(adapter, offer=wanted.drawn.of(adapter.offer))
    law = find_law(wanted.law_id)
    trial = Trial(adapter, JudgeConfig(laws=(law.law_id,)))
    played, begun = Tally(), monotonic()
    broken: Finding | None = None
    cut_short = False
    for number in range(wanted.cases):
        if monotonic() - begun > wanted.seconds:
            cut_short = True
            break
        case = draw_case((wanted.seed << 40) + number, adapter.offer, wanted.drawn.config)
        finding, tally = trial.play(case)
        played.add(tally)
        if finding is not None and wanted.is_found_by(finding):
            broken = finding
            break
    seconds = round(monotonic() - begun, 1)
    exercised = played.laws[law.law_id]
    if broken is None:
        return Hunted(False, exercised, played.cases, played.steps, seconds, cut_short)
    smallest = reduce_case(broken, trial)
    # A shorter case may break the same law by another bug.
    finding = smallest if smallest is not None and wanted.is_found_by(smallest) else broken
    judges = judges_of(finding, (law.law_id,))
    calls = code_lines(replay_finding(finding, adapter, judges).calls)
    finding = evolve(finding, calls=calls, origin=f"walker, seed {wanted.seed}")
    return Hunted(
        True,
        exercised,
        played.cases,
        played.steps,
        seconds,
        text=finding.text,
        calls=tuple(each for line in calls for each in (*line.before, _with_answer(line))),
        case=case_to_json(finding.case),
        script=script_of(finding, judges),
    )


def _with_answer(line: CodeLine) -> str:
    """A call with its result."""
    answer = answer_line(line)
    return f"{line.code}  # {answer}" if answer else line.code


def hunt_to_json(wanted: Hunt) -> str:
    """Encode a hunt for the process in the environment."""
    return json.dumps(asdict(wanted))


def hunt_from_json(text: str) -> Hunt:
    """Decode a hunt in the environment."""
    told_of = json.loads(text)
    drawn = told_of.pop("drawn")
    config, policies = drawn.pop("config"), drawn.pop("write_policies")
    return Hunt(
        drawn=Drawn(
            **{name: None if only is None else tuple(only) for name, only in drawn.items()},
            config=None if config is None else config_from_json(config),
            write_policies=None if policies is None else tuple(map(WritePolicy, policies)),
        ),
        **told_of,
    )


def main(text: str) -> int:
    """Run a hunt, and write its result as JSON. Returns the exit code."""
    try:
        came = hunt(hunt_from_json(text))
    except UsageError as fault:
        sys.stderr.write(f"kvcanon: {fault}\n")
        return 2
    sys.stdout.write(json.dumps({"kvcanon": HERE, "hunted": asdict(came)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
