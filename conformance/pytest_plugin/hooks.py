"""The hooks of a pytest session that judges a cache; the plugin registers them.

The check runs once, before the first test, if any test of the suite was selected. With pytest-xdist
it runs in the controller while the workers wait; they read its result from a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from shutil import rmtree
from tempfile import mkdtemp
from typing import Protocol

import pytest

from kvcanon.conformance.check.plan import CheckPlan, effort_named
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.pytest_plugin.session_check import (
    SessionCheck,
    from_json,
    session_check,
    to_json,
)

MODULE = "test_conformance.py"
"""The file of the suite's tests. pytest chooses from where its path is given."""
WORKER_INPUT = "kvcanon_result"
"""The key under which a worker gets the path of the result."""

CHECKED = pytest.StashKey[SessionCheck]()
FOLDER = pytest.StashKey[Path]()
"""The folder of the result for workers, in the controller."""


class WorkerNode(Protocol):
    """What a controller of pytest-xdist knows of a worker."""

    workerinput: dict[str, str]
    config: pytest.Config


def plan_of(config: pytest.Config) -> CheckPlan:
    """The check of a session, without the laws that are known to be broken. Raises: UsageError."""
    return CheckPlan(
        [config.getoption("kvcanon_cache")],
        JudgeConfig(config.getoption("kvcanon_black_box")),
        effort_named(config.getoption("kvcanon_effort"), config.getoption("kvcanon_minutes")),
        config.getoption("kvcanon_seed"),
        config.getoption("kvcanon_against"),
        strict=config.getoption("kvcanon_strict"),
        jobs=config.getoption("kvcanon_jobs"),
    )


def checked_of(config: pytest.Config) -> SessionCheck:
    """The result of the session's check, in any of its processes. Raises: OSError."""
    if CHECKED not in config.stash:
        folder = _worker_input(config)[WORKER_INPUT]
        config.stash[CHECKED] = from_json((Path(folder) / "result.json").read_text("utf-8"))
    return config.stash[CHECKED]


def _worker_input(config: pytest.Config) -> dict[str, str]:
    """What the controller gave to this worker; empty if this process is no worker."""
    given: dict[str, str] = getattr(config, "workerinput", {})
    return given


def _check_once(config: pytest.Config, node_ids: Iterable[str]) -> None:
    """Check the cache, if there are tests of the suite. Raises: pytest.UsageError."""
    if CHECKED in config.stash or not any(map(_is_of_suite, node_ids)):
        return
    _say(config, "kvcanon: the check runs; the tests show its result")
    try:
        known = config.getoption("kvcanon_known")
        file = None if known is None else config.invocation_params.dir / known
        checked = session_check(plan_of(config), file)
    except (UsageError, OSError) as fault:
        raise pytest.UsageError(f"kvcanon: {' '.join(str(fault).split())}") from fault
    config.stash[CHECKED] = checked
    if FOLDER in config.stash:
        (config.stash[FOLDER] / "result.json").write_text(to_json(checked), "utf-8")


def _is_of_suite(node_id: str) -> bool:
    return PurePosixPath(node_id.partition("::")[0]).name == MODULE


def _say(config: pytest.Config, line: str) -> None:
    """Print a line, unless pytest is quiet: a standard check takes minutes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and config.get_verbosity() >= 0:
        reporter.ensure_newline()
        reporter.write_line(line)
        reporter.flush()


# One process.


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Check before the first test. In a controller no items are collected."""
    if not session.config.getoption("collectonly") and not _worker_input(session.config):
        _check_once(session.config, (item.nodeid for item in session.items))


# Workers of pytest-xdist.


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerNode) -> None:
    """Pass the place of the result to a worker."""
    stash = node.config.stash
    if FOLDER not in stash:
        stash[FOLDER] = Path(mkdtemp(prefix="kvcanon-"))
    node.workerinput[WORKER_INPUT] = str(stash[FOLDER])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: WorkerNode, ids: list[str]) -> None:
    """Check when the first worker knows its tests; none of them runs before this returns."""
    _check_once(node.config, ids)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the result for workers."""
    if FOLDER in config.stash:
        rmtree(config.stash[FOLDER], ignore_errors=True)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print the verdict, and each broken law with its sentence."""
    if CHECKED not in config.stash or _worker_input(config):
        return
    checked = config.stash[CHECKED]
    terminalreporter.section("kvcanon")
    for test in checked.tests:
        if test.fails:
            terminalreporter.write_line(f"{test.name}: {test.message}")
    if checked.stale:
        terminalreporter.write_line(f"Warning: {checked.stale}")
    terminalreporter.write_line(checked.verdict)
