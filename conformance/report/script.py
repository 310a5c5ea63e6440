"""Scripts: a failure as a Python file that shows it again, with nothing but kvcanon and the cache.

The calls stand there one a line, each with what was answered, for a reader who steps through them.

What readers get wrong: a script is of the cache that it was written for. Another cache answers
otherwise, so that a call may be refused there; then the case is played instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from textwrap import indent, wrap

from kvcanon import __version__
from kvcanon.conformance.cases.case import case_to_json
from kvcanon.conformance.report.call_code import CodeLine
from kvcanon.conformance.search.finding import Finding, Grounds
from kvcanon.conformance.search.play import JudgeConfig
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.search.trial import is_silence
from kvcanon.spec.law import LAWS

WIDTH = 100

_FROM = {
    "kvcanon.conformance": ("fetched", "judged", "write_stamps"),
    "kvcanon.spec.errors": ("CacheError",),
    "kvcanon.spec.types": ("Component", "Counts", "Key", "Medium", "Namespace", "Slots"),
}
"""Where the names come from that a script may use."""


def script_of(cache: str, failure: Failure, judges: JudgeConfig, lines: Sequence[CodeLine]) -> str:
    """The script of a failure of the cache that is named so on the command line."""
    body = "\n".join(_body(failure, lines)) or "pass"
    call = f"with judged(\n{_arguments(cache, failure, judges)}) as (cache, copies):"
    case = f"CASE = {_case(failure)}\n"
    code = "\n".join([case, call, indent(body, "    ", lambda line: bool(line.strip()))])
    return f"{_docstring(cache, failure.finding)}\n\n{_imports(code)}\n{code}\n"


def file_name(cache: str, finding: Finding) -> str:
    """What the script of a finding is called; findings of one check differ in it."""
    return (
        "-".join(re.sub(r"\W+", "_", part).strip("_") for part in (cache, _what(finding))) + ".py"
    )


def headline(finding: Finding) -> str:
    """What was found, in one line: the law's id and name, or what else is wrong."""
    match finding.grounds:
        case Grounds.LAW:
            return f"{finding.name} {LAWS[finding.name].name}"
        case Grounds.AGREEMENT:
            return f"no agreement: {finding.name}"
        case Grounds.CRASH:
            return f"crash: {finding.name}"


def _what(finding: Finding) -> str:
    return (
        finding.name.replace("-", "_")
        if finding.grounds is Grounds.LAW
        else (f"{finding.grounds.value}_{finding.name}")
    )


def _docstring(cache: str, finding: Finding) -> str:
    told = wrap(finding.text, WIDTH) or [""]
    seen = (
        "it does not end while the cache gives no answer; interrupt it to see where that is. It "
        "ends with exit code 0"
        if is_silence(finding)
        else "it ends with exit code 1 and the words of what is wrong, or with 0"
    )
    ending = wrap(f"Run it where the cache can be imported: {seen} once that is mended.", WIDTH)
    lines = [
        f"{headline(finding)}, shown by {cache}.",
        "",
        *told,
        "",
        *ending,
        "",
        f"Written by kvcanon {__version__}.",
    ]
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""'


def _imports(code: str) -> str:
    lines = ["from contextlib import suppress\n"] if "suppress(" in code else []
    for module, names in _FROM.items():
        used = [name for name in names if re.search(rf"\b{name}\b", code)]
        if used:
            lines.append(f"from {module} import {', '.join(used)}")
    return "\n".join(lines) + "\n"


def _arguments(cache: str, failure: Failure, judges: JudgeConfig) -> str:
    parts = [json.dumps(cache), "CASE"]
    if judges.laws is not None:
        parts.append(f"laws={json.dumps([law.law_id for law in judges.laws])}")
    if judges.black_box:
        parts.append("black_box=True")
    if failure.against is not None:
        parts.append(f"against={json.dumps(failure.against)}")
    return "".join(f"    {part},\n" for part in parts)


def _case(failure: Failure) -> str:
    """The case as a literal, an action a line. JSON would do, but for its names of constants."""
    case = json.loads(json.dumps(case_to_json(failure.case)))
    config = "".join(
        f'        "{name}": {_value(value)},\n' for name, value in case["config"].items()
    )
    actions = "".join(f"        {json.dumps(action)},\n" for action in case["actions"])
    return (
        "{\n"
        f'    "config": {{\n{config}    }},\n'
        f'    "actions": [\n{actions}    ],\n'
        f'    "drain": {json.dumps(case["drain"])},\n'
        "}"
    )


def _value(value: object) -> str:
    """A value of a configuration: a number, a word or counts, none of which has a quote in it."""
    return repr(value).replace("'", '"')


def _body(failure: Failure, lines: Sequence[CodeLine]) -> Iterator[str]:
    actions = [action.name for action in failure.case.actions]
    last = None
    for line in lines:
        if line.action != last:
            last = line.action
            name = actions[last] if last < len(actions) else "the drain"
            yield f"# {name}" if line is lines[0] else f"\n# {name}"
        yield from line.before
        yield from _commented(line)


def _commented(line: CodeLine) -> tuple[str, ...]:
    comments = tuple(f"# {part}" for part in wrap(told(line), WIDTH - 6))
    if line.refused:
        return *comments, "with suppress(CacheError):", f"    {line.code}"
    if sum(map(len, comments)) + len(line.code) + 2 <= WIDTH - 4:
        return ("  ".join((line.code, *comments)),)
    return *comments, line.code


def told(line: CodeLine) -> str:
    """What came of a call, in one line; of what is no operation only what went wrong."""
    answer = next(iter(line.answer.splitlines()), "")
    if line.number is None:
        return "" if answer == "done" else answer
    return f"{line.number}: {answer}"
