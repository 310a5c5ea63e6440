"""The public API of the judge."""

import pytest

from kvcanon import conformance


def test_public_names_can_be_imported() -> None:
    """Each name of the API is found where the package says, once, and documented there."""
    assert sorted(conformance.__all__) == sorted(conformance._HOMES)
    for name in conformance.__all__:
        assert getattr(conformance, name).__doc__, name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        conformance.nothing  # noqa: B018
