"""The walker: draws a case from a seed.

Each case has its own weights (*swarm testing*): some actions are left out and some are frequent, so
that a case can repeat actions that an even mixture rarely repeats.

A case depends only on its seed and on what the cache offers, not on the process that draws it.
"""

from __future__ import annotations

from random import Random

from attrs import evolve

from kvcanon.conformance.cases.actions import ACTIONS
from kvcanon.conformance.cases.added_actions import with_added, with_early_polls
from kvcanon.conformance.cases.case import DRAIN, PICKS, Action, Case
from kvcanon.conformance.cases.giant_cases import GIANTS, draw_giant
from kvcanon.conformance.cases.long_actions import OF_SMALL_POOLS
from kvcanon.conformance.cases.request_client import ACTIONS as BY_REQUESTS
from kvcanon.conformance.cases.state_actions import with_states
from kvcanon.conformance.cases.wait_actions import with_waits
from kvcanon.conformance.cases.wide_actions import WIDE, occupy
from kvcanon.conformance.cases.wrong_calls import ask_of_other_keys
from kvcanon.conformance.protocol.adapter import CacheKind, Offer
from kvcanon.conformance.protocol.drawn_config import Scale, any_config, usual_config, wide_config
from kvcanon.spec.config import CacheConfig

LENGTHS = (10, 25, 50, 90)
LONG = 320
SWARM = (0, 0, 0.3, 1, 1, 6)
"""The factors for the weights of actions, one drawn for each action of a case."""

USUAL_SHARE = 1 / 8
"""The share of small cases with the usual configuration, if the cache offers it."""
LONG_SHARE = 1 / 24
"""The share of long cases among small ones: some faults need many actions."""

LONG_ACTION_SHARE = 1 / 32
"""The share of small cases with one long action among the others."""
OTHER_KEYS_SHARE = 1 / 5
"""The share of small cases with keys of other pages or units, if the cache offers to refuse them.
"""
OTHER_KEYS_CALLS = 5
"""How often such a case asks: once with each operation that takes a key."""

UNOBSERVED_SHARE = 1 / 4
"""The share of cases where the judge looks at nothing between calls."""

WIDE_EVERY, LARGE_AT, VAST_AT = 64, (11, 27, 43), 59
"""In each WIDE_EVERY cases that are judged from outside, these numbers are large or vast."""
GIANT_EVERY = 1_024
GIANT_AT = {35: Scale.DEEP, 163: Scale.LENGTHY, 291: Scale.BUSY}
"""In each GIANT_EVERY cases these are giants, each of which takes as long as several."""
LASTING_EVERY, LASTING_AT = 1 << 14, 8_611
"""One case in LASTING_EVERY lasts: one of a standard check, and none of a quick one."""
WIDE_INSIDE_EVERY, WIDE_AT = 128, 64
"""One case in WIDE_INSIDE_EVERY is wide if states are judged, which takes long."""
WIDE_LENGTHS = (10, 20, 30)
WIDE_WEIGHT = 4
"""The factor for the weights of wide actions in wide cases."""


def scale_of(number: int, *, inside: bool) -> Scale:
    """The scale of the case with a number; `inside` says that its states are judged."""
    if inside:
        return Scale.WIDE if number % WIDE_INSIDE_EVERY == WIDE_AT else Scale.SMALL
    if number % LASTING_EVERY == LASTING_AT:
        return Scale.LASTING
    if number % GIANT_EVERY in GIANT_AT:
        return GIANT_AT[number % GIANT_EVERY]
    at = number % WIDE_EVERY
    return Scale.VAST if at == VAST_AT else Scale.LARGE if at in LARGE_AT else Scale.SMALL


