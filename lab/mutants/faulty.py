"""Faulty caches: the plain cache with a planted fault, and how it is judged by states."""

from __future__ import annotations

import inspect

from kvcanon.conformance.cases.case import RANKS
from kvcanon.conformance.judge import JudgeConfig
from kvcanon.conformance.protocol.adapter import Adapter, Offer
from kvcanon.lab.mutants.planted.entry import Mutant
from kvcanon.lab.variants.override import overriding
from kvcanon.spec.cache import Cache
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.law import LAWS, Need
from kvcanon.spec.transfer import Agree, TransferEngine


def mutated(mutant: Mutant) -> Adapter:
    """An adapter of faulty caches. The fault is planted anew in each, so they share no state."""

    def make(
        config: CacheConfig, engine: TransferEngine | None = None, agree: Agree | None = None
    ) -> Cache:
        return overriding(mutant.plant)(config, engine, agree)

    return Adapter(mutant.name, make, Offer(states_within=True))


def what_goes_wrong(mutant: Mutant) -> str:
    """One sentence that says what a cache with the fault does."""
    return " ".join((inspect.getdoc(mutant.plant) or mutant.name).split("\n\n")[0].split())


def judges_by_states(mutant: Mutant) -> JudgeConfig:
    """Every law, on states; or the laws of ranks, on several of them, if it breaks one of those."""
    of_ranks = Need.RANKS in LAWS[mutant.law_id].needs
    return JudgeConfig(ranks=RANKS) if of_ranks else JudgeConfig()
