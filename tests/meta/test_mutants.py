"""The laws see: every planted fault is found, by random runs under the guard, in words.

The runs are those of the random driver, from fixed seeds; without a fault all of them hold, which
`test_random_driver` shows at greater length.
"""

from __future__ import annotations

from random import Random

import pytest

from configs import any_config
from driver import Driver
from kvcanon.conformance.guard import LawBroken, guard
from kvcanon.reference import ManualEngine, ReferenceCache
from kvcanon.spec.law import LAWS
from meta.mutants import MUTANTS, Mutant

RUNS_AT_MOST = 400
ACTIONS = 60


def run(seed: int) -> LawBroken | None:
    """Drive one cache; the laws that it broke, if it broke any.

    A fault may also trip over an assertion of the cache's own: then no law spoke.
    """
    random = Random(seed)
    engine = ManualEngine()
    cache = guard(ReferenceCache(any_config(random.choice), engine), seed=seed)
    picks = [tuple(random.randrange(1 << 16) for _ in range(4)) for _ in range(ACTIONS)]
    try:
        Driver(cache, engine).run([(a, b, c, d) for a, b, c, d in picks])
    except LawBroken as broken:
        return broken
    except AssertionError:
        return None
    return None


def laws_that_speak(runs: int, until: str | None = None) -> set[str]:
    """The laws that were broken where runs failed, up to the run in which a given law spoke."""
    spoken: set[str] = set()
    for seed in range(runs):
        broken = run(seed)
        if broken is not None:
            spoken |= {violation.law.law_id for violation in broken.violations}
        if until in spoken:
            break
    return spoken


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.name for each in MUTANTS])
def test_mutant_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with this fault passes every run, or other laws than its own see it."""
    mutant.plant(monkeypatch)
    assert mutant.law_id in laws_that_speak(RUNS_AT_MOST, until=mutant.law_id)


def test_sound_cache_is_not_accused() -> None:
    """The runs that are to find faults find one where none is."""
    assert not laws_that_speak(40)


def test_mutants_name_laws_that_exist() -> None:
    """A mutant is said to break a law that is not in the book."""
    assert {mutant.law_id for mutant in MUTANTS} <= LAWS.keys()
