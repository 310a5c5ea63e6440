"""Premises: the situations in which laws have something to say.

A law about evictions holds of a cache that never evicts. So each law names the situation in which a
faulty cache could break it, and whoever judges counts how often that came up: a law is *held* only
so many times as its premise was met.

What readers get wrong: a premise is no part of a law. A law is asked of every step, and may be
broken in one in which its premise is not met; but that it was not broken there is no evidence.
"""

from __future__ import annotations

from kvcanon.spec.events import BlockRemoved, BlockStored
from kvcanon.spec.law import Premise, Stream, nodes_premise
from kvcanon.spec.laws import situations as now
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
    Settled,
    TakeEvents,
    Taken,
    Unlock,
    UnlockWindow,
)
from kvcanon.spec.snapshot import Snapshot, is_device_leaf, is_host_leaf
from kvcanon.spec.transfer import TransferStatus
from kvcanon.spec.types import CPU, FULL, GPU, MAMBA, SWA, Slots
from kvcanon.spec.views import Step

ANY_NODE: Premise[Snapshot] = Premise(
    "a node",
    lambda state: now.nodes(state) > 0,
)

NODE_BELOW_NODE = nodes_premise("a node below a node", now.is_below_node)

# Of states.

SIBLINGS = nodes_premise(
    "two children of one parent",
    lambda _, node: len(node.child_ids) > 1,
)

AUXILIARY_DATA = nodes_premise(
    "window data, or a recurrent state",
    lambda _, node: now.below_root(node) and (node[SWA].anywhere or node[MAMBA].anywhere),
)

DEVICE_CHILD = nodes_premise(
    "full data on the device, below another node",
    lambda state, node: node[FULL].device is not None and now.is_below_node(state, node),
)

HOST_CHILD = nodes_premise(
    "a host copy below another node, where parents need one",
    lambda state, node: (
        state.config.backed_parents
        and node[FULL].host is not None
        and now.is_below_node(state, node)
    ),
)

TWO_LEAVES = nodes_premise("two leaves on one medium", is_device_leaf, is_host_leaf, enough=2)

LOCKED_NODE = nodes_premise(
    "a locked node",
    lambda _, node: node[FULL].lock_refs != 0 and now.below_root(node),
)

LOCKED_AUXILIARY = nodes_premise(
    "locked window data, or a locked state",
    lambda _, node: (
        (node[SWA].lock_refs != 0 or node[MAMBA].lock_refs != 0) and now.below_root(node)
    ),
)

OPEN_RECEIPT: Premise[Snapshot] = Premise(
    "an open receipt",
    lambda state: bool(state.holds),
)

LOCKED_CHILD = nodes_premise(
    "a locked node below another",
    lambda state, node: node[FULL].lock_refs != 0 and now.is_below_node(state, node),
)

EVICTABLE_AND_PROTECTED: Premise[Snapshot] = Premise(
    "slots that are evictable beside slots that are not",
    lambda state: any(usage.evictable and usage.protected for usage in state.usage.values()),
)

WINDOW_DATA = nodes_premise(
    "a page with window data on the device",
    lambda _, node: node[SWA].device is not None and now.below_root(node),
)

MAPPED_SLOT: Premise[Snapshot] = Premise(
    "a mapping that leads somewhere",
    lambda state: bool(state.swa_of_full),
)

COPY_IN_FLIGHT: Premise[Snapshot] = Premise(
    "a copy in flight",
    lambda state: any(not each.cancelled for each in state.transfers),
)

ANY_COPY_IN_FLIGHT: Premise[Snapshot] = Premise(
    "a copy in flight, cancelled or not",
    lambda state: bool(state.transfers),
)

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
    lambda step: bool(now.ended(step)),
)

LOAD: Premise[Step] = Premise(
    "a load-back",
    lambda step: now.decision_of(step) is not None,
)

LOAD_ENQUEUED: Premise[Step] = Premise(
    "a load-back that was enqueued",
    lambda step: now.decision_of(step) is LoadDecision.ENQUEUED,
)

LOAD_EVICTS: Premise[Step] = Premise(
    "a load-back that evicts",
    lambda step: now.decision_of(step) is not None and bool(now.freed(step)),
)

EVICTION_FREES: Premise[Step] = Premise(
    "an eviction that frees something",
    lambda step: now.evicts_from(step) is not None,
)

# Of steps.

CALL_BESIDE_OTHERS: Premise[Step] = Premise(
    "a call on a key while there are nodes off its path",
    now.others_before,
)

BOOKKEEPING: Premise[Step] = Premise(
    "bookkeeping while there is a tree",
    lambda step: (
        isinstance(step.operation, Allocate | Free | TakeEvents) and now.nodes(step.before) > 0
    ),
)

INSERT_WITH_BACKUP: Premise[Step] = Premise(
    "an insert where hits are copied to the host",
    lambda step: isinstance(step.outcome, Inserted) and step.before.config.backup_hits is not None,
)

