"""Keeps Hypothesis from drawing constants of the loaded modules.

Hypothesis collects numbers from the source of loaded local modules, and draws them now and then.
Then one seed gives different cases wherever other modules are loaded: in a worker, under pytest, or
in another folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis.internal.conjecture import providers


@contextmanager
def no_local_constants() -> Iterator[None]:
    """Let Hypothesis draw from the seed alone."""
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
