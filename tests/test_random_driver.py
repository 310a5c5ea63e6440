"""The plain cache under the guard, driven at random over the matrix of what it can be asked to be.

Components, page sizes, windows, policies, bigrams, pools from a few pages up; copies that come
late, out of order, or fail; every law after every step, and a drain at the end.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from configs import any_config
from driver import Action, Driver
from kvcanon.conformance.guard import guard
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig

EXAMPLES = 2_000
"""In CI; the deep profile multiplies them."""

picks = st.integers(0, 1 << 12)
actions: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(picks, picks, picks, picks), min_size=12, max_size=60
)


@st.composite
def configs(draw: st.DrawFn) -> CacheConfig:
    """Any configuration."""
    return any_config(lambda options: draw(st.sampled_from(options)))


@settings(
    max_examples=EXAMPLES * (5 if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else 1),
    suppress_health_check=[HealthCheck.too_slow],
)
@given(config=configs(), actions=actions)
def test_random_run_keeps_every_law(config: CacheConfig, actions: list[Action]) -> None:
    """Some run of calls, copies and failures breaks a law on the plain cache."""
    engine = ManualEngine()
    driver = Driver(guard(ReferenceCache(config, engine)), engine)
    driver.run(actions)
    for refusal in driver.refusals:
        event(type(refusal).__name__)
