"""The report as JUnit XML, which most CI servers read.

Every run has the same tests, whatever the outcome, so that a CI server can show their history. A
law that was not exercised is skipped, with the reason; a held law has a property `exercised`, which
says how often.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kvcanon.conformance.report.report import (
    CacheReport,
    CheckReport,
    CheckVerdict,
    Judged,
    ReplayedFailure,
)
from kvcanon.conformance.report.script import headline
from kvcanon.conformance.search.finding import Finding, Grounds
from kvcanon.conformance.search.result import Standing

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_junit(report: CheckReport) -> str:
    """The report of a check."""
    result = report.result
    root = Element("testsuites", name="kvcanon check", time=f"{report.seconds:.3f}")
    for cache in report.caches:
        suite = SubElement(root, "testsuite", name=_text(cache.name))
        properties = SubElement(suite, "properties")
        for name, value in (("effort", result.effort), ("seed", str(result.seed))):
            SubElement(properties, "property", name=name, value=value)
        for judged in cache.laws:
            _law(suite, cache, judged)
        if result.against is not None:
            _other(suite, cache, f"agreement with {result.against}", Grounds.AGREEMENT)
        _other(suite, cache, "no crash", Grounds.CRASH)
        _essentials(suite, cache)
        _count(suite, [suite])
    _count(root, list(root))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _law(suite: Element, cache: CacheReport, judged: Judged) -> None:
    law = judged.law
    case = _case(suite, cache, f"{law.law_id} {law.name}")
    match judged.standing:
        case Standing.BROKEN:
            failures = list(_breaking(cache, law.law_id))
            message = _sentence(failures[0].failure.finding, law.law_id) + _cause(
                cache, failures[0]
            )
            words = "\n\n".join(_in_words(each) for each in failures)
            SubElement(case, "failure", type=law.law_id, message=_text(message)).text = _text(words)
        case Standing.NOT_KEPT:
            first = next(_breaking(cache, law.law_id)).failure.finding
            message = f"SHOULD, not kept: {_sentence(first, law.law_id)}"
            SubElement(case, "skipped", message=_text(message))
        case Standing.NOT_EXERCISED:
            SubElement(case, "skipped", message=_text(f"not exercised: {judged.remark}"))
        case Standing.KNOWN:
            SubElement(case, "skipped", message=_text(f"known to be broken: {judged.remark}"))
        case Standing.HELD:
            properties = SubElement(case, "properties")
            SubElement(properties, "property", name="exercised", value=str(judged.times))


def _breaking(cache: CacheReport, law_id: str) -> Iterator[ReplayedFailure]:
    """The failures in which a law is broken; first those that are named after it."""
    failures = [each for each in cache.every_failure if law_id in each.failure.laws]
    yield from sorted(failures, key=lambda each: each.failure.finding.name != law_id)


def _sentence(finding: Finding, law_id: str) -> str:
    """What a finding says about one law."""
    return finding.evidence[law_id]


def _cause(cache: CacheReport, failure: ReplayedFailure) -> str:
    """The failure that most likely explains one that is folded into it; empty for others."""
    for first in (*cache.failures, *cache.unkept):
        if failure in first.folded:
            return f" (most likely caused by {headline(first.failure.finding)})"
    return ""


def _other(suite: Element, cache: CacheReport, name: str, grounds: Grounds) -> None:
    """A test for findings that are of no law."""
    case = _case(suite, cache, name)
    failures = [each for each in cache.every_failure if each.failure.finding.grounds is grounds]
    if failures:
        finding = failures[0].failure.finding
        tag = "error" if grounds is Grounds.CRASH else "failure"
        failed = SubElement(case, tag, type=_text(finding.name), message=_text(finding.text))
        failed.text = _text("\n\n".join(_in_words(each) for each in failures))


def _essentials(suite: Element, cache: CacheReport) -> None:
    """A test that everything essential was exercised."""
    case = _case(suite, cache, "essentials came up")
    if cache.result.missing:
        missing = _text("; ".join(cache.result.missing))
        SubElement(case, "failure", type=CheckVerdict.NOT_EXERCISED.value, message=missing)


def _case(suite: Element, cache: CacheReport, name: str) -> Element:
    return SubElement(suite, "testcase", classname=_text(cache.name), name=_text(name), time="0")


def _in_words(replay: ReplayedFailure) -> str:
    return f"{replay.failure.finding.words}\n\nThis script shows it:\n\n{replay.script}"


def _count(element: Element, suites: list[Element]) -> None:
    cases = [case for suite in suites for case in suite.iter("testcase")]
    element.set("tests", str(len(cases)))
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(plural, str(sum(case.find(tag) is not None for case in cases)))


def _text(text: str) -> str:
    """Text without characters that XML forbids; a cache may answer anything."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
