"""The pytest plugin: which cache `pytest --pyargs kvcanon.conformance` judges, and how.

pytest loads this module wherever kvcanon is installed, even in unrelated runs. So it declares
options, and imports the judge only if a cache is given.
"""

from __future__ import annotations

import argparse

import pytest

SUITE = "kvcanon.conformance"
NO_CACHE = f"{SUITE} judges a cache: give --kvcanon-cache package.module:factory, or reference"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options: those of `kvcanon check`, under longer names."""
    group = parser.getgroup("kvcanon", "kvcanon: hold a prefix KV cache to the law")
    group.addoption(
        "--kvcanon-cache",
        metavar="CACHE",
        help="the cache to judge: reference, or package.module:factory",
    )
    group.addoption(
        "--kvcanon-seed", metavar="N", type=_seed, default=0, help="seed of all that is drawn"
    )
    group.addoption(
        "--kvcanon-effort",
        choices=("quick", "standard"),
        default="quick",
        help="how much is played",
    )
    group.addoption(
        "--kvcanon-minutes",
        metavar="N",
        type=_minutes,
        help="the time limit of the check; by default that of its effort",
    )
    group.addoption(
        "--kvcanon-against",
        metavar="CACHE",
        help="a cache that it must exactly agree with, as reference",
    )
    group.addoption(
        "--kvcanon-known",
        metavar="FILE",
        help="laws that are known to be broken, each with a reason and a link, in TOML",
    )
    group.addoption(
        "--kvcanon-black-box",
        action="store_true",
        help="judge by answers, events and bytes alone; do not look at the state",
    )
    group.addoption(
        "--kvcanon-strict",
        action="store_true",
        help="let a law that only SHOULD be kept fail its test",
    )
    group.addoption(
        "--kvcanon-jobs",
        metavar="N",
        type=_jobs,
        help="worker processes of the check; by default one for each core",
    )


def _seed(text: str) -> int:
    """A seed. Raises: argparse.ArgumentTypeError."""
    return _at_least(0, text)


def _jobs(text: str) -> int:
    """A number of processes. Raises: argparse.ArgumentTypeError."""
    return _at_least(1, text)


def _minutes(text: str) -> float:
    """A number of minutes. Raises: argparse.ArgumentTypeError."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes above 0")
    return minutes


def _at_least(least: int, text: str) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least {least}")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Load the cache to judge, and add the hooks that judge it. Raises: UsageError."""
    if config.getoption("kvcanon_cache") is None:
        if any(map(_is_suite, config.args)):
            raise pytest.UsageError(NO_CACHE)
        return
    # Other runs do not wait for these imports.
    from kvcanon.conformance.errors import UsageError  # noqa: PLC0415
    from kvcanon.conformance.protocol.cache_names import load_adapter  # noqa: PLC0415
    from kvcanon.conformance.pytest_plugin import hooks  # noqa: PLC0415

    for option in ("kvcanon_cache", "kvcanon_against"):
        name = config.getoption(option)
        try:
            if name is not None:
                load_adapter(name)
        except UsageError as fault:
            raise pytest.UsageError(f"kvcanon: {' '.join(str(fault).split())}") from fault
    config.pluginmanager.register(hooks, "kvcanon-suite")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what is judged, and the seed."""
    name = config.getoption("kvcanon_cache")
    if name is None:
        return []
    against = config.getoption("kvcanon_against")
    effort, seed = config.getoption("kvcanon_effort"), config.getoption("kvcanon_seed")
    beside = f", against {against}" if against else ""
    return [f"kvcanon: {name}{beside}, effort {effort}, seed {seed}"]


def _is_suite(argument: str) -> bool:
    name = argument.partition("::")[0]
    return name == SUITE or name.startswith(f"{SUITE}.")
