"""What every test runs under: the Hypothesis profile, and which tests are played.

The variable HYPOTHESIS_PROFILE chooses the profile. `ci`, the default, draws the same examples on
every run and remembers none, so that a change which passes here passes everywhere. `deep` looks for
what `ci` does not reach: new seeds each time, many more examples, and a database, so that what it
finds is tried first on the next run. A test may set its own number of examples, as the random
driver of whole caches does; a number set there holds under both profiles.

Tests that need a browser, another engine's environment or a real server are marked `nightly`. They
are left out but with `--nightly`, so that what is played does not depend on what this machine has;
there they fail where that is missing.

Of the lab's tests a change plays a sample. Those that are marked `unsampled` are played each time:
they are for the product as much, since they show what no test of the product does.

`-n auto` starts three workers for two processors: tests wait a fifth of their time, for processes
that they start and for what must not come.
"""

import os
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

# A deadline would measure the machine: two busy cores make an innocent example slow.
settings.register_profile(
    "ci",
    max_examples=200,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=True,
)
settings.register_profile(
    "deep",
    max_examples=10_000,
    deadline=None,
    print_blob=True,
    # Drawing slowly is the point of a long campaign, not a fault of the test.
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options that choose tests."""
    group = parser.getgroup("kinds", "which tests are played")
    group.addoption("--nightly", action="store_true", help="also those that are marked nightly")
    group.addoption(
        "--sample", type=int, default=1, metavar="N", help="one test of N, the same each time"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers", "nightly: needs a browser, another engine's environment, or minutes"
    )
    config.addinivalue_line("markers", "unsampled: is played whatever --sample says")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """How many workers `-n auto` starts; None where the variable of xdist says it."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return (3 * (os.cpu_count() or 1) + 1) // 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not asked for."""
    share = config.getoption("sample")
    nightly = config.getoption("nightly")
    kept, left = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        marked = item.get_closest_marker("nightly") is not None
        sampled = crc32(item.nodeid.encode()) % share == 0
        sampled |= item.get_closest_marker("unsampled") is not None
        played = (nightly or not marked) and sampled
        (kept if played else left).append(item)
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = kept
