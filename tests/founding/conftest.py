"""The cache that a rule of the founding reports is tested on."""

import pytest

from scenes import BOTH_CACHES


@pytest.fixture(params=BOTH_CACHES)
def name(request: pytest.FixtureRequest) -> str:
    """Each of our caches in turn, where a test does not name its own."""
    chosen: str = request.param
    return chosen
