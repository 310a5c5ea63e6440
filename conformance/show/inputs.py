"""What can be shown: a report of a check, a vector, the script of a failure, or a recording."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

from kvcanon.conformance.cases.case import case_from_json
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import ALL_JUDGES, JudgeConfig
from kvcanon.conformance.protocol.cache_names import load_adapter
from kvcanon.conformance.report.json_report import FORMAT as REPORT
from kvcanon.conformance.show.case_run import numbered_findings, record_case, run_of_finding
from kvcanon.conformance.show.shown_run import ShownRun
from kvcanon.conformance.vectors import FOLDER, Vector, vector_from_json
from kvcanon.conformance.vectors import FORMAT as VECTOR
from kvcanon.spec.errors import BadArgument
from kvcanon.spec.law import LAWS

KINDS = (
    "a report of `kvcanon check --json`, a vector (its file or its id, as LOAD-1-a), the script "
    "of a failure, or a recording of `kvcanon watch --record`"
)
REPLAYS = "to show a replay of requests, run `kvcanon replay CACHE --trace {} --html PAGE`"
RECORDING = b"KVSTRM"
"""How recordings begin, whatever their version."""
_BAD = (BadArgument, AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What a file that is not of its format may raise."""


def run_of_file(name: str, cache: str | None, failure: str | None) -> ShownRun:
    """Record what a file has: on its own cache, or on the one that is named. Raises: UsageError."""
    path = _path_of(name)
    if _is_recording(path):
        return _run_of_recording(path, cache, failure)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{path} cannot be read: {problem}; give {KINDS}") from error
    if path.suffix == ".py":
        _refuse_failure(failure, path)
        return _run_of_script(path, text, cache)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        hint = f"; {REPLAYS.format(path)}" if path.suffix == ".jsonl" else ""
        raise UsageError(f"{path} is no JSON; give {KINDS}{hint}") from error
    found = value.get("format") if isinstance(value, dict) else None
    if found == VECTOR:
        _refuse_failure(failure, path)
        return _run_of_vector(vector_from_json(path.stem, text), cache)
    if found == REPORT:
        return _run_of_report(path, value, cache, failure)
    if isinstance(found, str) and found.startswith("kvcanon-"):
        raise UsageError(f"{path} has the format {found}; this kvcanon shows {REPORT} and {VECTOR}")
    hint = f"; {REPLAYS.format(path)}" if isinstance(value, dict) and "hash_ids" in value else ""
    raise UsageError(f"{path} is nothing to show; give {KINDS}{hint}")


def _is_recording(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(RECORDING)) == RECORDING
    except OSError:
        return False  # What is wrong is said where the file is read.


def _run_of_recording(path: Path, cache: str | None, failure: str | None) -> ShownRun:
    """Record a recording. Raises: UsageError."""
    if cache is not None:
        raise UsageError(
            f"--cache {cache} is for calls that are played again; {path} is a recording, which is "
            "shown as it is"
        )
    try:
        # What reads streams is an extra.
        from kvcanon.conformance.show.stream_run import record_stream  # noqa: PLC0415
        from kvcanon.live.input_files import BadRecording  # noqa: PLC0415
        from kvcanon.live.stream_recording import open_recording  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(str(error)) from error
    try:
        return record_stream(open_recording(path), failure)
    except BadRecording as error:
        raise UsageError(str(error)) from error


def _path_of(name: str) -> Path:
    path = Path(name)
    vector = FOLDER / f"{name}.json"
    return vector if not path.exists() and path.name == name and vector.exists() else path


def _refuse_failure(failure: str | None, path: Path) -> None:
    if failure is not None:
        raise UsageError(f"--failure {failure} is for a report, and {path} is none")


def _run_of_vector(vector: Vector, cache: str | None) -> ShownRun:
    run = record_case(
        vector.case, load_adapter(cache or "reference"), ALL_JUDGES, f"Vector {vector.vector_id}"
    )
    law = LAWS[vector.law_id]
    return run.with_facts(
        ("law", f"{law.law_id} {law.name}"), ("a faulty cache breaks it", vector.reason)
    )


def _run_of_report(
    path: Path, report: dict[str, Any], cache: str | None, number: str | None
) -> ShownRun:
    try:
        findings = numbered_findings(report)
    except _BAD as error:
        raise UsageError(f"{path} is a damaged report: {type(error).__name__}: {error}") from error
    if not findings:
        raise UsageError(f"{path} has no failure to show: its verdict is {report.get('verdict')}")
    chosen = number or next(iter(findings))
    if chosen not in findings:
        raise UsageError(
            f"{path} has no failure {chosen}; give --failure one of {', '.join(findings)}"
        )
    finding, laws = findings[chosen]
    unknown = sorted({*finding.broken, *laws} - LAWS.keys())
    if unknown:
        raise UsageError(f"{path} speaks of the law {unknown[0]}, which this kvcanon does not have")
    run = run_of_finding(cache or finding.cache, finding, laws)
    return run.with_facts(("failure", f"{chosen} of {path.name}, {finding.origin}"))


def _run_of_script(path: Path, text: str, cache: str | None) -> ShownRun:
    """Record the case of a script, which is read and not run."""
    try:
        module = ast.parse(text)
        case = case_from_json(_literal_named("CASE", module))
        call = _call_of("judged", module)
        given = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        name = cache or ast.literal_eval(call.args[0])
        judges = JudgeConfig(bool(given.get("black_box")), given.get("laws"))
        title = (ast.get_docstring(module) or path.name).splitlines()[0].rstrip(".")
    except (*_BAD, SyntaxError) as error:
        raise UsageError(
            f"{path} is no script of a failure: {type(error).__name__}: {error}; "
            "give one that `kvcanon check --scripts` wrote"
        ) from error
    return record_case(case, load_adapter(name), judges, title)


def _literal_named(name: str, module: ast.Module) -> Any:  # noqa: ANN401  # It is checked next.
    for each in module.body:
        if isinstance(each, ast.Assign) and any(
            isinstance(target, ast.Name) and target.id == name for target in each.targets
        ):
            return ast.literal_eval(each.value)
    raise ValueError(f"it defines no {name}")


def _call_of(name: str, module: ast.Module) -> ast.Call:
    for each in ast.walk(module):
        if isinstance(each, ast.Call) and getattr(each.func, "id", None) == name:
            return each
    raise ValueError(f"it does not call {name}")
