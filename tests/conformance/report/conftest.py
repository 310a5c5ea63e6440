"""The report that the tests of all formats use."""

from __future__ import annotations

import pytest

from kvcanon.conformance.report.report import CheckReport
from sample_reports import faulty


@pytest.fixture(scope="session")
def report() -> CheckReport:
    """Return a report with everything that a report can contain."""
    return faulty()
