"""The tests for a cache: `pytest --pyargs kvcanon.conformance --kvcanon-cache ...`.

These are not the tests of kvcanon. There is a test for each law, and four for what is of no law.
They show the result of one check, which runs before the first of them. A failed test is a finding
about the cache; its message has no traceback, which would only show the judge.
"""

from __future__ import annotations

import pytest

from kvcanon.conformance.pytest_plugin import NO_CACHE
from kvcanon.conformance.pytest_plugin.hooks import checked_of
from kvcanon.conformance.pytest_plugin.session_check import SessionCheck
from kvcanon.conformance.report.named_tests import (
    AGREEMENT,
    COMPLETE,
    CRASH,
    ESSENTIALS,
    NamedOutcome,
    NamedTest,
)
from kvcanon.spec.law import LAWS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each law. Raises: CollectError: no cache is given."""
    if metafunc.config.getoption("kvcanon_cache") is None:
        raise pytest.Collector.CollectError(NO_CACHE)
    if "law_id" in metafunc.fixturenames:
        metafunc.parametrize("law_id", LAWS)


@pytest.fixture(scope="session")
def checked(pytestconfig: pytest.Config) -> SessionCheck:
    """The result of the check."""
    return checked_of(pytestconfig)


def test_law(checked: SessionCheck, law_id: str) -> None:
    """The cache holds this law."""
    show(checked.test(law_id))


def test_agreement(checked: SessionCheck, pytestconfig: pytest.Config) -> None:
    """The cache does what the cache of `--kvcanon-against` does."""
    if pytestconfig.getoption("kvcanon_against") is None:
        pytest.skip("there is no cache to agree with; --kvcanon-against names one")
    show(checked.test(AGREEMENT))


def test_crash(checked: SessionCheck) -> None:
    """The cache raises no exceptions but refusals, and answers in time."""
    show(checked.test(CRASH))


def test_essentials(checked: SessionCheck) -> None:
    """The check exercised every operation and law without which it would say little."""
    show(checked.test(ESSENTIALS))


def test_complete(checked: SessionCheck) -> None:
    """The check played all that its effort asks for; --kvcanon-minutes gives it more time."""
    show(checked.test(COMPLETE))


def show(test: NamedTest) -> None:
    """Pass, fail, skip, or expect a failure, as the check says; the first line says why."""
    words = f"{test.name}: {test.message}\n\n{test.details}".rstrip()
    match test.outcome:
        case NamedOutcome.FAILED | NamedOutcome.CRASHED:
            pytest.fail(words, pytrace=False)
        case NamedOutcome.SKIPPED:
            pytest.skip(test.message)
        case NamedOutcome.NOT_KEPT:
            pytest.xfail(words)
        case NamedOutcome.PASSED:
            pass
