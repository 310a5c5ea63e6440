"""The walker: cases drawn from a seed, as fast as they can be played.

Each case has weights of its own (*swarm*): some actions are left out and some are frequent, so that
a case can be full of what an even mixture hardly ever does twice.

What readers get wrong: a case is a function of its seed and of what the cache offers, and of
nothing else. Which process draws it, and when, makes no difference.
"""

from __future__ import annotations

from random import Random

from kvcanon.conformance.adapters.adapter import Offer
from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.case import DRAIN, PICKS, Action, Case
from kvcanon.conformance.cases.configs import any_config, usual_config
from kvcanon.spec.config import CacheConfig

LENGTHS = (12, 30, 60, 120)
LONG = 400
SWARM = (0, 0.3, 1, 1, 1, 4)
"""What the weight of an action may be multiplied with in a case."""

USUAL_SHARE = 1 / 8
"""The share of cases on the usual configuration, where a cache can show it."""
LONG_SHARE = 1 / 24
"""The share of long cases: some faults need a cache that has seen a lot."""


def draw_case(seed: int, offer: Offer, config: CacheConfig | None = None) -> Case:
    """The case of a seed; of a given configuration, or of any that is offered."""
    random = Random(seed)
    drawn = any_config(random.choice, offer)
    usual = usual_config()
    if random.random() < USUAL_SHARE and is_offered(usual, offer):
        drawn = usual
    weights = [kind.weight * random.choice(SWARM) for kind in ACTIONS.values()]
    if not any(weights):
        weights = [1.0 for _ in ACTIONS]
    length = LONG if random.random() < LONG_SHARE else random.choice(LENGTHS)
    names = random.choices(tuple(ACTIONS), weights, k=length)
    picks = [[random.randrange(PICKS) for _ in range(3)] for _ in names]
    actions = tuple(Action(name, *three) for name, three in zip(names, picks, strict=True))
    return Case(config or drawn, actions, tuple(random.sample(DRAIN, len(DRAIN))))


def is_offered(config: CacheConfig, offer: Offer) -> bool:
    """Whether a cache can be made with a configuration."""
    return (
        config.page_size in offer.page_sizes
        and config.window_tokens in offer.windows_tokens
        and config.mamba in offer.mamba
        and config.bigram in offer.bigram
        and config.write_policy in offer.write_policies
        and config.eviction_policy in offer.eviction_policies
        and config.load_back_threshold_pages in offer.load_back_thresholds_pages
        and config.device_slots.full >= offer.least_slots
    )