INSERT_BACKS_UP: Premise[Step] = Premise(
    "an insert that backs something up",
    lambda step: isinstance(step.outcome, Inserted) and bool(step.outcome.backups),
)

MATCH_FINDS: Premise[Step] = Premise(
    "a match that finds something",
    lambda step: isinstance(step.outcome, Matched) and step.outcome.prefix_pages > 0,
)

MATCH_FINDS_ON_DEVICE: Premise[Step] = Premise(
    "a match that finds something on the device",
    lambda step: isinstance(step.outcome, Matched) and step.outcome.device_pages > 0,
)

MATCH_RETURNS_SLOTS: Premise[Step] = Premise(
    "a match that returns slots",
    lambda step: isinstance(step.outcome, Matched) and bool(step.outcome.slots.counts()),
)

MATCH_CHANGES: Premise[Step] = Premise(
    "a match that makes something recent, or cuts",
    lambda step: isinstance(step.outcome, Matched) and now.changed(step),
)

MATCH_FINDS_LOADING: Premise[Step] = Premise(
    "a match that finds what a load-back in flight brings",
    now.finds_of_loads,
)

USE_BEYOND_WINDOW: Premise[Step] = Premise(
    "a use of a prefix with window data out of its reach",
    now.window_left_behind,
)

USE_BESIDE_OTHERS: Premise[Step] = Premise(
    "a use of a prefix while there are nodes off its path",
    lambda step: now.used_pages(step) > 0 and now.others_before(step),
)

CHOICE_OF_VICTIM: Premise[Step] = Premise(
    "an eviction that had a choice",
    now.chose_a_victim,
)

USE_WITH_STATES: Premise[Step] = Premise(
    "a use of a prefix where states are kept",
    lambda step: now.used_pages(step) > 0 and MAMBA in step.after.config.components,
)

CHANGE_WITHOUT_USE: Premise[Step] = Premise(
    "a change that is no use",
    lambda step: not isinstance(step.operation, Match | Insert) and now.changed(step),
)

CHANGE_UNDER_LOCK: Premise[Step] = Premise(
    "a change while something is locked",
    lambda step: (
        now.locked(step.before, FULL)
        and now.changed(step)
        and not isinstance(step.operation, Unlock | UnlockWindow)
    ),
)

WINDOW_LOCK: Premise[Step] = Premise(
    "a lock of window data",
    lambda step: (
        isinstance(step.operation, Lock) and now.went_well(step) and now.locked(step.after, SWA)
    ),
)

RELEASE: Premise[Step] = Premise(
    "a release",
    lambda step: isinstance(step.operation, Unlock | UnlockWindow) and now.went_well(step),
)

LOCK: Premise[Step] = Premise(
    "a lock of something",
    lambda step: isinstance(step.outcome, Receipt) and len(step.outcome.key) > 0,
)

CHANGE_UNDER_RECEIPT: Premise[Step] = Premise(
    "a change while a request has a receipt",
    lambda step: now.of_requests(step.before) and now.changed(step),
)

SECOND_LOCK: Premise[Step] = Premise(
    "a lock while another is open",
    lambda step: isinstance(step.outcome, Receipt) and now.of_requests(step.before),
)

ALLOCATION: Premise[Step] = Premise(
    "an allocation",
    lambda step: isinstance(step.outcome, Slots),
)

REFUSAL: Premise[Step] = Premise(
    "a refusal",
    lambda step: not now.went_well(step),
)

RESET_OF_TREE: Premise[Step] = Premise(
    "a reset of a tree",
    lambda step: (
        isinstance(step.operation, Reset) and now.went_well(step) and now.nodes(step.before) > 0
    ),
)

MAPPING_CHANGE: Premise[Step] = Premise(
    "a change of the mapping while a request has slots with window data",
    lambda step: (
        step.before.swa_of_full != step.after.swa_of_full
        and bool(now.held_slots(step.before, SWA) & now.held_slots(step.after, SWA))
    ),
)

EVICTION: Premise[Step] = Premise(
    "an eviction",
    lambda step: isinstance(step.operation, Evict | EvictHost) and now.went_well(step),
)

EVICTION_OF_AUXILIARY: Premise[Step] = Premise(
    "an eviction of a node with more than full data",
    now.cascades,
)

EVICTION_FROM_TREE: Premise[Step] = Premise(
    "an eviction that takes pages out of the tree",
    now.left_the_tree,
)

EVICTION_OF_BACKED: Premise[Step] = Premise(
    "an eviction from the device of what has a host copy",
    lambda step: any(row.slot(FULL, CPU) is not None for row, _ in now.lost_from(step, GPU)),
)

DUPLICATES_ON_HOST: Premise[Step] = Premise(
    "an eviction of full data from the host while there are duplicates",
    lambda step: (
        now.evicts_from(step) is CPU
        and writes_back(step.before)
        and any(is_duplicate(step.before, node) for node in step.before.below_root())
    ),
)

