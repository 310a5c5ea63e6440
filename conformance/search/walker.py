"""The walker: cases drawn from a seed, as fast as they can be played.

Each case has weights of its own (*swarm*): some actions are left out and some are frequent, so that
a case can be full of what an even mixture hardly ever does twice.

What readers get wrong: a case is a function of its seed and of what the cache offers, and of
nothing else. Which process draws it, and when, makes no difference.
"""

from __future__ import annotations

from random import Random

from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.case import DRAIN, PICKS, Action, Case
from kvcanon.conformance.cases.wide_actions import WIDE, occupy
from kvcanon.conformance.protocol.adapter import Offer
from kvcanon.conformance.protocol.configs import Scale, any_config, usual_config, wide_config
from kvcanon.spec.config import CacheConfig

LENGTHS = (10, 25, 50, 90)
LONG = 320
SWARM = (0, 0, 0.3, 1, 1, 6)
"""What the weight of an action may be multiplied with in a case."""

USUAL_SHARE = 1 / 8
"""The share of small cases on the usual configuration, where a cache can show it."""
LONG_SHARE = 1 / 24
"""The share of small cases that are long: some faults need a cache that has seen a lot."""

LATE_SHARE = 1 / 4
"""The share of cases in which events wait for clients, where they are judged from outside."""

WIDE_EVERY, LARGE_AT, VAST_AT = 64, (11, 27, 43), 59
"""Of so many cases those of these numbers are large or vast, where they are judged from outside."""
WIDE_INSIDE_EVERY, WIDE_AT = 128, 64
"""One case in so many is wide, where the laws are asked of its states: that takes long."""
WIDE_LENGTHS = (10, 20, 30)
WIDE_WEIGHT = 4
"""What the weight of wide actions is multiplied with in wide cases."""


def scale_of(number: int, *, inside: bool) -> Scale:
    """How large the case of a number is, which depends on how it is judged."""
    if inside:
        return Scale.WIDE if number % WIDE_INSIDE_EVERY == WIDE_AT else Scale.SMALL
    at = number % WIDE_EVERY
    return Scale.VAST if at == VAST_AT else Scale.LARGE if at in LARGE_AT else Scale.SMALL


def draw_case(
    seed: int, offer: Offer, config: CacheConfig | None = None, scale: Scale = Scale.SMALL
) -> Case:
    """The case of a seed; of a given configuration, or of any that is offered at a scale."""
    random = Random(seed)
    large = None if scale is Scale.SMALL else wide_config(random.choice, offer, scale)
    drawn = large or any_config(random.choice, offer)
    usual = usual_config()
    if large is None and random.random() < USUAL_SHARE and is_offered(usual, offer):
        drawn = usual
    weights = [kind.weight * random.choice(SWARM) for kind in ACTIONS.values()]
    if not any(weights):
        weights = [1.0 for _ in ACTIONS]
    if large is not None:
        weights = [
            weight * (WIDE_WEIGHT if name in WIDE else 1)
            for name, weight in zip(ACTIONS, weights, strict=True)
        ]
        length = random.choice(WIDE_LENGTHS)
    else:
        length = LONG if random.random() < LONG_SHARE else random.choice(LENGTHS)
    names = random.choices(tuple(ACTIONS), weights, k=length)
    picks = [[random.randrange(PICKS) for _ in range(3)] for _ in names]
    actions = tuple(Action(name, *three) for name, three in zip(names, picks, strict=True))
    if large is not None and scale is not Scale.WIDE:
        actions = (Action(occupy.__name__), *actions)
    drain = tuple(random.sample(DRAIN, len(DRAIN)))
    return Case(config or drawn, actions, drain, random.random() < LATE_SHARE)


def is_offered(config: CacheConfig, offer: Offer) -> bool:
    """Whether a cache can be made with a configuration."""
    return (
        config.page_size in offer.page_sizes
        and config.window_tokens in offer.windows_tokens
        and config.mamba in offer.mamba
        and config.bigram in offer.bigram
        and config.write_policy in offer.write_policies
        and config.eviction_policy in offer.eviction_policies
        and config.events in offer.events
        and config.load_back_threshold_pages in offer.load_back_thresholds_pages
        and config.device_slots.full >= offer.least_slots
        and max(config.device_slots.full, config.host_slots.full) <= offer.most_slots
    )
