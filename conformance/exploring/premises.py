"""Premises: for each law, the situation in which it says something.

A law about evictions holds of a cache that never evicts. So an exploration notes, of each law,
whether what it speaks of came up: a step or a state in which a faulty cache could have broken it.

What readers get wrong: a law whose premise was not reached was asked, and was not broken, and says
nothing all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kvcanon.conformance.exploring import situations as now
from kvcanon.spec.errors import (
    CacheBusy,
    OutOfSlots,
    PrefixNotCached,
    ReceiptSpent,
    SlotNotHeld,
    TransferPending,
)
from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.law import Stream
from kvcanon.spec.laws.comparing import is_duplicate, writes_back
from kvcanon.spec.operations import (
    Allocate,
    Evict,
    EvictHost,
    Flush,
    Free,
    HostInserted,
    Insert,
    Inserted,
    LoadDecision,
    Lock,
    Match,
    Matched,
    Receipt,
    Reset,
    TakeEvents,
    Taken,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Slots
from kvcanon.spec.views import Step

OfState: TypeAlias = tuple[str, Callable[[Snapshot], bool]]
OfStep: TypeAlias = tuple[str, Callable[[Step], bool]]
OfStream: TypeAlias = tuple[str, Callable[[Stream], bool]]

_ANY_NODE: OfState = ("a node", lambda state: now.nodes(state) > 0)
_BELOW: OfState = ("a node below a node", lambda state: any(now.pairs(state)))

STATES: Mapping[str, OfState] = {
    "TREE-1": _ANY_NODE,
    "TREE-2": _BELOW,
    "TREE-3": _BELOW,
    "TREE-4": (
        "two children of one parent",
        lambda state: any(len(node.child_ids) > 1 for node in state.nodes.values()),
    ),
    "RES-1": _ANY_NODE,
    "RES-2": (
        "window data, or a recurrent state",
        lambda state: any(
            node[component].anywhere for node in state.below_root() for component in now.AUXILIARY
        ),
    ),
    "RES-3": (
        "full data on the device, below another node",
        lambda state: any(node[FULL].device is not None for _, node in now.pairs(state)),
    ),
    "RES-4": (
        "a host copy below another node, where parents need one",
        lambda state: (
            state.config.backed_parents
            and any(node[FULL].host is not None for _, node in now.pairs(state))
        ),
    ),
    "RES-6": _ANY_NODE,
    "REC-4": (
        "two leaves on one medium",
        lambda state: any(
            sum(is_leaf(state, node) for node in state.below_root()) > 1
            for is_leaf in (is_device_leaf, is_host_leaf)
        ),
    ),
    "LOCK-1": ("a locked node", lambda state: now.locked(state, FULL)),
    "LOCK-2": (
        "locked window data, or a locked state",
        lambda state: now.locked(state, SWA) or now.locked(state, MAMBA),
    ),
    "LOCK-3": ("an open receipt", lambda state: bool(state.holds)),
    "LOCK-5": (
        "a locked node below another",
        lambda state: any(node[FULL].lock_refs for _, node in now.pairs(state)),
    ),
    "LOCK-7": (
        "a tree at rest",
        lambda state: now.nodes(state) > 0 and not state.holds and not state.transfers,
    ),
    "ALLOC-1": _ANY_NODE,
    "ALLOC-2": (
        "slots that are evictable beside slots that are not",
        lambda state: any(usage.evictable and usage.protected for usage in state.usage.values()),
    ),
    "ALLOC-4": (
        "a page with window data on the device",
        lambda state: any(node[SWA].device is not None for node in state.below_root()),
    ),
    "ALLOC-8": _ANY_NODE,
    "ALLOC-9": ("a mapping that leads somewhere", lambda state: bool(state.swa_of_full)),
    "ASYNC-3": (
        "a copy in flight",
        lambda state: any(not each.cancelled for each in state.transfers),
    ),
    "DATA-2": ("a copy in flight, cancelled or not", lambda state: bool(state.transfers)),
    "NS-1": (
        "two nodes with names",
        lambda state: sum(node.hashes is not None for node in state.below_root()) > 1,
    ),
    "NS-2": (
        "two namespaces",
        lambda state: len({node.namespace for node in state.below_root()}) > 1,
    ),
}
"""Of each law of a state."""

_INSERT: OfStep = ("an insert", lambda step: isinstance(step.outcome, Inserted))
_FETCHED: OfStep = ("a host insert", lambda step: isinstance(step.outcome, HostInserted))
_SETTLED: OfStep = ("the end of a copy", lambda step: bool(now.ended(step)))
_LOAD: OfStep = ("a load-back", lambda step: now.decision_of(step) is not None)
_LOADING: OfStep = (
    "a load-back that was enqueued",
    lambda step: now.decision_of(step) is LoadDecision.ENQUEUED,
)
_LOAD_EVICTS: OfStep = (
    "a load-back that evicts",
    lambda step: now.decision_of(step) is not None and bool(now.freed(step)),
)
_VICTIM: OfStep = (
    "an eviction that frees something",
    lambda step: now.evicts_from(step) is not None,
)

STEPS: Mapping[str, OfStep] = {
    "TREE-5": ("a call on a key while there are nodes off its path", now.others_before),
    "TREE-6": (
        "bookkeeping while there is a tree",
        lambda step: (
            isinstance(step.operation, Allocate | Free | TakeEvents) and now.nodes(step.before) > 0
        ),
    ),
    "RES-5": (
        "an insert where hits are copied to the host",
        lambda step: (
            isinstance(step.outcome, Inserted) and step.before.config.backup_hits is not None
        ),
    ),
    "RES-7": _INSERT,
    "RES-8": _FETCHED,
    "RES-9": (
        "a host insert that places something",
        lambda step: (
            isinstance(step.outcome, HostInserted)
            and step.outcome.placed_pages + step.outcome.refilled_pages > 0
        ),
    ),
    "RES-10": (
        "an insert that backs something up",
        lambda step: isinstance(step.outcome, Inserted) and bool(step.outcome.backups),
    ),
    "MATCH-1": (
        "a match that finds something",
        lambda step: isinstance(step.outcome, Matched) and step.outcome.prefix_pages > 0,
    ),
    "MATCH-2": (
        "a match that finds something on the device",
        lambda step: isinstance(step.outcome, Matched) and step.outcome.device_pages > 0,
    ),
    "MATCH-3": (
        "a match that returns slots",
        lambda step: isinstance(step.outcome, Matched) and bool(step.outcome.slots.counts()),
    ),
    "MATCH-4": (
        "a match while there is another namespace",
        lambda step: (
            isinstance(step.outcome, Matched)
            and isinstance(asked := step.operation, Match)
            and any(node.namespace != asked.key.namespace for node in step.before.below_root())
        ),
    ),
    "MATCH-5": (
        "a match that makes something recent, or cuts",
        lambda step: isinstance(step.outcome, Matched) and now.changed(step),
    ),
    "MATCH-6": _INSERT,
    "MATCH-7": (
        "a match that finds what is being loaded",
        lambda step: isinstance(step.outcome, Matched) and bool(step.outcome.pending),
    ),
    "REC-1": ("a use of a prefix with window data out of its reach", now.window_left_behind),
    "REC-2": (
        "a use of a prefix while there are nodes off its path",
        lambda step: now.used_pages(step) > 0 and now.others_before(step),
    ),
    "REC-3": ("an eviction that had a choice", now.chose_a_victim),
    "REC-5": (
        "a use of a prefix where states are kept",
        lambda step: now.used_pages(step) > 0 and MAMBA in step.after.config.components,
    ),
    "REC-6": _INSERT,
    "REC-7": (
        "a change that is no use",
        lambda step: not isinstance(step.operation, Match | Insert) and now.changed(step),
    ),
    "LOCK-4": (
        "a change while something is locked",
        lambda step: (
            now.locked(step.before, FULL)
            and now.changed(step)
            and not isinstance(step.operation, Unlock | UnlockWindow)
        ),
    ),
    "LOCK-6": (
        "a lock of window data",
        lambda step: (
            isinstance(step.operation, Lock) and now.went_well(step) and now.locked(step.after, SWA)
        ),
    ),
    "LOCK-8": (
        "a release",
        lambda step: isinstance(step.operation, Unlock | UnlockWindow) and now.went_well(step),
    ),
    "LOCK-9": (
        "a lock of something",
        lambda step: isinstance(step.outcome, Receipt) and len(step.outcome.key) > 0,
    ),
    "LOCK-10": (
        "a change while a request has a receipt",
        lambda step: now.of_requests(step.before) and now.changed(step),
    ),
    "LOCK-11": (
        "a lock while another is open",
        lambda step: isinstance(step.outcome, Receipt) and now.of_requests(step.before),
    ),
    "ALLOC-3": _VICTIM,
    "ALLOC-5": ("an allocation", lambda step: isinstance(step.outcome, Slots)),
    "ALLOC-6": ("a refusal", lambda step: not now.went_well(step)),
    "ALLOC-7": (
        "a reset of a tree",
        lambda step: (
            isinstance(step.operation, Reset) and now.went_well(step) and now.nodes(step.before) > 0
        ),
    ),
    "ALLOC-10": (
        "a change of the mapping while a request has slots with window data",
        lambda step: (
            step.before.swa_of_full != step.after.swa_of_full
            and bool(step.before.pools[SWA, GPU].held & step.after.pools[SWA, GPU].held)
        ),
    ),
    "EVICT-1": (
        "an eviction",
        lambda step: isinstance(step.operation, Evict | EvictHost) and now.went_well(step),
    ),
    "EVICT-2": _VICTIM,
    "EVICT-3": ("an eviction of a node with more than full data", now.cascades),
    "EVICT-4": ("an eviction that takes pages out of the tree", now.left_the_tree),
    "EVICT-5": (
        "an eviction from the device of what has a host copy",
        lambda step: any(row.slot(FULL, CPU) is not None for row, _ in now.lost_from(step, GPU)),
    ),
    "EVICT-6": _VICTIM,
    "EVICT-7": (
        "an eviction of full data from the host while there are duplicates",
        lambda step: (
            now.evicts_from(step) is CPU
            and writes_back(step.before)
            and any(is_duplicate(step.before, node) for node in step.before.below_root())
        ),
    ),
    "EVICT-8": (
        "an eviction under write_back of what is on the device alone",
        lambda step: (
            writes_back(step.before) and now.evicts_from(step) is GPU and now.had_to_copy(step)
        ),
    ),
    "ASYNC-1": ("the end of one of two copies of a direction", now.settled_out_of_two),
    "ASYNC-2": _SETTLED,
    "ASYNC-4": ("a copy that is done", lambda step: TransferStatus.DONE in now.ended(step)),
    "ASYNC-5": ("a copy that failed", lambda step: TransferStatus.FAILED in now.ended(step)),
    "ASYNC-6": (
        "a flush of copies in flight",
        lambda step: isinstance(step.operation, Flush) and bool(step.before.transfers),
    ),
    "ASYNC-7": (
        "a call that enqueues a copy",
        lambda step: len(step.after.transfers) > len(step.before.transfers),
    ),
    "ASYNC-8": ("a copy that is cancelled for one that failed", now.cancelled_some),
    "ASYNC-9": _SETTLED,
    "LOAD-1": _LOAD_EVICTS,
    "LOAD-2": _LOAD_EVICTS,
    "LOAD-3": (
        "a load-back for which there is no room",
        lambda step: now.decision_of(step) is LoadDecision.NO_ROOM,
    ),
    "LOAD-4": _LOADING,
    "LOAD-5": _LOADING,
    "LOAD-6": _LOAD,
    "LOAD-7": (
        "a load-back while there are nodes off its path",
        lambda step: now.decision_of(step) is LoadDecision.ENQUEUED and now.others_before(step),
    ),
    "EVENT-3": (
        "a store",
        lambda step: any(isinstance(event, BlockStored) for event in step.events),
    ),
    "EVENT-5": (
        "a change of which nothing is to be said",
        lambda step: now.changed(step) and not step.events,
    ),
    "EVENT-7": (
        "a store of a page that has a parent",
        lambda step: any(
            isinstance(event, BlockStored) and event.parent_hash is not None
            for event in step.events
        ),
    ),
    "EVENT-8": (
        "a reset",
        lambda step: isinstance(step.operation, Reset) and now.went_well(step),
    ),
    "EVENT-10": ("something to be said", lambda step: bool(step.events)),
    "EVENT-11": (
        "events that are taken",
        lambda step: isinstance(step.outcome, Taken) and bool(step.outcome.events),
    ),
    "EVENT-12": (
        "two pages that are removed",
        lambda step: sum(isinstance(event, BlockRemoved) for event in step.events) > 1,
    ),
    "DATA-1": ("bytes that were read", lambda step: bool(step.stamps)),
    "NS-3": ("a node with names that came, or was cut", now.named_anew),
    "REFUSE-1": (
        "a refusal for want of slots, pages or patience",
        lambda step: now.refused_with(
            step, OutOfSlots, PrefixNotCached, SlotNotHeld, TransferPending
        ),
    ),
    "REFUSE-2": (
        "a refusal for a receipt",
        lambda step: now.refused_with(step, ReceiptSpent, CacheBusy),
    ),
}
"""Of each law of a step."""

_STORED: OfStream = (
    "a store",
    lambda stream: any(isinstance(event, BlockStored) for event in stream.events),
)

STREAMS: Mapping[str, OfStream] = {
    "EVENT-1": (
        "a store of a page that has a parent",
        lambda stream: any(
            isinstance(event, BlockStored) and event.parent_hash is not None
            for event in stream.events
        ),
    ),
    "EVENT-2": (
        "a remove",
        lambda stream: any(isinstance(event, BlockRemoved) for event in stream.events),
    ),
    "EVENT-4": ("something said", lambda stream: bool(stream.events)),
    "EVENT-6": _STORED,
    "EVENT-9": _STORED,
}
"""Of each law of a stream."""

WORDS: Mapping[str, str] = {
    law_id: words for table in (STATES, STEPS, STREAMS) for law_id, (words, _) in table.items()
}
"""What each law waits for, in words."""
