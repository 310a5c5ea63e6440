"""The tests for a cache: `pytest --pyargs kvcanon.conformance --kvcanon-cache ...`.

These are not the tests of kvcanon. There is a test for each law, and the cases of walker and
machine in parts. A failed test is a finding about the cache; its message has no traceback, which
would only show the judge. A skipped test says why its law was not exercised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kvcanon.conformance.pytest_plugin import NO_CACHE
from kvcanon.conformance.search.campaign import adapter_as
from kvcanon.conformance.search.effort import EFFORTS
from kvcanon.conformance.search.result import Failure
from kvcanon.conformance.suite.checks import (
    UNKEPT,
    WALKS,
    LawNotExercised,
    Suite,
    draw,
    fails,
    in_words,
    law_failures,
    machine_parts,
    require_essentials,
    walk,
)
from kvcanon.spec.law import LAWS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each law and for each part of the cases. Raises: CollectError."""
    if metafunc.config.getoption("kvcanon_cache") is None:
        raise pytest.Collector.CollectError(NO_CACHE)
    effort = EFFORTS[metafunc.config.getoption("kvcanon_effort")]
    if "law_id" in metafunc.fixturenames:
        metafunc.parametrize("law_id", LAWS)
    elif metafunc.function is test_walk:
        metafunc.parametrize("part", range(WALKS[effort.name]))
    elif metafunc.function is test_machine:
        metafunc.parametrize("part", range(machine_parts(effort)))


@pytest.fixture(scope="session")
def suite(pytestconfig: pytest.Config) -> Suite:
    """The cache, and how it is checked."""
    name, against = (
        pytestconfig.getoption("kvcanon_cache"),
        pytestconfig.getoption("kvcanon_against"),
    )
    effort = EFFORTS[pytestconfig.getoption("kvcanon_effort")]
    other = adapter_as(against) if against else None
    seed, strict = (pytestconfig.getoption(f"kvcanon_{each}") for each in ("seed", "strict"))
    return Suite(adapter_as(name), effort, seed, other, strict)


def test_essentials(suite: Suite) -> None:
    """The cache serves the operations that all caches have, and exercises the essential laws."""
    try:
        require_essentials(suite)
    except AssertionError as lacking:
        pytest.fail(str(lacking), pytrace=False)


def test_law(suite: Suite, law_id: str) -> None:
    """The cache holds this law."""
    try:
        require_none(suite, lambda: law_failures(suite, LAWS[law_id]))
    except LawNotExercised as why:
        pytest.skip(str(why))


def test_walk(suite: Suite, part: int) -> None:
    """The cache holds all laws in cases of the walker."""
    require_none(suite, lambda: walk(suite, part).failures)


def test_machine(suite: Suite, part: int) -> None:
    """The cache holds all laws in cases that Hypothesis draws."""
    require_none(suite, lambda: draw(suite, part).failures)


def require_none(suite: Suite, find: Callable[[], Iterable[Failure]]) -> None:
    """Fail with the failures in words; failures of SHOULD laws alone are expected failures."""
    try:
        found = list(find())
    except AssertionError as nothing_judged:
        pytest.fail(str(nothing_judged), pytrace=False)
    if words := [in_words(each) for each in found if fails(suite, each)]:
        pytest.fail("\n\n".join(words), pytrace=False)
    if found:
        pytest.xfail("\n\n".join(f"{UNKEPT}: {in_words(each)}" for each in found))
