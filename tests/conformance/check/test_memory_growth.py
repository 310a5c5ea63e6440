"""Memory in a lasting case: what grows with operations is noted, and breaks no law."""

from __future__ import annotations

import pytest
from attrs import evolve

from kvcanon.conformance.cases.case import Case
from kvcanon.conformance.cases.draw import draw_case, scale_of
from kvcanon.conformance.check.memory_growth import Growth, is_lasting
from kvcanon.conformance.check.plan import QUICK_CASES, STANDARD_CASES
from kvcanon.conformance.check.play import play
from kvcanon.conformance.check.result import Tally
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, Offer
from kvcanon.conformance.protocol.cache_names import REFERENCE
from kvcanon.conformance.protocol.drawn_config import Scale
from kvcanon.conformance.report.text import NOTED_BYTES, memory_of
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.operations import Matched
from kvcanon.spec.transfer import TransferEngine
from kvcanon.spec.types import Key, WritePolicy
from serving import ServingCache

OUTSIDE = JudgeConfig(black_box=True)


class KeepsBooks(ReferenceCache):
    """Notes every match for good."""

    def __init__(self, config: CacheConfig, engine: TransferEngine) -> None:
        super().__init__(config, engine)
        self.notes: list[bytes] = []

    def match(self, key: Key) -> Matched:
        self.notes.append(bytes(4_000))
        return super().match(key)


class CountsIn16Bits(ReferenceCache):
    """Counts its ticks in 16 bits, from a number that is near their end."""

    def __init__(self, config: CacheConfig, engine: TransferEngine) -> None:
        super().__init__(config, engine)
        self._state.clock = 60_000

    def match(self, key: Key) -> Matched:
        self._state.clock &= (1 << 16) - 1
        return super().match(key)


def lasting(actions: int, offer: Offer = Offer(), kind: CacheKind = CacheKind.TREE) -> Case:  # noqa: B008
    """Return the beginning of a lasting case."""
    case = draw_case(0, offer, scale=Scale.LASTING, kind=kind)
    return evolve(case, actions=case.actions[:actions])


def played(adapter: Adapter, case: Case) -> Tally:
    """Play a case without findings, and return its counts."""
    found, tallies = play(case, [adapter], OUTSIDE)
    assert not found, found[0].words
    return tallies[adapter.name]


def test_a_standard_check_has_one_lasting_case() -> None:
    """A quick check has none."""
    lasting = [n for n in range(STANDARD_CASES) if scale_of(n, inside=False) is Scale.LASTING]
    assert len(lasting) == 1
    assert lasting[0] > QUICK_CASES
    assert lasting[0] % 2


def test_books_that_grow_are_noted() -> None:
    """A cache that notes each match holds more for each operation; one that does not is flat."""
    grown = played(Adapter("keeps", KeepsBooks), lasting(10)).growth
    flat = played(REFERENCE, lasting(10)).growth
    assert grown is not None
    assert flat is not None
    assert flat.grown_bytes < 400 * flat.operations  # A short case, in a process of many tests.
    assert grown.grown_bytes > 600 * grown.operations
    assert grown.operations == flat.operations > 7_000


def test_growth_is_seen_after_a_whole_case_alone() -> None:
    """Another case, and one that broke off, have no growth."""
    assert played(REFERENCE, draw_case(0, Offer())).growth is None
    assert not is_lasting(draw_case(0, Offer()))
    _, tallies = play(lasting(10), [Adapter("wraps", CountsIn16Bits)], OUTSIDE)
    assert tallies["wraps"].growth is None


def test_counters_of_16_bits_are_found() -> None:
    """Ticks that begin anew turn the order of victims around."""
    found, _ = play(lasting(16), [Adapter("wraps", CountsIn16Bits)], OUTSIDE)
    assert [each.name for each in found] == ["REC-3"]


@pytest.mark.parametrize(
    "offer", [Offer(write_policies=(WritePolicy.NONE,)), Offer(windows_tokens=(4,), mamba=(True,))]
)
def test_lasting_cases_are_of_any_offer(offer: Offer) -> None:
    """Without a host tier, and with window data and states, a lasting case breaks no law."""
    assert played(REFERENCE, lasting(5, offer)).steps > 3_000


def test_request_caches_live_on() -> None:
    """A request cache has a lasting case, too."""
    adapter = Adapter("serving", ServingCache, kind=CacheKind.REQUEST)
    assert played(adapter, lasting(5, kind=adapter.kind)).steps > 500


@pytest.mark.nightly
def test_a_whole_lasting_case_is_flat() -> None:
    """The plain cache and its judge stay below what is noted over 100,000 operations."""
    tally = played(REFERENCE, lasting(1_000))
    assert tally.steps > 100_000
    assert tally.growth is not None
    assert tally.growth.grown_bytes < NOTED_BYTES * tally.growth.operations


def test_report_says_how_memory_grew() -> None:
    """A little is the judge's; more is said with its size, and that no law limits it."""
    assert memory_of(Growth(100_000, 300_000)) == "flat over 100,000 operations of a lasting case"
    assert memory_of(Growth(100_000, 37_000_000)) == (
        "grew by 37 MB over 100,000 operations of a lasting case, 370 bytes for each; no law "
        "limits it"
    )
