"""Premises that two or more laws share; all others stand on their law.

A premise is the situation in which a faulty cache could break a law. A law about evictions says
nothing about a cache that never evicts: a run counts how often each premise was met, and reports a
law whose premise never was as not exercised. Laws are checked in every step all the same, whether
their premise is met or not.
"""

from __future__ import annotations

from kvcanon.spec.events import BlockStored
from kvcanon.spec.law import Premise, Stream, nodes_premise
from kvcanon.spec.laws import situations
from kvcanon.spec.operations import HostInserted, Inserted, LoadDecision
from kvcanon.spec.snapshot import Snapshot
from kvcanon.spec.views import Step

ANY_NODE: Premise[Snapshot] = Premise(
    "a node",
    lambda state: situations.nodes(state) > 0,
)

NODE_BELOW_NODE = nodes_premise("a node below a node", situations.is_below_node)

INSERT: Premise[Step] = Premise(
    "an insert",
    lambda step: isinstance(step.outcome, Inserted),
)

HOST_INSERT: Premise[Step] = Premise(
    "a host insert",
    lambda step: isinstance(step.outcome, HostInserted),
)

COPY_ENDED: Premise[Step] = Premise(
    "the end of a copy",
    lambda step: bool(situations.ended(step)),
)


LOAD_ENQUEUED: Premise[Step] = Premise(
    "a load-back that was enqueued",
    lambda step: situations.decision_of(step) is LoadDecision.ENQUEUED,
)

LOAD_EVICTS: Premise[Step] = Premise(
    "a load-back that evicts",
    lambda step: situations.decision_of(step) is not None and bool(situations.freed(step)),
)

EVICTION_FREES: Premise[Step] = Premise(
    "an eviction that frees something",
    lambda step: situations.evicts_from(step) is not None,
)

STREAM_STORE: Premise[Stream] = Premise(
    "a store",
    lambda stream: any(isinstance(event, BlockStored) for event in stream.events),
)
