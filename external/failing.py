"""The one error of the external tier: a store that could not answer. All else is a no or a miss."""

from __future__ import annotations


class ExternalFailed(Exception):
    """A server that is not there, does not answer, or says that it cannot; the message says what.

    Whoever calls the store leaves it alone for a while, as `kvcanon.optimized` does.
    """
