"""The report that the tests of all formats share."""

from __future__ import annotations

import pytest

from kvcanon.conformance.report.report import CheckReport
from sample_reports import faulty


@pytest.fixture(scope="session")
def report() -> CheckReport:
    """A report with everything that can be in a report."""
    return faulty()
