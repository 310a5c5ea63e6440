"""The rounds that a probe plays, in order, and why some cannot be played to an engine."""

from __future__ import annotations

from kvcanon.conformance.probe.filling_rounds import (
    crowd_tokens,
    play_crowded,
    play_order,
    play_pressure,
    play_together,
    play_window_order,
)
from kvcanon.conformance.probe.light_rounds import (
    play_aborts,
    play_changed,
    play_chats,
    play_endings,
    play_forks,
    play_mixed,
    play_outgrow,
    play_repeats,
    play_spaces,
)
from kvcanon.conformance.probe.prompt_sender import ProbeRound, Unfit
from kvcanon.conformance.probe.talk import EngineFacts


def no_salts(facts: EngineFacts) -> Unfit | None:
    """Why the round of namespaces cannot be played."""
    return None if facts.salts else Unfit("the server takes no cache_salt")


def no_pool(facts: EngineFacts) -> Unfit | None:
    """Why a pool cannot be filled."""
    if facts.pool_tokens:
        return None
    return Unfit("the size of the pool is not known", "give --pool-tokens")


def no_crowd(facts: EngineFacts) -> Unfit | None:
    """Why three requests cannot be larger than the pool."""
    if (facts.context_tokens or 1 << 40) < crowd_tokens(facts) + 64:
        return Unfit("prompts that fill half of the pool are longer than this server takes")
    return no_pool(facts)


def no_order(facts: EngineFacts) -> Unfit | None:
    """Why the order of prompts cannot be judged; it was said before where the policy is another."""
    if facts.window != 0 or facts.policy != "lru" or facts.has_host is None:
        return Unfit()
    return no_pool(facts)


def no_window(facts: EngineFacts) -> Unfit | None:
    """Why the order of windows cannot be judged."""
    if facts.window == 0:
        return Unfit()
    if not facts.window:
        return Unfit("the size of the window is not known", "give --window, 0 if no layer has one")
    if not facts.pool_tokens or not facts.window_pool_tokens:
        return Unfit("the sizes of the pools are not known")
    if 6 * facts.window > facts.pool_tokens or 2 * facts.window_pool_tokens > 3 * facts.pool_tokens:
        return Unfit("the pools are too small, or windows fill no pool of their own")
    return None


ROUNDS = (
    ProbeRound("repeats", "the same prompt twice", play_repeats),
    ProbeRound("chats", "prompts that extend replies", play_chats),
    ProbeRound("endings", "replies that end early, and go on", play_endings),
    ProbeRound("forks", "prompts that leave others at pages and within pages", play_forks),
    ProbeRound("mixed", "pages of two prompts behind other pages", play_mixed),
    ProbeRound("outgrow", "prompts longer than a window or a chunk", play_outgrow),
    ProbeRound(
        "namespaces",
        "one prompt under several salts, keys and adapters",
        play_spaces,
        unfit=no_salts,
    ),
    ProbeRound("aborts", "clients that leave", play_aborts),
    ProbeRound(
        "together",
        "long replies, while others press what they share out of the pool",
        play_together,
        pools=1.3,
        at_once=3,
        unfit=no_pool,
    ),
    ProbeRound(
        "crowded",
        "requests that wait for room, and that are taken back",
        play_crowded,
        pools=6,
        at_once=3,
        unfit=no_crowd,
    ),
    ProbeRound(
        "window order",
        "which windows leave first",
        play_window_order,
        pools=4,
        unfit=no_window,
    ),
    ProbeRound(
        "order",
        "which prompt leaves first",
        play_order,
        pools=1.2,
        unfit=no_order,
    ),
    ProbeRound(
        "pressure",
        "a pool that is filled, and prompts that come back",
        play_pressure,
        pools=1.7,
        unfit=no_pool,
    ),
    ProbeRound(
        "changed", "prompts before and after a change of weights", play_changed, changes=True
    ),
)
"""The rounds, in the order in which they are played."""
