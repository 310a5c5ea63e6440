"""The report for GitHub Actions."""

from __future__ import annotations

import re

from attrs import evolve

from kvcanon.conformance.report import github
from kvcanon.conformance.report.github import error_line, error_lines, step_summary
from kvcanon.conformance.report.named_tests import named_tests
from kvcanon.conformance.report.report import CheckReport, report_of
from kvcanon.spec.law import LAWS
from reported import check_of, result_of
from sample_reports import KNOWN, sound


def test_each_failing_test_is_annotated(report: CheckReport) -> None:
    """There is one error line for each test that fails, with cache, law and sentence."""
    lines = list(error_lines(report))
    failing = [test for cache in report.caches for test in named_tests(report, cache) if test.fails]
    assert len(lines) == len(failing) > 2
    assert lines[0].startswith("::error title=LOCK-8 ")
    assert lines[0].endswith(
        "::reported:Forgetful: receipt 1 is still open after its release"
        f"%0AThe law: {LAWS['LOCK-8'].address}"
    )
    assert [line for line in lines if "LOCK-8" not in line and "The law:" in line] == []
    assert list(error_lines(sound())) == []


def test_more_than_github_shows_are_counted(report: CheckReport) -> None:
    """The last annotation names those for which there is no place."""
    one = report.caches[0].failures[0]
    laws = tuple(f"EVENT-{number}" for number in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12))
    finding = evolve(one, name=laws[0], broken=laws, texts=())
    result = result_of("reported:Forgetful", finding)
    lines = list(error_lines(report_of(check_of(result))))
    assert len(lines) == github.MOST_ANNOTATIONS
    assert lines[-1] == "::error title=2 more::EVENT-11, EVENT-12"


def test_annotation_is_one_line_that_the_runner_understands() -> None:
    """Line ends and the signs of the syntax are escaped."""
    line = error_line("a: b, 50%", "first\r\n::error::second, 50%: yes")
    assert line == "::error title=a%3A b%2C 50%25::first%0D%0A::error::second, 50%25: yes"


def test_summary_has_verdict_table_and_report(report: CheckReport) -> None:
    """The summary has the verdict, what is wrong, what is known, and the whole report."""
    text = step_summary(report, "all of it\n")
    assert text.startswith("## kvcanon: reported:Forgetful, ")
    assert "failed\n\nBROKEN (sound): LOCK-8" in text
    assert "| reported:Forgetful | [LOCK-8 " in text
    assert f"]({LAWS['LOCK-8'].address}) | receipt 1 is still open" in text
    assert f"]({LAWS['EVICT-3'].address}), known | {KNOWN.reason} ({KNOWN.link}) |" in text
    assert "\n```text\nall of it\n```\n" in text
    assert "passed\n\nNo law is broken" in step_summary(sound(), "all of it\n")


def test_words_of_a_cache_do_not_break_the_summary(report: CheckReport) -> None:
    """Pipes, tags and fences in what a cache says are shown as they are."""
    failure = report.caches[2].failures[0]
    finding = evolve(failure, text="a | b <script>\nnext `row`")
    result = result_of("reported:Crashing", finding)
    text = step_summary(report_of(check_of(result)), "before\n````\nafter")
    assert "a \\| b \\<script\\> next \\`row\\` |\n" in text
    assert "\n`````text\nbefore\n````\nafter\n`````\n" in text


def test_long_report_is_cut() -> None:
    """A report that GitHub would drop is cut, and says so; the page stays whole."""
    text = step_summary(sound(), "é" * github.MOST_BYTES)
    assert len(text.encode()) < 1 << 20
    assert re.search(r"é\n\.\.\. \(cut: GitHub shows no more\)\n```\n\n</details>\n$", text)
