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

RANKED_EVERY = 4
"""One case with a store in RANKED_EVERY has several ranks, each over a store of its own."""
LENGTHS = (10, 25, 50)
"""How many actions a case has besides those on the store."""
PER_STORED = 4
"""How many other actions there are for each on the store that is drawn after one of each kind."""
OPENINGS = (*(("round_trip",),) * 3, ("lose_stored", "damage_stored", "round_trip"))
"""A case begins with one of these, as long as the pools have room; what an empty store cannot lose
is no fault."""
SWARM = (0.3, 1, 1, 3)
"""The factors for the weights of actions, one drawn for each action of a case."""
POLICIES = (WritePolicy.WRITE_THROUGH, WritePolicy.WRITE_BACK, WritePolicy.WRITE_THROUGH_SELECTIVE)
HOST_SLOTS = (3, 8, 12, 16, 20, 24)
EVENTS = (True, True, False)
"""Whether events are enabled, if the cache offers both."""
DRAWN_LOG_SHARE = 1 / 2
"""In this share of cases few events may wait, perhaps; in the others as many as the cache offers.
"""


def draw_stored_case(seed: int, offer: Offer, ranks: int = 1) -> Case:
    """Draw the case of a seed, with a store, on one rank or several."""
    case, random = draw_case(seed, offer), Random(f"store {seed}")
    actions = list(case.actions[: random.choice(LENGTHS)])
    kinds = [kind for kind in STORES.values() if kind.weight]
    weights = [kind.weight * random.choice(SWARM) for kind in kinds]
    more = random.choices(kinds, weights, k=len(actions) // PER_STORED)
    for kind in (*kinds, *more):
        actions.insert(random.randrange(len(actions) + 1), _drawn(random, kind.name))
    opening = [_drawn(random, name) for name in random.choice(OPENINGS)]
    return evolve(
        case,
        config=_config_for(random, case.config, offer),
        actions=(*opening, *actions),
        unobserved=False,
        ranks=ranks,
        store=random.choice((DISK, EXTERNAL)),
    )


def _drawn(random: Random, name: str) -> Action:
    return Action(name, *[random.randrange(PICKS) for _ in range(3)])


def _config_for(random: Random, config: CacheConfig, offer: Offer) -> CacheConfig:
    """The configuration with full data alone, and a host tier."""
    policies = [each for each in POLICIES if each in offer.write_policies]
    policy = random.choice(policies) if policies else WritePolicy.WRITE_THROUGH
    logs = sorted(set(offer.event_logs))
    log = random.choice(logs) if random.random() < DRAWN_LOG_SHARE else logs[-1]
    events = random.choice([each for each in EVENTS if each in offer.events])
    return evolve(
        config,
        window_tokens=None,
        mamba=False,
        write_policy=policy,
        host_slots=Counts(full=random.choice(HOST_SLOTS)),
        events=events,
        max_pending_events=log,
    )
