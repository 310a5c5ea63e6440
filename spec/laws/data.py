"""DATA: the bytes behind slots.

All other laws are about bookkeeping; this is what it is for. A model that attends to another
prompt's KV does not fail: it answers, wrongly.

What readers get wrong: a slot with an owner does not have the right bytes yet. Between the enqueue
of a copy and its acknowledgement both ends belong to the copy only.

That a corrupt page in storage is a miss is for laws of storage, which this book does not have yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kvcanon.spec.cache import Cache
from kvcanon.spec.difference import Difference
from kvcanon.spec.law import Kind, LawClass, Need, Premise, law
from kvcanon.spec.laws import bounds
from kvcanon.spec.operations import Read
from kvcanon.spec.snapshot import NO_POOL, Pool, Snapshot, TransferState
from kvcanon.spec.types import CPU, GPU, Component, Slot
from kvcanon.spec.views import Step


@law(
    "DATA-1",
    Kind.STEP,
    LawClass.SOUND,
    premise=Premise[Step](
        "bytes that were read",
        lambda step: bool(step.stamps),
    ),
    needs=(Need.SNAPSHOT, Need.BYTES),
    from_outside=((Cache.read,), (Cache.write,)),
)
def bytes_are_the_pages(step: Step) -> Iterator[str]:
    """Behind every slot that a match returns are the bytes that were written for that page.

    Whatever happened to the page in between: cuts, eviction to the host and load-back. The same
    holds for a host slot of a page that is read.

    Why: otherwise the model reads another prompt's KV and answers fluently.

    Seen broken: https://github.com/LMCache/LMCache/issues/4385,
    https://github.com/vllm-project/vllm/issues/49125,
    https://github.com/NVIDIA/TensorRT-LLM/issues/8830
    """
    on_host = isinstance(step.operation, Read)
    whose, where = ("of a path", f" on {CPU}") if on_host else ("of the key", "")
    for stamp in step.stamps:
        if stamp.found != stamp.expected:
            slot = f"{stamp.component} slot {stamp.slot}{where}"
            yield (
                f"page {stamp.page_index} {whose} is in {slot}, behind which is "
                f"{_bytes(stamp.found)}, not {_bytes(stamp.expected)}, which was written for it"
            )


def copies_go_on(difference: Difference) -> bool:
    """Whether the same copies of the same nodes are in flight, and their slots are not reused."""
    state = difference.after
    if "transfers" in difference.fields:
        return False
    if difference.unchanged("pools"):
        return True
    copied = [node_id for each in state.transfers for node_id, _ in each.parts]
    return difference.rebuilt.isdisjoint(copied) and not any(
        _is_taken(state, pool, slots) for each in state.transfers for _, pool, slots in _uses(each)
    )


@law(
    "DATA-2",
    Kind.STATE,
    LawClass.SOUND,
    premise=Premise[Snapshot](
        "a copy in flight, cancelled or not",
        lambda state: bool(state.transfers),
    ),
    needs=(Need.SNAPSHOT, Need.TRANSFERS),
    enabled_if=bounds.has_host_tier,
    follows=copies_go_on,
)
def copy_slots_untouched(state: Snapshot) -> Iterator[str]:
    """The slots that a copy in flight reads and writes are neither free nor held by a request.

    At most one copy writes to a slot, and a copy reads exactly the slots of the nodes that it
    copies, in order. What a cancelled copy still reads does not matter; what it writes does.

    Why: a slot that is reused while a copy reads or writes it has the bytes of two prompts.

    Seen broken: https://github.com/sgl-project/sglang/issues/27444,
    https://github.com/sgl-project/sglang/issues/35769,
    https://github.com/vllm-project/vllm/issues/47282
    """
    for transfer in state.transfers:
        if not transfer.cancelled:
            yield from _foreign_sources(state, transfer)
        for verb, pool, slots in _uses(transfer):
            if not _is_taken(state, pool, slots):
                continue
            owned = state.pools.get(pool, NO_POOL)
            for owner, taken in (
                ("is in the free list", owned.free_set.intersection(slots)),
                ("a request holds", owned.held.intersection(slots)),
            ):
                for slot in sorted(taken):
                    yield (
                        f"transfer {transfer.transfer_id} {verb} {pool[0]} slot {slot} on "
                        f"{pool[1]}, which {owner}"
                    )
    written = [
        (pool, slot)
        for transfer in state.transfers
        for verb, pool, slots in _uses(transfer)
        for slot in slots
        if verb == WRITES
    ]
    if len(written) == len(set(written)):
        return
    for ((component, medium), slot), times in Counter(written).items():
        if times > 1:
            yield f"{component} slot {slot} on {medium} is the target of {times} copies in flight"


WRITES, READS = "writes to", "reads from"


def _uses(transfer: TransferState) -> list[tuple[str, Pool, tuple[Slot, ...]]]:
    """The slots that a copy in flight must have to itself."""
    source, target = transfer.direction.source, transfer.direction.target
    written = [
        (WRITES, (component, target), slots) for component, slots in transfer.targets.items()
    ]
    if transfer.cancelled:
        return written
    return written + [
        (READS, (component, source), slots) for component, slots in transfer.sources.items()
    ]


def _is_taken(state: Snapshot, pool: Pool, slots: tuple[Slot, ...]) -> bool:
    """Whether some of these slots are free, or held by a request."""
    owned = state.pools.get(pool, NO_POOL)
    return not (owned.free_set.isdisjoint(slots) and owned.held.isdisjoint(slots))


def _foreign_sources(state: Snapshot, transfer: TransferState) -> Iterator[str]:
    """Source slots that are not those of the nodes that a transfer copies."""
    owned: dict[Component, list[Slot]] = {}
    for node_id, component in transfer.parts:
        node = state.nodes.get(node_id)
        slots = node[component].slots(transfer.direction.source) if node is not None else None
        owned.setdefault(component, []).extend(slots or ())
    for component, sources in transfer.sources.items():
        if tuple(owned.get(component, ())) != sources:
            side = "device" if transfer.direction.source is GPU else "host"
            yield (
                f"transfer {transfer.transfer_id} reads {component} slots {list(sources)}, but the "
                f"nodes that it copies have {side} slots {owned.get(component, [])}"
            )


def _bytes(data: bytes) -> str:
    return data[:16].hex() + ("..." if len(data) > 16 else "") or "nothing"
