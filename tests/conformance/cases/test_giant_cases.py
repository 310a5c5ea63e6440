"""Giant cases find faults of large numbers that no other case reaches."""

from __future__ import annotations

import pytest

from kvcanon.conformance.cases.case import PICKS
from kvcanon.conformance.cases.draw import draw_case, scale_of
from kvcanon.conformance.cases.giant_cases import GIANTS
from kvcanon.conformance.cases.long_actions import lengthy_prompts
from kvcanon.conformance.check.plan import QUICK_CASES
from kvcanon.conformance.check.play import play
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.protocol.drawn_config import Scale
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.transfer import Completion, TransferEngine, TransferOrder
from kvcanon.spec.types import FULL, Key, WritePolicy

OUTSIDE = JudgeConfig(black_box=True)


class CountsIn16Bits(ReferenceCache):
    """Counts the tokens of a prefix in 16 bits."""

    def match(self, key: Key) -> Matched:
        tokens = super().match(key).prefix_pages * self.config.page_size
        return super().match(key.prefix(tokens % (1 << 16) // self.config.page_size))


class ForgetsDeepNodes(ReferenceCache):
    """Finds no more than 1,200 nodes on a path."""

    def match(self, key: Key) -> Matched:
        return super().match(key.prefix(min(len(key), 1_200)))


class FewInFlight:
    """An engine that drops a copy when a byte of them is in flight."""

    def __init__(self, engine: TransferEngine) -> None:
        self.engine, self.flying = engine, 0

    def submit(self, order: TransferOrder) -> None:
        self.flying += 1
        if self.flying != 256:
            self.engine.submit(order)

    def poll(self) -> tuple[Completion, ...]:
        completed = self.engine.poll()
        self.flying -= len(completed)
        return completed

    def wait(self, transfer_id: int) -> None:
        self.engine.wait(transfer_id)


def few_in_flight(config: CacheConfig, engine: TransferEngine) -> ReferenceCache:
    """Make a cache with a table of 256 copies."""
    return ReferenceCache(config, FewInFlight(engine))


FAULTS = {
    Scale.DEEP: ForgetsDeepNodes,
    Scale.LENGTHY: CountsIn16Bits,
    Scale.BUSY: few_in_flight,
}

LONGEST = pytest.param(Scale.DEEP, marks=pytest.mark.nightly)
"""A deep case takes seconds."""


def test_each_kind_is_played_once_at_quick_effort() -> None:
    """Of each kind a quick check has one, and 1,024 cases have no more."""
    scales = [scale_of(number, inside=number % 2 == 0) for number in range(1_024)]
    assert [scales.count(scale) for scale in FAULTS] == [1, 1, 1]
    assert all(scale in scales[:QUICK_CASES] for scale in FAULTS)
    assert set(GIANTS) == {*FAULTS, Scale.LASTING}


@pytest.mark.parametrize("scale", [LONGEST, Scale.LENGTHY, Scale.BUSY])
def test_a_lawful_cache_has_no_findings(scale: Scale) -> None:
    """The plain cache breaks no law, and is played to the end."""
    found, tallies = play(draw_case(0, Offer(), scale=scale), [REFERENCE], OUTSIDE)
    assert not found, found[0].words
    assert not tallies[REFERENCE.name].too_slow


@pytest.mark.parametrize("scale", [LONGEST, Scale.LENGTHY, Scale.BUSY])
def test_a_fault_of_large_numbers_is_found(scale: Scale) -> None:
    """Each kind finds its own fault, which small cases do not."""
    adapter = Adapter("faulty", FAULTS[scale])
    assert play(draw_case(3, Offer(), scale=scale), [adapter], OUTSIDE)[0]
    assert not any(play(draw_case(seed, Offer()), [adapter], OUTSIDE)[0] for seed in range(4))


def test_deep_case_has_1_500_nodes_of_full_data_alone() -> None:
    """A deep case is on a plain configuration."""
    config = draw_case(35, Offer(), scale=Scale.DEEP).config
    assert config.device_slots.full > 1_500
    assert config.components == (FULL,)
    assert not config.host_tier


def test_lengthy_prompts_are_around_65_536_tokens() -> None:
    """One prompt has fewer tokens than 16 bits count, and one has more."""
    for page_size in (16, 64):
        for bigram in (False, True):
            config = CacheConfig(page_size=page_size, bigram=bigram)
            first, longer, again = lengthy_prompts(config, PICKS - 1)
            assert len(first) * page_size < 1 << 16 <= len(longer) * page_size
            assert longer == again
            assert longer.prefix(len(first)) == first


@pytest.mark.parametrize(
    ("scale", "offer"),
    [
        (Scale.LENGTHY, Offer(page_sizes=(1, 2))),
        (Scale.BUSY, Offer(write_policies=(WritePolicy.NONE,))),
        (Scale.BUSY, Offer(most_slots=300)),
    ],
)
def test_what_is_not_offered_is_a_small_case(scale: Scale, offer: Offer) -> None:
    """Where a cache offers no such configuration, its case is a small one."""
    assert draw_case(7, offer, scale=scale) == draw_case(7, offer)
