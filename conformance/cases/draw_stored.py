"""Drawn cases with a store below the host tier.

Such a case is one of the walker, with actions on the store among the others. It keeps full data
alone, and has a host tier.
"""

from __future__ import annotations

from random import Random

from attrs import evolve

from kvcanon.conformance.cases.case import PICKS, Action, Case
from kvcanon.conformance.cases.draw import draw_case
from kvcanon.conformance.cases.store_actions import STORES
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.types import DISK, EXTERNAL, Counts, WritePolicy

SHARE, LEAST = 1 / 2, 4
"""The actions on the store: so many for each other action, and the least number."""
SWARM = (0.3, 1, 1, 3)
"""The factors for the weights of actions, one drawn for each action of a case."""
POLICIES = (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK, WritePolicy.WRITE_THROUGH_SELECTIVE)
HOST_SLOTS = range(2, 21)


def draw_stored_case(seed: int, offer: Offer, ranks: int = 1) -> Case:
    """Draw the case of a seed, with a store, on one rank or several."""
    case, random = draw_case(seed, offer), Random(f"store {seed}")
    config = _with_host_tier(random, case.config, offer)
    names = [name for name in STORES if STORES[name].weight]
    weights = [STORES[name].weight * random.choice(SWARM) for name in names]
    actions = list(case.actions)
    for name in random.choices(names, weights, k=LEAST + int(len(actions) * SHARE)):
        picks = [random.randrange(PICKS) for _ in range(3)]
        actions.insert(random.randrange(len(actions) + 1), Action(name, *picks))
    return evolve(
        case,
        config=config,
        actions=tuple(actions),
        unobserved=False,
        ranks=ranks,
        store=random.choice((DISK, EXTERNAL)),
    )


def _with_host_tier(random: Random, config: CacheConfig, offer: Offer) -> CacheConfig:
    """The configuration with full data alone, and a host tier."""
    policies = [each for each in POLICIES if each in offer.write_policies]
    host = config.host_slots if config.host_slots.full else Counts(full=random.choice(HOST_SLOTS))
    policy = random.choice(policies) if policies else WritePolicy.WRITE_THROUGH
    return evolve(
        config,
        window_tokens=None,
        mamba=False,
        write_policy=config.write_policy if config.host_tier else policy,
        host_slots=host,
    )
