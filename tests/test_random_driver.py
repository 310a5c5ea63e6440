"""The plain cache under the guard, driven at random over the matrix of what it can be asked to be.

Components, page sizes, windows, policies, bigrams, pools from a few pages up; copies that come
late, out of order, or fail; every law after every step, and a drain at the end.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from driver import Action, Driver
from kvcanon.conformance.guard import guard
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import Counts, EvictionPolicy, WritePolicy

EXAMPLES = 2_000
"""In CI; the deep profile multiplies them."""

picks = st.integers(0, 1 << 12)
actions: st.SearchStrategy[list[Action]] = st.lists(
    st.tuples(picks, picks, picks, picks), min_size=12, max_size=60
)


@st.composite
def configs(draw: st.DrawFn) -> CacheConfig:
    """Any cache, with pools so small that everything happens."""

    def counts() -> Counts:
        return Counts(draw(st.integers(2, 20)), draw(st.integers(2, 14)), draw(st.integers(1, 6)))

    write_policy = draw(st.sampled_from(WritePolicy))
    return CacheConfig(
        page_size=draw(st.sampled_from((1, 2, 4))),
        window_tokens=draw(st.sampled_from((None, 1, 2, 3, 4, 5, 8))),
        mamba=draw(st.booleans()),
        bigram=draw(st.booleans()),
        device_slots=counts(),
        host_slots=Counts() if write_policy is WritePolicy.NONE else counts(),
        write_policy=write_policy,
        eviction_policy=draw(st.sampled_from(EvictionPolicy)),
        load_back_threshold_pages=draw(st.sampled_from((0, 0, 2))),
    )


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
