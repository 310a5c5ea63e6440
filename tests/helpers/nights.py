"""Parameters of tests that are played at night alone: of a kind, the first is enough by day."""

from __future__ import annotations

import pytest


def at_night(*values: object) -> list[object]:
    """The parameters; a tuple is one for several arguments."""
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.nightly)
        for each in values
    ]
