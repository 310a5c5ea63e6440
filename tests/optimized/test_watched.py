"""The cache that `make native-tsan` judges: a second thread reads its statistics."""

from __future__ import annotations

from itertools import count
from time import monotonic

from fast.watched import WATCH, WatchedCache
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.play import play
from kvcanon.conformance.protocol.adapter import Adapter
from kvcanon.conformance.protocol.cache_names import REFERENCE

DEADLINE_S = 60


def test_a_cache_whose_statistics_are_read_keeps_the_laws() -> None:
    """The second thread reads while cases are played, and changes no answer."""
    adapter = Adapter("watched", WatchedCache)
    began, before = monotonic(), WATCH.reads
    for seed in count():
        findings, _ = play(draw_case(seed, adapter.offer), [adapter], against=REFERENCE)
        assert findings == [], (seed, findings[0].words)
        if WATCH.reads >= before + 100:
            return
        assert monotonic() < began + DEADLINE_S, "the second thread does not read"
