"""ASYNC, continued: ranks, whose copies end at different times.

The ranks of a tensor-parallel model have a cache each, and all caches get the same calls. Nothing
but the ends of copies differs between them, and these count only when they are settled.

What readers get wrong: a copy that failed on one rank may still be running on another. It is
settled as failed on all of them, but not before it has ended on all of them: until then its target
slots are being written somewhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import fields, fields_dict, has

from kvcanon.spec.errors import ReceiptSpent
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds
from kvcanon.spec.operations import Outcome, Receipt, Refused
from kvcanon.spec.snapshot import NodeState, RankView, Snapshot
from kvcanon.spec.views import Step

FIELDS = ("nodes", "recency", "pools", "usage", "swa_of_full", "transfers", "events", "store")
"""The fields of a state that are equal on all ranks, from the tree to what was emitted."""
MOST_WORDS = 120
"""The letters of an answer that are shown."""


@law(
    "ASYNC-11",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "a call on several ranks while a copy has ended on one of them, and not yet, or with "
        "another result, on another",
        lambda step: any(rank.ended != step.ranks[0].ended for rank in step.ranks),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS, Need.HOLDS, Need.RANKS),
    enabled_if=bounds.has_host_tier,
)
def ranks_decide_alike(step: Step) -> Iterator[str]:
    """Ranks that get the same calls and settle the same transfers give the same answers.

    Their states are equal, too: slots, cuts, the ids of nodes and transfers, and the events in
    their order, whenever copies end on each of them. Only the numbers of receipts may differ. A
    call that settles or waits by itself settles what has ended on every rank, as failed if it
    failed on any. A host slot that a store reads or fills comes free in the same call on all ranks,
    once no rank's store uses it. Ranks have processes of their own, each with another seed of
    Python's hashes: no choice depends on `hash` of a string, on the order of a set, or on an
    address.

    Why: the ranks compute one model together, each on the slots that its own cache gave it. A rank
    that finds another prefix or evicts another page computes other pages than the rest: the output
    is garbage, or their collectives wait for each other for ever.

    Seen broken: https://github.com/sgl-project/sglang/issues/28429,
    https://github.com/sgl-project/sglang/pull/33442,
    https://github.com/NVIDIA/TensorRT-LLM/pull/14020
    """
    for number, rank in enumerate(step.ranks[1:], 1):
        yield from _differences(step.ranks[0], rank, f"rank {number}{_apart(step.ranks[0], rank)}")


def _differences(first: RankView, rank: RankView, name: str) -> Iterator[str]:
    """What differs between two ranks after an operation: the answers, or else the states."""
    ours, theirs = _comparable(first.outcome), _comparable(rank.outcome)
    if ours != theirs:
        one, other = _answers(ours, theirs)
        yield f"rank 0 answers {one}, and {name} answers {other}"
        return
    for field in FIELDS:
        if getattr(first.after, field) != getattr(rank.after, field):
            yield f"{field} of {name} differ from rank 0: {_where(first.after, rank.after, field)}"
            return
    if _holds_of(first.after) != _holds_of(rank.after):
        yield f"rank 0 has other open receipts than {name}"


def _apart(first: RankView, rank: RankView) -> str:
    """That a rank has another hash seed than the first; empty if it has not."""
    if rank.hash_seed == first.hash_seed:
        return ""
    return f", whose PYTHONHASHSEED is {rank.hash_seed} and not {first.hash_seed},"


def _comparable(outcome: Outcome) -> object:
    """An outcome without the numbers of receipts."""
    if isinstance(outcome, Receipt):
        return outcome.key
    if isinstance(outcome, Refused):
        error = outcome.error
        return type(error).__name__ if isinstance(error, ReceiptSpent) else str(error)
    return outcome


def _holds_of(state: Snapshot) -> list[str]:
    """The open receipts without their numbers, in some order."""
    return sorted(
        f"{each.node_id} {each.window_from_pages} {each.state_held} {each.transfer_id} "
        f"{each.window_gaps}"
        for each in state.holds
    )


def _where(first: Snapshot, rank: Snapshot, field: str) -> str:
    """The first entry of a field that differs; of two nodes the field that does."""
    one, other = getattr(first, field), getattr(rank, field)
    if isinstance(one, tuple):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    key = next(each for each in {**one, **other} if one.get(each) != other.get(each))
    ours, theirs = one.get(key), other.get(key)
    name = str(key)
    if isinstance(ours, NodeState) and isinstance(theirs, NodeState):
        name = next(
            each for each in fields_dict(NodeState) if getattr(ours, each) != getattr(theirs, each)
        )
        ours, theirs, name = getattr(ours, name), getattr(theirs, name), f"{name} of node {key}"
    return f"{name} is {_short(ours)} on rank 0 and {_short(theirs)} there"


def _answers(ours: object, theirs: object) -> tuple[str, str]:
    """Two answers in words; of long ones of one kind only the fields that differ."""
    kind, is_long = type(ours), max(len(str(ours)), len(str(theirs))) > MOST_WORDS
    if not is_long or type(theirs) is not kind or not has(kind):
        return _short(ours), _short(theirs)
    differ = [
        each.name for each in fields(kind) if getattr(ours, each.name) != getattr(theirs, each.name)
    ]
    one, other = (
        ", ".join(f"{name}={getattr(each, name)}" for name in differ) for each in (ours, theirs)
    )
    return _short(f"{kind.__name__}(..., {one})"), _short(f"{kind.__name__}(..., {other})")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= MOST_WORDS else f"{text[:MOST_WORDS]}..."
