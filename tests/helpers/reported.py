"""Helpers for tests of reports: faulty caches, by name, and handmade results of checks.

Every planted fault is a factory here, by the name of its mutant: `reported:duplicates_leak`. Two
faults at once have both names, with `__and__` between them. So is every lawful variation; it does
not declare what it departs in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache

from attrs import evolve

from kvcanon.conformance.cases.case import Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.check.plan import CheckPlan, CheckStage
from kvcanon.conformance.check.reduce import reduce_case
from kvcanon.conformance.check.result import (
    CacheResult,
    CheckResult,
    Finding,
    StageResult,
    Standing,
    Tally,
)
from kvcanon.conformance.check.trial import Trial, adapter_as
from kvcanon.conformance.judge.judges import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, CacheKind, MakeCache
from kvcanon.lab.mutants.planted import MUTANTS
from kvcanon.lab.variants.override import Overrides, overriding
from kvcanon.lab.variants.variant import VARIATIONS
from kvcanon.reference import ReferenceCache
from kvcanon.spec.config import CANON, CacheConfig, Profile
from kvcanon.spec.errors import OutOfSlots
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.operations import Evicted, Inserted, Matched, Receipt
from kvcanon.spec.types import GPU, Counts, Key, Slots
from serving import ServingCache


class Forgetful(ReferenceCache):
    """Forgets to release a lock."""

    def unlock(self, receipt: Receipt) -> None:
        """Do nothing."""


class Crashing(ReferenceCache):
    """Raises an exception that is not a refusal."""

    def lock(self, key: Key) -> Receipt:
        if len(key):
            raise KeyError("<nothing> & \x00")
        return super().lock(key)


class Generous(ReferenceCache):
    """Evicts one page more than requested."""

    def evict(self, counts: Counts) -> Evicted:
        return super().evict(evolve(counts, full=counts.full + 1))


class Wordy(ReferenceCache):
    """Names the last pool that is short, where the plain cache names the first; both are lawful."""

    def allocate(self, counts: Counts) -> Slots:
        try:
            return super().allocate(counts)
        except OutOfSlots:
            for component, asked in counts:
                free = len(self.free_slots(component, GPU))
                if asked > free:
                    last = OutOfSlots(f"{component} on GPU", asked, free)
            raise last from None


class Silent(ReferenceCache):
    """Never returns from an insert."""

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        while True:
            pass


class Nonsense(ReferenceCache):
    """Returns a malformed answer."""

    def allocate(self, counts: Counts) -> Slots:
        super().allocate(counts)
        return Slots(full=None)  # type: ignore[arg-type]


class Blind:
    """Has only the required operations, and ignores locks."""

    def __init__(self, config: CacheConfig) -> None:
        self._cache = ReferenceCache(config)
        self.config = config
        self.lock, self.allocate, self.free = (
            self._cache.lock,
            self._cache.allocate,
            self._cache.free,
        )

    def match(self, key: Key) -> Matched:
        """Find one page more than there is."""
        found = self._cache.match(key)
        return evolve(found, prefix_pages=min(len(key), found.prefix_pages + 1))

    def unlock(self, receipt: Receipt) -> None:
        """Release a lock."""
        self._cache.unlock(receipt)

    def insert(
        self,
        key: Key,
        start_pages: int,
        slots: Slots,
        *,
        counted_pages: int = 0,
        priority: int = 0,
        state_pages: Sequence[int] = (),
    ) -> Inserted:
        """Hand over the data of a key."""
        return self._cache.insert(
            key, start_pages, slots, counted_pages=counted_pages, priority=priority
        )


class Reusing(ServingCache):
    """Also gives the first page of a running request to the next request."""

    def finish(self, request_id: int) -> None:
        self.running.pop(request_id)


REQUESTS = Adapter("requests", Reusing, kind=CacheKind.REQUEST)

_chances = iter([True])


def once(config: CacheConfig) -> ReferenceCache:
    """Forgets locks the first time, and is sound afterwards."""
    return Forgetful(config) if next(_chances, False) else ReferenceCache(config)


def __getattr__(name: str) -> MakeCache:
    planted = {mutant.name: mutant.plant for mutant in MUTANTS}
    planted |= {name: variation.plant for name, variation in VARIATIONS.items()}
    plants = [planted.get(each) for each in name.split("__and__")]
    known = [plant for plant in plants if plant is not None]
    if len(known) < len(plants):
        raise AttributeError(name)

    def plant_all(patch: Overrides) -> None:
        for plant in known:
            plant(patch)

    return overriding(plant_all)


SERVE = Case(CacheConfig(device_slots=Counts(full=2)), (Action("serve"),), ())
"""One request of two pages."""

TWO_POOLS = CacheConfig(device_slots=Counts(full=2, swa=2), window_tokens=2)
"""A configuration under which a refusal may name one of two pools."""

ASK_TOO_MUCH = Case(TWO_POOLS, (Action("allocate_exactly", 3),), ())
"""An allocation of more slots than there are, in both pools."""


def failure_in(name: str, case: Case, against: str | None = None) -> Finding:
    """What is found in a case."""
    model = None if against is None else adapter_as(against)
    finding, _ = Trial(adapter_as(name), against=model).play(case)
    assert finding is not None
    return evolve(finding, origin="walker, seed 7, case 3", times=12)


@cache
def failure_of(name: str, against: str | None = None) -> Finding:
    """The first failure in the cases, reduced to its smallest case."""
    model = None if against is None else adapter_as(against)
    trial = Trial(adapter_as(name), against=model)
    for seed in range(400):
        case = draw_case(seed, trial.adapter.offer, kind=trial.adapter.kind)
        finding, _ = trial.play(case)
        if finding is not None:
            smallest = reduce_case(finding, trial)
            return failure_in(name, smallest.case if smallest else case, against)
    raise AssertionError(f"nothing was found in {name}")


def result_of(
    name: str,
    *failures: Finding,
    known: str = "",
    profile: Profile = CANON,
    lacks: tuple[str, ...] = (),
    unkept: tuple[Finding, ...] = (),
    missing: tuple[str, ...] = (),
) -> CacheResult:
    """A handmade result of a check; all laws without a failure held."""
    standings = dict.fromkeys(LAWS, Standing.HELD)
    for law in LAWS.values():
        of_stores = Need.STORE in law.needs  # Those of a cache that offers one.
        if {need.value for need in law.needs} & set(lacks) and not of_stores:
            standings[law.law_id] = Standing.NOT_EXERCISED
    for first in failures:
        for failure in first.every:
            standings |= dict.fromkeys(failure.broken, Standing.BROKEN)
    for failure in unkept:
        standings |= dict.fromkeys(failure.broken, Standing.NOT_KEPT)
    if known:
        standings[known] = Standing.KNOWN
    came = [law for law, how in standings.items() if how is not Standing.NOT_EXERCISED]
    served = Counter(match=40, insert=9)
    tallies = {
        CheckStage.VECTORS: Tally(
            cases=82, actions=90, steps=410, laws=Counter(dict.fromkeys(came, 2))
        ),
        CheckStage.WALKER: Tally(
            cases=480,
            actions=9_000,
            steps=31_415,
            laws=Counter(dict.fromkeys(came, 7)),
            served=served,
            refused=Counter(insert=1, reset=3),
        ),
    }
    offer = adapter_as(name).offer
    return CacheResult(name, profile, lacks, tallies, standings, failures, unkept, missing, offer)


def check_of(
    *caches: CacheResult, against: str | None = None, laws: tuple[str, ...] | None = None
) -> CheckResult:
    """A check of these, for some laws or for all."""
    names = tuple(cache.name for cache in caches)
    plan = CheckPlan(names, JudgeConfig(laws=laws), seed=7, against=against)
    stages = (
        StageResult(CheckStage.VECTORS, 82, 410, 0.5),
        StageResult(CheckStage.WALKER, 480, 31_415, 12.25, "time was over"),
    )
    return CheckResult(plan, caches, stages)
