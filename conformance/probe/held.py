"""Looks whether requests that were aborted still hold blocks, where a server says what is held."""

from __future__ import annotations

import time

from kvcanon.conformance.probe.findings import ProbeFault, ProbeFinding
from kvcanon.conformance.probe.player import ProbePlayer

LOOKS = 5
"""Times that a pool is looked at; blocks that another client holds may come free between."""
PAUSE_SECONDS = 0.2


def held_after_aborts(player: ProbePlayer, before: float | None) -> ProbeFinding | None:
    """Compare the share of the pool that is held with that before the aborts.

    Raises: ServerProblem.
    """
    if before is None:
        return None
    for look in range(LOOKS):
        held = player.api.held_share()
        if held is None or held <= before + 1e-9:
            return None
        if look < LOOKS - 1:
            time.sleep(PAUSE_SECONDS)
    words = (
        f"aborts: {held:.2%} of the pool is held when no request runs, and {before:.2%} was "
        "before some requests were aborted"
    )
    return ProbeFinding(ProbeFault.HELD, words, "aborts")
