"""Sample reports, as values and in every format, shared by the tests of reports."""

from __future__ import annotations

import io
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

from attrs import evolve
from rich.console import Console

from kvcanon.conformance.cli.terminal import print_parts
from kvcanon.conformance.report.html_page import check_html
from kvcanon.conformance.report.junit import check_junit
from kvcanon.conformance.report.known_differences import KnownDifference
from kvcanon.conformance.report.report import CheckReport, report_of
from kvcanon.conformance.report.text import text_report
from kvcanon.spec.config import Profile
from reported import ASK_TOO_MUCH, SERVE, check_of, failure_in, failure_of, result_of

KNOWN = KnownDifference("EVICT-3", "a leaf's window goes with its lock", "https://example.org/1")


def sound() -> CheckReport:
    """A report of a sound cache."""
    return report_of(check_of(result_of("reference")))


def faulty() -> CheckReport:
    """A report of three faulty caches, with every part that a report can have."""
    forgetful = result_of(
        "reported:Forgetful",
        failure_in("reported:Forgetful", SERVE),
        known=KNOWN.law,
        lacks=("bytes", "reset"),
        profile=Profile(window_lock_exact=False),
    )
    wordy = result_of("reported:Wordy", failure_in("reported:Wordy", ASK_TOO_MUCH, "reference"))
    crashing = result_of("reported:Crashing", failure_of("reported:Crashing"))
    return report_of(check_of(forgetful, wordy, crashing, against="reference"), (KNOWN,))


def idle() -> CheckReport:
    """A report of a cache that serves no insert, beside a sound cache."""
    missing = ("insert was refused each of 312 times", "abort was never called")
    return report_of(check_of(result_of("reported:Wordy", missing=missing), result_of("reference")))


def unkept() -> CheckReport:
    """A report of a cache that breaks a SHOULD law only."""
    failure = failure_in("reported:Forgetful", SERVE)
    finding = evolve(
        failure,
        name="EVICT-7",
        broken=("EVICT-7",),
        text="kept twice",
        texts=("kept twice",),
    )
    return report_of(check_of(result_of("reported:Forgetful", unkept=(finding,))))


# The formats.


def text(report: CheckReport, scripts: dict[str, str] | None = None) -> str:
    """The report as text."""
    out = Console(file=io.StringIO(), width=100, highlight=False)
    print_parts(out, text_report(report, scripts or {}))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def words(printed: str) -> str:
    """A text in one line."""
    return " ".join(printed.split())


def junit(report: CheckReport) -> ET.Element:
    """Parse the report in JUnit XML."""
    return ET.fromstring(check_junit(report))  # noqa: S314  # We have just written it.


class Page(HTMLParser):
    """The elements and the text of a page; checks that every element is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.said: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Record an element."""
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Close an element, which must be the last that was opened."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Record text."""
        self.said.append(data)


def page(report: CheckReport) -> Page:
    """Parse the page of a report."""
    read = Page()
    read.feed(check_html(report))
    read.close()
    assert not read.open
    return read
