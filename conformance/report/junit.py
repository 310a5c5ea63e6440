"""The report as JUnit XML, which most CI servers read.

Every run has the same tests, whatever the outcome, so that a CI server can show their history. A
law that was not exercised is skipped, with the reason. The test of a law has the properties
`address`, the page of the law, and `class`; if it held, also `exercised`, which says how often.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from kvcanon.conformance.report.named_tests import NamedOutcome, NamedTest, named_tests
from kvcanon.conformance.report.report import CheckReport

_NOT_IN_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_TAGS = {
    NamedOutcome.FAILED: "failure",
    NamedOutcome.CRASHED: "error",
    NamedOutcome.SKIPPED: "skipped",
    NamedOutcome.NOT_KEPT: "skipped",
}
"""The element that each outcome adds to its test; a test that passed has none."""


def check_junit(report: CheckReport) -> str:
    """The report of a check."""
    plan = report.result.plan
    root = Element("testsuites", name="kvcanon check", time=f"{report.seconds:.3f}")
    for cache in report.caches:
        suite = SubElement(root, "testsuite", name=_text(cache.name))
        properties = SubElement(suite, "properties")
        for name, value in (("effort", plan.effort.name), ("seed", str(plan.seed))):
            SubElement(properties, "property", name=name, value=value)
        for test in named_tests(report, cache):
            _test(suite, cache.name, test)
        _count(suite, [suite])
    _count(root, list(root))
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _test(suite: Element, cache: str, test: NamedTest) -> None:
    case = SubElement(suite, "testcase", classname=_text(cache), name=_text(test.name), time="0")
    known = {
        "address": test.address,
        "class": test.law_class,
        "exercised": str(test.exercised or ""),
    }
    given = {name: value for name, value in known.items() if value}
    if given:
        properties = SubElement(case, "properties")
        for name, value in given.items():
            SubElement(properties, "property", name=name, value=value)
    if (tag := _TAGS.get(test.outcome)) is None:
        return
    why = SubElement(case, tag, message=_text(test.message))
    if test.fails:
        why.set("type", _text(test.fault))
        why.text = _text(test.details)


def _count(element: Element, suites: list[Element]) -> None:
    cases = [case for suite in suites for case in suite.iter("testcase")]
    element.set("tests", str(len(cases)))
    for plural, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        element.set(plural, str(sum(case.find(tag) is not None for case in cases)))


def _text(text: str) -> str:
    """Text without characters that XML forbids; a cache may answer anything."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
