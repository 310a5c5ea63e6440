"""The books of a recording: what its batches store and remove, by publisher, rank and group.

Events as they were sent are turned into those of the spec, block by block, to fold into rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from attrs import define, field, frozen

from kvcanon.conformance.show.event_rows import WIRE_BYTES, BookHash
from kvcanon.live.decode import (
    BlockHash,
    SentBatch,
    SentEvent,
    UnreadableBatch,
    decode_batch,
    key_of,
)
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Arrived, Frame
from kvcanon.live.stream_faults import Fault, StreamFinding
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.types import CPU, GPU, Medium, Namespace, Page

MEDIA: Mapping[object, Medium] = {
    None: GPU,  # The oldest forms have no medium, and know of the device alone.
    "CPU": CPU,
    **{medium.value: medium for medium in Medium},
}


@frozen
class FoldedBatch:
    """What came of a batch."""

    found: tuple[StreamFinding, ...]
    events: tuple[tuple[str, Event], ...]
    """Each with its book; none if the batch does not count, as one that is repeated."""
    rank: int
    counts: bool


@define
class StreamBooks:
    """Follows the publishers of a recording, as an audit does."""

    streams: Streams
    several: bool
    """Whether there are several publishers, so that books are called by theirs."""
    _known: dict[tuple[int, int, int], str] = field(factory=dict)
    """The name of each book, by publisher, rank and group of layers; "" if it has no other."""

    def take(self, arrived: Arrived) -> FoldedBatch:
        """Fold a batch."""
        source = arrived.source
        batches, restarts = self._counts(source)
        found = tuple(self.streams.take(arrived))
        now_batches, now_restarts = self._counts(source)
        events: list[tuple[str, Event]] = []
        if now_restarts > restarts:
            events += self._cleared(source, None)
        is_malformed = any(each.fault is Fault.MALFORMED for each in found)
        batch = None if is_malformed or now_batches == batches else _decoded(arrived)
        if batch is None:
            return FoldedBatch(found, tuple(events), 0, counts=False)
        events += self._events(source, batch)
        return FoldedBatch(found, tuple(events), batch.rank, counts=True)

    def blocks_of(self, arrived: Arrived) -> Iterator[BookHash]:
        """The blocks that a batch speaks of, with those before them; folds nothing."""
        batch = _decoded(arrived)
        for book, event in () if batch is None else self._events(arrived.source, batch):
            if isinstance(event, AllBlocksCleared):
                continue
            yield book, event.block_hash
            if isinstance(event, BlockStored) and event.parent_hash is not None:
                yield book, event.parent_hash

    def of(self, source: int) -> list[str]:
        """The books of a publisher."""
        return [name for place, name in self._known.items() if place[0] == source]

    def _events(self, source: int, batch: SentBatch) -> Iterator[tuple[str, Event]]:
        for sent in batch.events:
            if sent.kind == "AllBlocksCleared":
                yield from self._cleared(source, batch.rank)
            else:
                book = self._book(source, batch.rank, sent.group)
                yield from ((book, each) for each in pages_sent(sent))

    def _counts(self, source: int) -> tuple[int, int]:
        """Batches that were folded, and how often another publisher took the place of one."""
        if source >= len(self.streams.followers):
            return 0, 0
        counts = self.streams.followers[source].counts
        return counts.batches, counts.restarts

    def _cleared(self, source: int, rank: int | None) -> list[tuple[str, Event]]:
        """A clear of all books of a publisher, or of one of its ranks."""
        if rank is not None:
            self._book(source, rank, 0)
        places = (each for each in self._known if each[0] == source and rank in (None, each[1]))
        return [(self._known[each], AllBlocksCleared()) for each in places]

    def _book(self, source: int, rank: int, group: int) -> str:
        place = source, rank, group
        if place not in self._known:
            publisher = [f"publisher {source}"] if self.several else []
            below = [f"rank {rank}"] * bool(rank) + [f"group {group} of layers"] * bool(group)
            self._known[place] = ", ".join(chain(publisher, below))
        return self._known[place]


def _decoded(arrived: Arrived) -> SentBatch | None:
    """A batch; None if it cannot be read."""
    if not isinstance(arrived, Frame):
        return None
    try:
        return decode_batch(arrived.payload)
    except UnreadableBatch:
        return None


def pages_sent(event: SentEvent) -> Iterator[Event]:
    """The events of an event's blocks; none where its medium is not known."""
    fields = event.fields
    medium = MEDIA.get(fields.get("medium"))
    if event.kind == "AllBlocksCleared":
        yield AllBlocksCleared()
    elif medium is None:
        return
    elif event.kind == "BlockRemoved":
        for each in event.hashes:
            yield BlockRemoved(wire_hash(each), medium)
    else:
        yield from _stored(event, medium)


def wire_hash(block_hash: BlockHash) -> bytes:
    """The 64 bits by which a block is known."""
    return key_of(block_hash).to_bytes(WIRE_BYTES, "big")


def _stored(event: SentEvent, medium: Medium) -> Iterator[Event]:
    parent = event.fields.get("parent_block_hash")
    before = None if parent is None else wire_hash(parent)
    hashes = event.hashes
    pages = _pages(event, len(hashes))
    namespace = _namespace(event.fields)
    for each, page in zip(hashes, pages, strict=True):
        block_hash = wire_hash(each)
        yield BlockStored(block_hash, before, page, medium, namespace)
        before = block_hash


def _pages(event: SentEvent, blocks: int) -> list[Page]:
    """The tokens of each block; empty where they are not there, or are no whole blocks."""
    tokens = event.fields.get("token_ids") or ()
    size = event.fields.get("block_size")
    if not isinstance(tokens, Sequence) or not isinstance(size, int) or not tokens:
        return [()] * blocks
    if size <= 0 or len(tokens) != size * blocks:
        return [()] * blocks
    units = [tuple(unit) if isinstance(unit, Sequence) else unit for unit in tokens]
    return [tuple(units[at : at + size]) for at in range(0, len(units), size)]


def _namespace(fields: Mapping[str, object]) -> Namespace:
    """What tells the prompts of tenants and adapters apart, as it was sent."""
    lora = fields.get("lora_name") or fields.get("lora_id")
    extra = fields.get("extra_key") or _first(fields.get("extra_keys"))
    salt = fields.get("cache_salt")
    given = (None if each is None else str(each) for each in (extra, salt, lora))
    return Namespace(*given)


def _first(extra_keys: object) -> object:
    """VLLM's extra keys of the first block; None where it has none."""
    if isinstance(extra_keys, Sequence) and extra_keys and extra_keys[0]:
        return ", ".join(map(str, extra_keys[0]))
    return None
