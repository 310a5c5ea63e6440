"""The report as JUnit XML."""

from __future__ import annotations

from attrs import evolve

from kvcanon.conformance.report.report import CheckReport, report_of
from kvcanon.spec.law import LAWS
from reported import check_of, result_of
from sample_reports import KNOWN, junit, sound


def test_junit_has_a_test_for_each_law_and_the_rest(report: CheckReport) -> None:
    """Every JUnit report has the same tests: one for each law, and the others."""
    for each in (report, sound()):
        for suite, cache in zip(junit(each), each.caches, strict=True):
            names = [case.get("name") for case in suite.iter("testcase")]
            expected = [f"{law.law_id} {law.name}" for law in LAWS.values()]
            agreement = ["agreement with reference"] if each is report else []
            others = ["no crash", "essentials came up", "everything was played"]
            assert names == [*expected, *agreement, *others]
            assert {case.get("classname") for case in suite.iter("testcase")} == {cache.name}


def test_junit_has_the_page_of_each_law(report: CheckReport) -> None:
    """Every test of a law has its address, whatever the outcome; the others have none."""
    for suite in junit(report):
        pages = [each.get("value") for each in suite.iterfind(".//property[@name='address']")]
        assert pages == [law.address for law in LAWS.values()]


def test_junit_tells_broken_from_skipped(report: CheckReport) -> None:
    """Broken laws fail, laws that are known or not exercised are skipped, and held laws pass."""
    forgetful, wordy, crashing = junit(report)
    case = {each.get("name", "").split()[0]: each for each in forgetful.iter("testcase")}
    failure = case["LOCK-8"].find("failure")
    assert failure is not None
    assert failure.get("message") == "receipt 1 is still open after its release"
    assert "judged(" in (failure.text or "")
    assert (failure.text or "").startswith(f"The page of the law: {LAWS['LOCK-8'].address}\n\n")
    skipped = {name: each.find("skipped") for name, each in case.items()}
    messages = {name: each.get("message") for name, each in skipped.items() if each is not None}
    assert messages == {
        "DATA-1": "not exercised: not offered: the cache has no bytes",
        "EVICT-3": f"known to be broken: {KNOWN.reason} ({KNOWN.link})",
    }
    held = case["TREE-1"].find("properties/property[@name='exercised']")
    assert held is not None
    assert held.get("value") == "9"
    assert wordy.find("testcase[@name='agreement with reference']/failure") is not None
    assert crashing.find("testcase[@name='no crash']/error") is not None


def test_junit_counts_what_it_has(report: CheckReport) -> None:
    """The counts in JUnit XML are those of its tests."""
    root = junit(report)
    assert root.get("tests") == str(len(list(root.iter("testcase"))))
    counts = [(each.get("failures"), each.get("errors"), each.get("skipped")) for each in root]
    assert counts == [("1", "0", "2"), ("1", "0", "0"), ("0", "1", "0")]
    assert (root.get("failures"), root.get("errors"), root.get("skipped")) == ("2", "1", "2")


def test_junit_holds_what_no_xml_can(report: CheckReport) -> None:
    """Control characters in a cache's words are replaced, so that the XML is valid."""
    failure = report.caches[2].failures[0]
    finding = evolve(failure, text="a \x00 b", words="\x1b[0m")
    result = result_of("reported:Crashing", finding)
    error = junit(report_of(check_of(result))).find(".//error")
    assert error is not None
    assert error.get("message") == "a \ufffd b"
