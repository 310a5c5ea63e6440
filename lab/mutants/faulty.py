"""Faulty caches: the plain cache with a planted fault, and how it is judged by states."""

from __future__ import annotations

import inspect

from kvcanon.conformance.cases.case import RANKS, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.draw_stored import RANKED_EVERY, draw_stored_case
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.conformance.protocol.drawn_config import Scale
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.lab.variants.override import overriding
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.tier import StoreQueue
from kvcanon.spec.transfer import Agree, TransferEngine


def mutated(mutant: Mutant) -> Adapter:
    """An adapter of faulty caches. The fault is planted anew in each, so they share no state."""

    def make(
        config: CacheConfig,
        engine: TransferEngine | None = None,
        agree: Agree | None = None,
        store: StoreQueue | None = None,
    ) -> Cache:
        return overriding(mutant.plant)(config, engine, agree, store)

    return Adapter(mutant.name, make, Offer(states_within=True, stores=True))


def case_for(mutant: Mutant, number: int, from_seed: int = 0, scale: Scale = Scale.SMALL) -> Case:
    """The case with a number that a mutant is hunted in: with a store, if it needs one."""
    seed, offer = (from_seed << 40) + number, mutated(mutant).offer
    if mutant.stores:
        return draw_stored_case(seed, offer, RANKS if number % RANKED_EVERY == 1 else 1)
    return draw_case(seed, offer, scale=scale)


def what_goes_wrong(mutant: Mutant) -> str:
    """One sentence that says what a cache with the fault does."""
    return " ".join((inspect.getdoc(mutant.plant) or mutant.name).split("\n\n")[0].split())


def judges_by_states(mutant: Mutant) -> JudgeConfig:
    """Every law, on states; or the laws of ranks, on several of them, if it breaks one of those."""
    of_ranks = Need.RANKS in LAWS[mutant.law_id].needs and not mutant.stores
    return JudgeConfig(ranks=RANKS) if of_ranks else JudgeConfig()
