"""A hunt: play cases on one cache of a release until one law is broken.

It runs in the environment of the release, reads what to look for from its arguments, and writes the
result to stdout:

    python -m kvcanon.conformance.engines.releases.hunt '{"cache": "sglang", "law": "REC-1", ...}'

Only the law in question is checked. Whatever else the cache does wrong or raises ends its case, and
is not counted as found.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from attrs import Factory, asdict, evolve, frozen

from kvcanon.conformance.cases.case import Case, case_to_json, config_from_json
from kvcanon.conformance.engines.releases.past_bugs import Drawn
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.report.call_code import CodeLine, code_lines
from kvcanon.conformance.report.failure_replay import judges_of, replay_failure
from kvcanon.conformance.report.law_lookup import find_law
from kvcanon.conformance.report.script import answer_line, script_of
from kvcanon.conformance.search.finding import Finding, Tally
from kvcanon.conformance.search.play import JudgeConfig
from kvcanon.conformance.search.reduce import reduce_case
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.trial import Trial
from kvcanon.conformance.search.walker import draw_case
from kvcanon.spec.types import WritePolicy

HERE = str(Path(__file__).resolve())
"""This module: says which kvcanon a process runs."""


@frozen
class Hunt:
    """What is looked for, and for how long."""

    cache: str
    law_id: str
    words: str
    """What a finding must say; empty if any will do."""
    drawn: Drawn
    seed: int
    cases: int
    """At most so many are played."""
    seconds: float
    """No case is begun after so many."""

    def is_found_by(self, finding: Finding) -> bool:
        """Whether this is what is looked for."""
        return self.law_id in finding.broken and self.words in finding.text


@frozen
class Hunted:
    """What came of it."""

    found: bool
    exercised: int
    """How often the law was exercised."""
    cases: int
    steps: int
    seconds: float
    """Until it was found, or all was played; what came before and after is not in it."""
    cut_short: bool = False
    """Whether the time was over before all cases were played."""
    text: str = ""
    """What is wrong in the shortest case that was found, in a sentence."""
    calls: tuple[str, ...] = ()
    """The calls of that case, each with what came of it."""
    case: Mapping[str, object] = Factory(dict)
    script: str = ""
    """Makes these calls."""


def hunt(wanted: Hunt) -> Hunted:
    """Play cases until one breaks the law. Raises: UsageError."""
    adapter = evolve(load_adapter(wanted.cache), name=wanted.cache)
    adapter = evolve(adapter, offer=wanted.drawn.of(adapter.offer))
    law = find_law(wanted.law_id)
    trial = Trial(adapter, JudgeConfig(laws=(law,)))
    played, begun = Tally(), monotonic()
    broken: tuple[Case, Finding] | None = None
    cut_short = False
    for number in range(wanted.cases):
        if monotonic() - begun > wanted.seconds:
            cut_short = True
            break
        case = draw_case((wanted.seed << 40) + number, adapter.offer, wanted.drawn.config)
        finding, tally = trial.play(case)
        played.add(tally)
        if finding is not None and wanted.is_found_by(finding):
            broken = case, finding
            break
    seconds = round(monotonic() - begun, 1)
    exercised = played.laws[law.law_id]
    if broken is None:
        return Hunted(False, exercised, played.cases, played.steps, seconds, cut_short)
    case, finding = reduce_case(*broken, trial) or broken
    if not wanted.is_found_by(finding):
        # A shorter case that breaks the same law may do it by another fault.
        case, finding = broken
    failure = Failure(finding, case, f"walker, seed {wanted.seed}", times=1)
    judges = judges_of(failure, (law.law_id,))
    lines = code_lines(replay_failure(failure, adapter, judges).calls)
    return Hunted(
        True,
        exercised,
        played.cases,
        played.steps,
        seconds,
        text=finding.text,
        calls=tuple(each for line in lines for each in (*line.before, _with_answer(line))),
        case=case_to_json(case),
        script=script_of(adapter.name, failure, judges, lines),
    )


def _with_answer(line: CodeLine) -> str:
    """A call, and what came of it."""
    answer = answer_line(line)
    return f"{line.code}  # {answer}" if answer else line.code


def hunt_to_json(wanted: Hunt) -> str:
    """What to look for, as the process there is told it."""
    return json.dumps(asdict(wanted))


def hunt_from_json(text: str) -> Hunt:
    """The same, read there."""
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
    """Look for what is asked, and write what came of it. Returns the exit code."""
    try:
        came = hunt(hunt_from_json(text))
    except UsageError as fault:
        sys.stderr.write(f"kvcanon: {fault}\n")
        return 2
    sys.stdout.write(json.dumps({"kvcanon": HERE, "hunted": asdict(came)}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
