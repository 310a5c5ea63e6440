"""Constants: what Hypothesis finds in the source of loaded modules, and what it draws from it.

Hypothesis takes numbers from the code of the folder that one works in, and draws them now and then.
For code under test that is a help. For a suite it means that one seed gives other cases wherever
other modules are loaded: in a worker, under pytest, in another folder.

What readers get wrong: this is about modules, not about randomness. What is drawn from a seed is
the same everywhere once nothing is taken from whatever is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis.internal.conjecture import providers


@contextmanager
def no_local_constants() -> Iterator[None]:
    """Let Hypothesis draw from the seed alone, as versions did that look at no modules."""
    if not hasattr(providers, "_get_local_constants"):
        yield
        return
    empty = type(providers._local_constants)()  # noqa: SLF001  # There is no setting for it.
    fresh = type(providers.CONSTANTS_CACHE)(1024)
    with (
        patch.object(providers, "_get_local_constants", lambda: empty),
        patch.object(providers, "CONSTANTS_CACHE", fresh),
    ):
        yield
