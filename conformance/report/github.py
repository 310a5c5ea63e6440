"""The report for GitHub Actions: error annotations, and a summary in Markdown.

An annotation is a line of output that the runner reads, such as `::error title=RES-4::...`. The
summary is appended to the file that the variable GITHUB_STEP_SUMMARY names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kvcanon.conformance.check.result import Standing
from kvcanon.conformance.report.named_tests import named_tests
from kvcanon.conformance.report.report import CheckReport, CheckVerdict
from kvcanon.conformance.report.text import last_line

MOST_ANNOTATIONS = 10
"""GitHub shows this many errors of a step, and drops the rest without a word."""
MOST_BYTES = 900_000
"""GitHub drops a summary of more than 1 MiB."""

MARKS = {CheckVerdict.HOLDS: "passed", CheckVerdict.INCOMPLETE: "incomplete"}


def error_lines(report: CheckReport) -> Iterator[str]:
    """An error line for each test that fails: the law, what is wrong, and the law's page."""
    failing = [
        (cache.name, test)
        for cache in report.caches
        for test in named_tests(report, cache)
        if test.fails
    ]
    shown = failing if len(failing) <= MOST_ANNOTATIONS else failing[: MOST_ANNOTATIONS - 1]
    for cache, test in shown:
        page = f"\nThe law: {test.address}" if test.address else ""
        yield error_line(test.name, f"{cache}: {test.message}{page}")
    if rest := [test.key for _, test in failing[len(shown) :]]:
        yield error_line(f"{len(rest)} more", ", ".join(rest))


def error_line(title: str, message: str) -> str:
    """The line that makes an error annotation."""
    title = _escaped(title).replace(":", "%3A").replace(",", "%2C")
    return f"::error title={title}::{_escaped(message)}"


def _escaped(text: str) -> str:
    """Text as the runner takes it, in one line."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def step_summary(report: CheckReport, text: str) -> str:
    """The summary: the verdict, a table of what is wrong, and the report as text."""
    names = ", ".join(f"{_cell(cache.name)}" for cache in report.caches)
    mark = MARKS.get(report.verdict, "failed")
    lines = [f"## kvcanon: {names} {mark}", "", _cell(last_line(report).plain), ""]
    rows = list(_rows(report))
    if rows:
        lines += ["| cache | what is wrong | |", "|---|---|---|", *rows, ""]
    lines += ["<details><summary>The whole report</summary>", "", *_fenced(text), "", "</details>"]
    return "\n".join(lines) + "\n"


def _rows(report: CheckReport) -> Iterator[str]:
    for cache in report.caches:
        for test in named_tests(report, cache):
            if test.fails:
                name = _linked(test.name, test.address)
                yield f"| {_cell(cache.name)} | {name} | {_cell(test.message)} |"
        for each in cache.laws:
            if each.standing is Standing.KNOWN:
                law = _linked(f"{each.law.law_id} {each.law.name}", each.law.address)
                yield f"| {_cell(cache.name)} | {law}, known | {_cell(each.remark)} |"


def _linked(text: str, address: str) -> str:
    """Text in a cell as a link; without an address as it is."""
    return f"[{_cell(text)}]({address})" if address else _cell(text)


def _cell(text: str) -> str:
    """Text in one cell of a table, shown as it is."""
    return re.sub(r"([|<>*_`\\\[\]])", r"\\\1", " ".join(text.split()))


def _fenced(text: str) -> list[str]:
    """Text as a code block, with a fence that is longer than any in it; its end may be cut."""
    if len(raw := text.encode()) > MOST_BYTES:
        text = raw[:MOST_BYTES].decode(errors="ignore") + "\n... (cut: GitHub shows no more)"
    longest = max((len(each) for each in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", text.rstrip("\n"), fence]
