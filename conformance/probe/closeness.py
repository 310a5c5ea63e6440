"""Tells a near-tie from a wrong cache, by the engine's own log-probabilities.

Two runs of one prompt sum the same numbers in another order when another part of it is cached, so
that log-probabilities differ a little, and two tokens that are nearly as likely can change places.
The margin is the most that rounding changes one log-probability. A token may therefore differ only
where, in both runs, the two tokens are at most two margins apart; and where the tokens are equal,
their log-probabilities are at most a margin apart. What differs more was computed from other data.
"""

from __future__ import annotations

from enum import Enum

from attrs import frozen

from kvcanon.conformance.probe.talk import ProbeReply, TokenScore

USUAL_MARGIN = 0.5
"""Logits in bfloat16 between 16 and 32 are 0.125 apart: the margin is four such steps."""


class Closeness(Enum):
    """How two replies to one prompt compare."""

    EQUAL = "equal"
    NEAR_TIE = "near-tie"
    UNKNOWN = "not told apart"
    """They differ, and the log-probabilities that the server gave do not say by how much."""
    DIFFERENT = "different"


@frozen
class ReplyComparison:
    """How two replies compare, and where they differ first."""

    closeness: Closeness
    words: str = ""


def compare_replies(warm: ProbeReply, cold: ProbeReply, margin: float) -> ReplyComparison:
    """Compare a reply with that of the same prompt without a cache, as far as both go."""
    for at, (ours, theirs) in enumerate(zip(warm.tokens, cold.tokens, strict=False)):
        scores = (
            (warm.scores[at], cold.scores[at])
            if at < min(len(warm.scores), len(cold.scores))
            else None
        )
        if ours != theirs:
            return _other_token(at, ours, theirs, scores, margin)
        if scores is None:
            continue
        shift = abs(scores[0].logprob - scores[1].logprob)
        if shift > margin:
            words = (
                f"token {at} is {ours} both times, with log-probability "
                f"{scores[0].logprob:.2f} and {scores[1].logprob:.2f} without a cache"
            )
            return ReplyComparison(Closeness.DIFFERENT, words)
    return ReplyComparison(Closeness.EQUAL)


def _other_token(
    at: int,
    ours: int,
    theirs: int,
    scores: tuple[TokenScore, TokenScore] | None,
    margin: float,
) -> ReplyComparison:
    words = f"token {at} is {ours}, and {theirs} without a cache"
    if scores is None:
        return ReplyComparison(Closeness.UNKNOWN, words)
    warm, cold = scores
    gaps = (warm.logprob - warm.most_of(theirs), cold.logprob - cold.most_of(ours))
    if warm.of(theirs) is None or cold.of(ours) is None:
        shifts = (warm.logprob - cold.most_of(ours), cold.logprob - warm.most_of(theirs))
        missing = "one of the two is not even among the likeliest in the other run"
        if max(gaps) <= 2 * margin and max(shifts) <= margin:
            missing += ", where many are nearly as likely"
            return ReplyComparison(Closeness.UNKNOWN, f"{words}: {missing}")
        return ReplyComparison(Closeness.DIFFERENT, f"{words}: {missing}")
    said = (
        f"{words}; they are {gaps[0]:.2f} and {gaps[1]:.2f} apart in log-probability, of which "
        f"rounding explains {2 * margin:.2f}"
    )
    near = max(gaps) <= 2 * margin
    return ReplyComparison(Closeness.NEAR_TIE if near else Closeness.DIFFERENT, said)
