"""What was computed before a reset is not found after it, as an engine with new weights needs."""

from __future__ import annotations

from contextlib import suppress

import pytest

from kvcanon.conformance.errors import ViolationError
from kvcanon.conformance.judge.judges import JudgeConfig, make_judged
from kvcanon.conformance.protocol.adapter import Adapter, MakeCache
from kvcanon.optimized import OptimizedCache
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.errors import CacheBusy
from kvcanon.spec.law import LAWS, LawClass
from kvcanon.spec.operations import HostPayload
from kvcanon.spec.types import Counts, Namespace, make_key
from stale_resets import KeepsOtherNamespaces, KeepsTheHost, ResetsUnderCopies

CONFIG = CacheConfig(
    device_slots=Counts(8), host_slots=Counts(8), write_policy="write_through", events=True
)
TENANTS = make_key([1], 1, Namespace(lora="a"))
"""A key in another namespace, which is inserted on the device and copied to the host."""
FETCHED = make_key([2], 1)
"""A key that is on the host alone."""
IN_FLIGHT = make_key([3], 1)
"""A key whose backup is in flight at the first reset."""


def reset_and_match(make: MakeCache, *, black_box: bool) -> None:
    """Reset while a copy is in flight and after it, and look for what was cached before."""
    _, judge = make_judged(Adapter("mine", make), CONFIG, JudgeConfig(black_box=black_box))
    judge.insert(TENANTS, 0, judge.allocate(Counts(1)))
    judge.insert_host(FETCHED, 0, HostPayload((bytes(CONFIG.slot_bytes),)))
    judge.flush()
    judge.insert(IN_FLIGHT, 0, judge.allocate(Counts(1)))
    with suppress(CacheBusy):
        judge.reset()
    judge.flush()
    judge.reset()
    for key in (TENANTS, FETCHED, IN_FLIGHT):
        assert judge.match(key).prefix_pages == 0


@pytest.mark.parametrize("black_box", [False, True])
@pytest.mark.parametrize("faulty", [KeepsOtherNamespaces, KeepsTheHost, ResetsUnderCopies])
def test_what_outlives_a_reset_is_found(faulty: MakeCache, *, black_box: bool) -> None:
    """A fault is found at once by states, and from outside at the latest by a match."""
    with pytest.raises(ViolationError) as found:
        reset_and_match(faulty, black_box=black_box)
    broken = {each.law.law_id for each in found.value.violations}
    assert black_box or "ALLOC-7" in broken


@pytest.mark.parametrize("black_box", [False, True])
@pytest.mark.parametrize("make", [ReferenceCache, OptimizedCache])
def test_nothing_outlives_a_reset(make: MakeCache, *, black_box: bool) -> None:
    """A sound cache refuses to reset while a copy is in flight, and then finds nothing."""
    reset_and_match(make, black_box=black_box)


def test_stale_hits_are_unsound() -> None:
    """Who finds KV of other weights replies wrongly: the law of resets is one of soundness."""
    assert LAWS["ALLOC-7"].law_class is LawClass.SOUND
