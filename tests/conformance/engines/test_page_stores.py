"""The adapters of stores that are databases and servers: what each keeps, and what it does not."""

from __future__ import annotations

import pytest

from kvcanon.conformance.engines.package_version import installed_version
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.stores.check import cases_of, ground_of
from kvcanon.conformance.stores.names import load_store
from kvcanon.conformance.stores.play import play_case

EXPECTED = {
    "lmdb": {"STORE-2", "STORE-4", "STORE-11", "STORE-22", "STORE-27"},
    "redis": {"STORE-18", "STORE-21"},
    "mooncake": set[str](),
}
"""The laws that docs/stores.md says each of them breaks."""


def test_a_missing_package_says_how_to_install_it() -> None:
    """One line with the command."""
    with pytest.raises(UsageError, match="`pip install no-such-store` brings it"):
        installed_version("no-such-store", "No such store", "")


@pytest.mark.nightly
@pytest.mark.parametrize("name", EXPECTED)
def test_store_breaks_what_the_page_says_and_nothing_else(name: str) -> None:
    """The witnesses, and three turns of themes; it takes the package and, for redis, a server.

    Few cases need not show all: which keys Redis evicts is drawn by Redis.
    """
    adapter = load_store(name)
    broken: set[str] = set()
    with ground_of(adapter) as ground:
        cases = list(cases_of(adapter, "quick", 0))
        for _, case in cases[: len(cases) - 124]:
            broken |= {each.law.law_id for each in play_case(adapter, ground, case).broken}
    assert broken <= EXPECTED[name]
    assert bool(broken) == bool(EXPECTED[name])
