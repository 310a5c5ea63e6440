"""The tests of somebody's cache: `pytest --pyargs kvcanon.conformance --kvcanon-cache ...`.

One test a law, and the campaigns in parts. What is wrong is said in words, without a traceback: its
lines would all be of the judge.

What readers get wrong: these are not the tests of kvcanon. A test that fails here is a finding
about the cache, and one that is skipped says why the law was not exercised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kvcanon.conformance.plugin import NO_CACHE
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
    law_failures,
    machine_parts,
    require_essentials,
    told,
    walk,
)
from kvcanon.spec.law import LAWS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each law, and one of each part of a campaign. Raises: CollectError."""
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
    """The cache, and how much is asked of it."""
    name, against = (
        pytestconfig.getoption("kvcanon_cache"),
        pytestconfig.getoption("kvcanon_against"),
    )
    effort = EFFORTS[pytestconfig.getoption("kvcanon_effort")]
    other = adapter_as(against) if against else None
    seed, strict = (pytestconfig.getoption(f"kvcanon_{each}") for each in ("seed", "strict"))
    return Suite(adapter_as(name), effort, seed, other, strict)


def test_essentials(suite: Suite) -> None:
    """An operation that every cache has was never served, or the law of hits never exercised."""
    try:
        require_essentials(suite)
    except AssertionError as lacking:
        pytest.fail(str(lacking), pytrace=False)


def test_law(suite: Suite, law_id: str) -> None:
    """The cache breaks this law, or no law was exercised at all."""
    try:
        fail_with(suite, lambda: law_failures(suite, LAWS[law_id]))
    except LawNotExercised as why:
        pytest.skip(str(why))


def test_walk(suite: Suite, part: int) -> None:
    """The cache breaks a law in a case of the walker."""
    fail_with(suite, lambda: walk(suite, part).failures)


def test_machine(suite: Suite, part: int) -> None:
    """The cache breaks a law in a case that Hypothesis draws."""
    fail_with(suite, lambda: draw(suite, part).failures)


def fail_with(suite: Suite, ask: Callable[[], Iterable[Failure]]) -> None:
    """Fail with what is found, in words; what only should be kept is expected to fail, and told."""
    try:
        found = list(ask())
    except AssertionError as nothing_judged:
        pytest.fail(str(nothing_judged), pytrace=False)
    if words := [told(each) for each in found if fails(suite, each)]:
        pytest.fail("\n\n".join(words), pytrace=False)
    if found:
        pytest.xfail("\n\n".join(f"{UNKEPT}: {told(each)}" for each in found))
