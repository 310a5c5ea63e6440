"""Writes a finding as a Python script that needs only kvcanon and the cache.

The script has one call in each line, with its answer as a comment, to step through in a debugger.

A script is for the cache that it was written for. Another cache may refuse a call; then the script
plays the case instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from textwrap import indent, wrap

from kvcanon import __version__
from kvcanon.conformance.cases.case import case_to_json
from kvcanon.conformance.check.result import CodeLine, Finding, Grounds, are_grouped
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.workers.hash_seeds import own_seed

WIDTH = 100

NAMES_FROM = {
    "kvcanon.conformance": ("fetched", "judged", "write_stamps"),
    "kvcanon.spec.errors": ("CacheError",),
    "kvcanon.spec.operations": ("Receipt",),
    "kvcanon.spec.transfer": ("Completion",),
    "kvcanon.spec.types": ("Component", "Counts", "Key", "Medium", "Namespace", "Slots"),
}
"""Where the names come from that a script may use."""


def script_of(finding: Finding, judges: JudgeConfig) -> str:
    """The script of a finding that was replayed."""
    body = "\n".join(_body(finding)) or "pass"
    call = f"with judged(\n{_arguments(finding, judges)}) as (cache, copies):"
    case = f"CASE = {_case(finding)}\n"
    code = "\n".join([case, call, indent(body, "    ", lambda line: bool(line.strip()))])
    return f"{_docstring(finding)}\n\n{_imports(code)}\n{code}\n"


def file_name(finding: Finding) -> str:
    """The file name of a finding's script; it differs for each finding of a check."""
    parts = (finding.cache, _what(finding))
    return "-".join(re.sub(r"\W+", "_", part).strip("_") for part in parts) + ".py"


def _what(finding: Finding) -> str:
    return (
        finding.name.replace("-", "_")
        if finding.grounds is Grounds.LAW
        else (f"{finding.grounds.value}_{finding.name}")
    )


def _docstring(finding: Finding) -> str:
    text = wrap(finding.text, WIDTH) or [""]
    exit_codes = (
        "it does not end while the cache gives no answer; interrupt it to see where the cache "
        "hangs. It ends with exit code 0"
        if finding.is_silence
        else "its process ends at the last call, as the check saw it. It says so and ends with exit"
        " code 0"
        if finding.is_death
        else "it ends with exit code 1 and an explanation of the fault, or with exit code 0"
    )
    run = f"Run it where the cache can be imported: {exit_codes} once the fault is fixed."
    ending = wrap(run, WIDTH)
    lines = [
        f"{finding.headline}, shown by {finding.cache}.",
        "",
        *text,
        "",
        *ending,
        "",
        f"Written by kvcanon {__version__}.",
    ]
    docstring = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{docstring}\n"""'


def _imports(code: str) -> str:
    lines = ["from contextlib import suppress\n"] if "suppress(" in code else []
    for module, names in NAMES_FROM.items():
        used = [name for name in names if re.search(rf"\b{name}\b", code)]
        if used:
            lines.append(f"from {module} import {', '.join(used)}")
    return "\n".join(lines) + "\n"


def _arguments(finding: Finding, judges: JudgeConfig) -> str:
    parts = [json.dumps(finding.cache), "CASE"]
    if judges.laws is not None:
        parts.append(f"laws={json.dumps(list(judges.laws))}")
    if judges.black_box:
        parts.append("black_box=True")
    if finding.case.rank_apart and own_seed() is not None:
        parts.append(f"hash_seed={own_seed()}")
    if finding.against is not None:
        parts.append(f"against={json.dumps(finding.against)}")
    return "".join(f"    {part},\n" for part in parts)


def _case(finding: Finding) -> str:
    """The case as a Python literal, one action in each line."""
    case = json.loads(json.dumps(case_to_json(finding.case)))
    config = "".join(
        f'        "{name}": {_value(value)},\n' for name, value in case["config"].items()
    )
    actions = "".join(f"        {json.dumps(action)},\n" for action in case["actions"])
    others = "".join(
        f'    "{name}": {_value(value)},\n'
        for name, value in case.items()
        if name not in ("config", "actions")
    )
    return f'{{\n    "config": {{\n{config}    }},\n    "actions": [\n{actions}    ],\n{others}}}'


def _value(value: object) -> str:
    """A value of a case; none has a quote in it."""
    return repr(value).replace("'", '"')


def _body(finding: Finding) -> Iterator[str]:
    actions = [action.name for action in finding.case.actions]
    last, grouped = None, are_grouped(finding.calls)
    for line in finding.calls:
        if grouped and line.action != last:
            last = line.action
            name = actions[last] if last < len(actions) else "the drain"
            yield f"# {name}" if line is finding.calls[0] else f"\n# {name}"
        yield from line.before
        yield from _commented(line)


def _commented(line: CodeLine) -> tuple[str, ...]:
    comments = tuple(f"# {part}" for part in wrap(answer_line(line), WIDTH - 6))
    if line.refused:
        return *comments, "with suppress(CacheError):", f"    {line.code}"
    if sum(map(len, comments)) + len(line.code) + 2 <= WIDTH - 4:
        return ("  ".join((line.code, *comments)),)
    return *comments, line.code


def answer_line(line: CodeLine) -> str:
    """The answer of a call in one line; empty for successful calls that are no operations."""
    answer = next(iter(line.answer.splitlines()), "")
    if line.number is None:
        return "" if answer == "done" else answer
    return f"{line.number}: {answer}"
