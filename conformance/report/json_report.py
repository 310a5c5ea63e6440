"""The report as JSON, in a versioned format.

`schema/check.schema.json` defines the format. A field that changes its meaning needs a new version.
"""

from __future__ import annotations

import json
from pathlib import Path

from attrs import asdict

from kvcanon import __version__
from kvcanon.conformance.check.result import CodeLine, Finding, Standing, finding_to_json
from kvcanon.conformance.report.report import CacheReport, CheckReport

FORMAT = "kvcanon-check/6"

SCHEMA = Path(__file__).with_name("schema") / "check.schema.json"
"""The JSON Schema of the value that `check_json` returns, draft 2020-12."""


def check_json(report: CheckReport) -> dict[str, object]:
    """The report of a check as a value for JSON."""
    plan = report.result.plan
    return {
        "format": FORMAT,
        "kvcanon": __version__,
        "verdict": report.verdict.value,
        "effort": plan.effort.name,
        "seed": plan.seed,
        "against": plan.against,
        "strict": plan.strict,
        "stages": [asdict(stage) for stage in report.result.stages],
        "known": [asdict(known) for known in report.known],
        "caches": [_cache(cache) for cache in report.caches],
    }


def json_text(value: dict[str, object]) -> str:
    """A value as the text of a JSON file."""
    return f"{json.dumps(value, indent=2)}\n"


def _cache(cache: CacheReport) -> dict[str, object]:
    tally = cache.result.tally
    operations = sorted({*tally.served, *tally.refused})
    return {
        "name": cache.name,
        "verdict": cache.verdict.value,
        "classes_broken": list(cache.classes_broken),
        "missing": list(cache.result.missing),
        "unplayed": [asdict(each) for each in cache.result.unplayed],
        "departures": [asdict(departure) for departure in cache.departures],
        "offers": list(cache.offered),
        "lacks": list(cache.result.lacks),
        "played": {"cases": tally.cases, "actions": tally.actions, "steps": tally.steps},
        "not_offered": {"cases": tally.unoffered, "refused": tally.declined},
        "operations": [
            {"name": name, "served": tally.served[name], "refused": tally.refused[name]}
            for name in operations
        ],
        "counts": {standing.value: cache.count(standing) for standing in Standing},
        "laws": [
            {
                "id": judged.law.law_id,
                "name": judged.law.name,
                "address": judged.law.address,
                "level": judged.law.level.value,
                "class": judged.law.law_class.value,
                "premise": judged.law.premise.words,
                "standing": judged.standing.value,
                "times": judged.times,
                "known_broken": tally.known[judged.law.law_id],
                "stages": dict(judged.stages),
                "remark": judged.remark,
            }
            for judged in cache.laws
        ],
        "failures": [_finding(each) for each in cache.failures],
        "not_kept": [_finding(each) for each in cache.unkept],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {
        **finding_to_json(finding),
        "calls": [_call(line) for line in finding.calls],
        "script": finding.script,
        "permitted_by": list(finding.permitted_by),
        "left_out_by": list(finding.left_out_by),
        "why_folded": finding.why_folded,
        "folded": [_finding(each) for each in finding.folded],
    }


def _call(line: CodeLine) -> dict[str, object]:
    return {
        "action": line.action,
        "operation": line.number,
        "definitions": list(line.before),
        "code": line.code,
        "answer": line.answer,
        "refused": line.refused,
    }
