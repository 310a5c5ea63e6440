"""Giant cases: one number is larger than in any other case, and little else happens.

A deep case has more nodes on one path than Python's own calls may nest. A lengthy case has a prompt
of more tokens than 16 bits count. A busy case has more copies in flight than a byte counts. Each
takes as long as several cases, so there is one of each kind among many.

A lasting case has about 100,000 operations, and takes as long as hundreds: no quick check has one.

They are judged from outside, and have no drain, page by page.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from attrs import frozen

from kvcanon.conformance.cases.case import PICKS, Action, Case
from kvcanon.conformance.cases.long_actions import (
    back_up_many,
    live_on,
    load_many,
    nest,
    serve_past_16_bits,
)
from kvcanon.conformance.protocol.adapter import Offer, Pick
from kvcanon.conformance.protocol.drawn_config import (
    Scale,
    busy_config,
    deep_config,
    lasting_config,
    lengthy_config,
)
from kvcanon.spec.config import CacheConfig

NESTS = 9
"""How often the path of a deep case grows."""
LIVED = 108
"""The actions of a lasting case."""


@frozen
class _Giant:
    """How the cases of a scale are drawn."""

    config: Callable[[Pick, Offer], CacheConfig | None]
    """Draws the configuration; returns None if the cache offers none that is large enough."""
    actions: tuple[str, ...]


GIANTS = {
    Scale.DEEP: _Giant(
        deep_config, (*[nest.__name__] * NESTS, "lock", "serve", "branch", "evict", "match")
    ),
    Scale.LENGTHY: _Giant(
        lengthy_config,
        ("serve", serve_past_16_bits.__name__, "branch", "lock", "evict", "match", "take_events"),
    ),
    Scale.BUSY: _Giant(
        busy_config,
        (back_up_many.__name__, "poll", "take_events", load_many.__name__, "poll", "flush"),
    ),
    Scale.LASTING: _Giant(lasting_config, (live_on.__name__,) * LIVED),
}
"""The scales of giant cases."""


def draw_giant(
    random: Random, offer: Offer, config: CacheConfig | None, scale: Scale
) -> Case | None:
    """Draw a giant case; None for another scale, or if the cache offers no such configuration."""
    if scale not in GIANTS:
        return None
    giant = GIANTS[scale]
    drawn = config or giant.config(random.choice, offer)
    if drawn is None:
        return None
    a, b, c = (random.randrange(PICKS) for _ in range(3))
    actions = [
        Action(name, a, b, (c + at) % PICKS if scale is Scale.LASTING else c)
        for at, name in enumerate(giant.actions)
    ]
    return Case(drawn, tuple(actions), ())