EVICTION_OF_UNBACKED: Premise[Step] = Premise(
    "an eviction under write_back of what is on the device alone",
    lambda step: (
        writes_back(step.before) and now.evicts_from(step) is GPU and now.had_to_copy(step)
    ),
)

ONE_OF_TWO_COPIES_ENDS: Premise[Step] = Premise(
    "the end of one of two copies of a direction",
    now.settled_out_of_two,
)

COPY_DONE: Premise[Step] = Premise(
    "a copy that is done",
    lambda step: TransferStatus.DONE in now.ended(step),
)

COPY_FAILED: Premise[Step] = Premise(
    "a copy that failed",
    lambda step: TransferStatus.FAILED in now.ended(step),
)

FLUSH_OF_COPIES: Premise[Step] = Premise(
    "a flush of copies in flight",
    lambda step: isinstance(step.operation, Flush) and bool(step.before.transfers),
)

COPY_ENQUEUED: Premise[Step] = Premise(
    "a call that enqueues a copy",
    lambda step: len(step.after.transfers) > len(step.before.transfers),
)

COPY_CANCELLED: Premise[Step] = Premise(
    "a copy that is cancelled for one that failed",
    now.cancelled_some,
)

LOAD_WITHOUT_ROOM: Premise[Step] = Premise(
    "a load-back for which there is no room",
    lambda step: now.decision_of(step) is LoadDecision.NO_ROOM,
)

LOAD_BESIDE_OTHERS: Premise[Step] = Premise(
    "a load-back while there are nodes off its path",
    lambda step: now.decision_of(step) is LoadDecision.ENQUEUED and now.others_before(step),
)

SILENT_CHANGE: Premise[Step] = Premise(
    "a change of which nothing is to be said",
    lambda step: now.changed(step) and not step.events,
)

STORE_WITH_PARENT: Premise[Step] = Premise(
    "a store of a page that has a parent",
    lambda step: any(
        isinstance(event, BlockStored) and event.parent_hash is not None for event in step.events
    ),
)

RESET: Premise[Step] = Premise(
    "a reset",
    lambda step: isinstance(step.operation, Reset) and now.went_well(step),
)

EVENTS_SENT: Premise[Step] = Premise(
    "something to be said",
    lambda step: bool(step.events),
)

EVENTS_TAKEN: Premise[Step] = Premise(
    "events that are taken",
    lambda step: isinstance(step.outcome, Taken) and bool(step.outcome.events),
)

TWO_REMOVES: Premise[Step] = Premise(
    "two pages that are removed",
    lambda step: sum(isinstance(event, BlockRemoved) for event in step.events) > 1,
)

BYTES_READ: Premise[Step] = Premise(
    "bytes that were read",
    lambda step: bool(step.stamps),
)

NAMED_ANEW: Premise[Step] = Premise(
    "a node with names that came, or was cut",
    now.named_anew,
)

CALL_SERVED_OR_REFUSED: Premise[Step] = Premise("a call", lambda _: True)

RECEIPT_OR_RESET: Premise[Step] = Premise(
    "a release, or a reset",
    lambda step: isinstance(step.operation, Unlock | UnlockWindow | Reset),
)

GROUND_STANDS: Premise[Step] = Premise(
    "a refusal, for other than a receipt",
    lambda step: (
        not now.went_well(step) and not isinstance(step.operation, Unlock | UnlockWindow | Reset)
    ),
)

SERVED: Premise[Step] = Premise("a call that was served", now.went_well)

INSERT_OF_SLOTS: Premise[Step] = Premise(
    "an insert that hands over slots",
    lambda step: (
        isinstance(step.operation, Insert)
        and isinstance(step.outcome, Inserted)
        and bool(step.operation.slots.counts())
    ),
)

END_KNOWN: Premise[Step] = Premise(
    "a poll or a flush after a copy has ended",
    lambda step: isinstance(step.outcome, Settled) and bool(step.ended),
)

MOVE_TO_OTHER_MEDIUM: Premise[Step] = Premise(
    "a page that leaves one medium in a step that brings it to another",
    now.sends_both_ways,
)

STREAM_STORE: Premise[Stream] = Premise(
    "a store",
    lambda stream: any(isinstance(event, BlockStored) for event in stream.events),
)

# Of streams.

STREAM_STORE_WITH_PARENT: Premise[Stream] = Premise(
    "a store of a page that has a parent",
    lambda stream: any(
        isinstance(event, BlockStored) and event.parent_hash is not None for event in stream.events
    ),
)

STREAM_REMOVE: Premise[Stream] = Premise(
    "a remove",
    lambda stream: any(isinstance(event, BlockRemoved) for event in stream.events),
)

STREAM_EVENTS: Premise[Stream] = Premise(
    "something said",
    lambda stream: bool(stream.events),
)

STREAM_BEGINS: Premise[Stream] = Premise("the first events of a cache", lambda it: it.begins)