def draw_case(
    seed: int,
    offer: Offer,
    config: CacheConfig | None = None,
    scale: Scale = Scale.SMALL,
    kind: CacheKind = CacheKind.TREE,
    *,
    on_ranks: bool = False,
) -> Case:
    """Draw the case of a seed, with a given configuration or any offered one of a scale.

    For a request cache it has actions that such a cache knows; others do nothing there. For ranks
    it has copies that are polled while some rank waits for them.
    """
    random = Random(seed)
    case = draw_giant(random, offer, config, scale)
    if case is None:
        case = _draw_usual(random, offer, config, Scale.SMALL if scale in GIANTS else scale, kind)
    if on_ranks:
        case = evolve(case, actions=with_early_polls(random, case.actions))
    return case


def _draw_usual(
    random: Random, offer: Offer, config: CacheConfig | None, scale: Scale, kind: CacheKind
) -> Case:
    """Draw a case that is no giant."""
    by_requests = kind is CacheKind.REQUEST
    large = None if scale is Scale.SMALL else wide_config(random.choice, offer, scale)
    drawn = large or any_config(random.choice, offer)
    usual = usual_config()
    if large is None and random.random() < USUAL_SHARE and is_offered(usual, offer):
        drawn = usual
    drawn_from = [name for name in ACTIONS if name in BY_REQUESTS or not by_requests]
    weights = [ACTIONS[name].weight * random.choice(SWARM) for name in drawn_from]
    if not any(weights):
        weights = [1.0 for _ in drawn_from]
    if large is not None:
        weights = [
            weight * (WIDE_WEIGHT if name in WIDE else 1)
            for name, weight in zip(drawn_from, weights, strict=True)
        ]
        length = random.choice(WIDE_LENGTHS)
    else:
        length = LONG if random.random() < LONG_SHARE else random.choice(LENGTHS)
    names = random.choices(drawn_from, weights, k=length)
    picks = [[random.randrange(PICKS) for _ in range(3)] for _ in names]
    actions = tuple(Action(name, *three) for name, three in zip(names, picks, strict=True))
    if large is not None and scale is not Scale.WIDE:
        actions = (Action(occupy.__name__), *actions)
    elif large is None and random.random() < LONG_ACTION_SHARE:
        at = random.randrange(len(actions) + 1)
        actions = (*actions[:at], _draw_long(random), *actions[at:])
    if large is None and offer.other_keys and random.random() < OTHER_KEYS_SHARE:
        actions = _with_other_keys(random, actions)
    drain = tuple(random.sample(DRAIN, len(DRAIN)))
    unobserved = random.random() < UNOBSERVED_SHARE
    if large is None:
        if not by_requests:
            actions = with_waits(random, config or drawn, actions)
        actions = with_added(random, config or drawn, actions, by_requests=by_requests)
        if offer.states_within and (config or drawn).mamba and not by_requests:
            actions = with_states(random, actions)
    return Case(config or drawn, actions, drain, unobserved)


def _with_other_keys(random: Random, actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions with keys of other pages or units among them."""
    at = random.randrange(len(actions) + 1)
    a, b, c = (random.randrange(PICKS) for _ in range(3))
    picks = [(a + more) % PICKS for more in range(OTHER_KEYS_CALLS)]
    asked = [Action(ask_of_other_keys.__name__, each, b, c) for each in picks]
    return (*actions[:at], *asked, *actions[at:])


def _draw_long(random: Random) -> Action:
    """Draw a long action that a small pool allows."""
    return Action(random.choice(OF_SMALL_POOLS), *(random.randrange(PICKS) for _ in range(3)))


def is_offered(config: CacheConfig, offer: Offer) -> bool:
    """Whether an offer has a configuration."""
    return (
        config.page_size in offer.page_sizes
        and config.window_tokens in offer.windows_tokens
        and config.mamba in offer.mamba
        and config.bigram in offer.bigram
        and config.write_policy in offer.write_policies
        and config.eviction_policy in offer.eviction_policies
        and config.events in offer.events
        and config.max_pending_events in offer.event_logs
        and config.load_back_threshold_pages in offer.load_back_thresholds_pages
        and config.device_slots.full >= offer.least_slots
        and max(config.device_slots.full, config.host_slots.full) <= offer.most_slots
    )
