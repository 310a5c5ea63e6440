"""Records a stream of events for a page: a recording of `kvcanon watch`, batch by batch.

The recording is folded as `kvcanon audit` does, and each violation is marked at its batch. What is
shown is bounded: so many batches around the violation. Batches before them are folded into the
first state; if that is large, it has only what the batches that are shown speak of.

Events as they were sent are turned into those of the spec, block by block, to fold into rows; each
publisher, rank and group of layers has a book of its own.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from attrs import define, field, frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.report.text import times
from kvcanon.conformance.show.event_rows import WIRE_BYTES, BookHash, EventRows
from kvcanon.conformance.show.shown_run import Breach, Chart, ShownRun, ShownStep, breach_of_law
from kvcanon.conformance.show.step_packer import StepPacker
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
from kvcanon.live.stream_faults import Fault, StreamFinding, shown_key
from kvcanon.live.stream_recording import Recording
from kvcanon.spec.config import CacheConfig
from kvcanon.spec.events import AllBlocksCleared, BlockRemoved, BlockStored, Event
from kvcanon.spec.law import LAWS
from kvcanon.spec.types import CPU, GPU, Medium, Namespace, NodeId, Page
from kvcanon.spec.wire import WIRE_LAWS

MOST_BATCHES = 10_000
MOST_BLOCKS = 100_000
"""Stores and removes of one block in the batches that are shown, and blocks before them."""
BEFORE = 3 / 4
"""The share of them that is before the violation."""

MEDIA: Mapping[object, Medium] = {
    None: GPU,  # The oldest forms have no medium, and know of the device alone.
    "CPU": CPU,
    "STORAGE": Medium.DISK,
    **{medium.value: medium for medium in Medium},
}

_HEX_BLOCK = re.compile(r"\b[0-9a-f]{16}\b")


@frozen
class StreamSurvey:
    """What a recording has, batch by batch."""

    pages: array[int]
    """Stores and removes of one block in each batch."""
    finds: tuple[tuple[int, StreamFinding], ...]
    """The violations, each with the index of its batch; so many as an audit keeps."""
    by_law: Counter[str]
    """How often each law is broken, in all."""

    def window(self, at: int | None) -> range:
        """The batches to show: those around one, or the first."""
        begin = 0 if at is None else at + 1 - self._fitting(range(at, -1, -1), BEFORE)
        return range(begin, begin + self._fitting(range(begin, len(self.pages)), 1.0))

    def _fitting(self, indices: Iterable[int], share: float) -> int:
        """How many batches fit, one after another; the first in any case."""
        batches = pages = 0
        for index in indices:
            pages += self.pages[index]
            if batches and (batches >= share * MOST_BATCHES or pages > share * MOST_BLOCKS):
                break
            batches += 1
        return batches


def record_stream(recording: Recording, failure: str | None = None) -> ShownRun:
    """Record a recording, around its first violation or that of number `failure`.

    Raises: UsageError: there is no such violation, or no batch. BadRecording.
    """
    survey = _survey(recording)
    at = _chosen(survey, recording, failure)
    window = survey.window(at)
    books = StreamBooks(Streams(), several=len(recording.sources) > 1)
    rows, left_out = _first_rows(recording, window, books)
    packer = StepPacker(None, folded=rows)
    blocks = {medium: [float(rows.blocks(medium))] for medium in Medium}
    began: float | None = None
    for arrived in islice(recording.frames(), window.start, window.stop):
        began = arrived.received if began is None else began
        _add(packer, rows, arrived, books, began)
        for medium, line in blocks.items():
            line.append(float(rows.blocks(medium)))
    used = {medium.value: line for medium, line in blocks.items() if any(line)}
    return ShownRun(
        title=recording.path.name,
        facts=_facts(recording, survey),
        config=CacheConfig(),
        group_word="publisher",
        groups=tuple(each.endpoint for each in recording.sources),
        charts=(Chart("Blocks", "", used),) if used else (),
        notes=tuple(_notes(recording, survey, window, left_out)),
        opens_at=None if at is None else at - window.start + 1,
        steps=packer.steps,
        breaks_at=packer.breaks_at,
        parts=packer.parts(),
        step_title="Batches",
        start_words="what is known before the first batch",
        names_nodes=True,
    )


def _survey(recording: Recording) -> StreamSurvey:
    streams, pages = Streams(), array("Q")
    finds: list[tuple[int, StreamFinding]] = []
    before = 0
    for index, arrived in enumerate(recording.frames()):
        kept = len(streams.findings)
        streams.take(arrived)
        finds += [(index, each) for each in streams.findings[kept:]]
        pages.append(streams.pages - before)
        before = streams.pages
    return StreamSurvey(pages, tuple(finds), streams.by_law())


def _chosen(survey: StreamSurvey, recording: Recording, failure: str | None) -> int | None:
    """The batch to open at; None for the start. Raises: UsageError."""
    name = recording.path
    if not survey.pages:
        raise UsageError(f"{name} has no batch to show: nothing arrived while it was recorded")
    if failure is None:
        return survey.finds[0][0] if survey.finds else None
    count = len(survey.finds)
    if not failure.isdecimal() or not 1 <= int(failure) <= count:
        give = f"give --failure 1 to {count}" if count else "no law is broken; leave --failure out"
        raise UsageError(f"{name} has no violation {failure}; {give}")
    return survey.finds[int(failure) - 1][0]


def _first_rows(recording: Recording, window: range, books: StreamBooks) -> tuple[EventRows, int]:
    """What is known before the batches that are shown, and how many blocks of it are left out."""
    rows = EventRows()
    rows.heard = True  # A stream that says nothing says that nothing is there.
    for arrived in islice(recording.frames(), window.start):
        rows.move_books(books.take(arrived).events)
    if len(rows.now.rows) <= MOST_BLOCKS:
        return rows, 0
    shown = islice(recording.frames(), window.start, window.stop)
    return rows, rows.leave_out_all_but({each for one in shown for each in books.blocks_of(one)})


def _add(
    packer: StepPacker, rows: EventRows, arrived: Arrived, books: StreamBooks, began: float
) -> None:
    """Add a batch as a step."""
    folded = books.take(arrived)
    names = books.of(arrived.source)
    # A block may be there before the batch alone, or after it alone.
    nodes = _nodes(folded, rows, names)
    delta = rows.move_books(folded.events)
    nodes |= _nodes(folded, rows, names)
    step = ShownStep(
        group=arrived.source,
        number=None,
        code=_code(arrived, folded, arrived.received - began),
        answer=_in_short(folded),
        refused=not folded.counts,
        events=tuple(event for _, event in folded.events),
        breaches=tuple(_breach(each, nodes) for each in folded.found),
    )
    packer.add_delta(step, delta)


def _nodes(folded: FoldedBatch, rows: EventRows, books: list[str]) -> dict[str, NodeId]:
    """The nodes of the blocks that violations name, by the words for them."""
    keys = {key for each in folded.found for key in (each.key, each.other)}
    found = {shown_key(key): rows.node_of(wire_hash(key), books) for key in keys}
    return {words: node_id for words, node_id in found.items() if node_id is not None}


def _breach(finding: StreamFinding, nodes: Mapping[str, NodeId]) -> Breach:
    """A violation, in which blocks that are in the tree are also called by their nodes."""

    def named(block: re.Match[str]) -> str:
        node_id = nodes.get(block[0])
        return block[0] if node_id is None else f"{block[0]} (node {node_id})"

    text = f"{_HEX_BLOCK.sub(named, finding.what)}. {finding.belief}".removesuffix(".")
    if finding.law_id in LAWS:
        return breach_of_law(finding.law_id, text)
    return Breach(finding.law_id, text, WIRE_LAWS[finding.law_id].statement)


def _code(arrived: Arrived, folded: FoldedBatch, seconds: float) -> str:
    """Which batch it is, and when it arrived."""
    what = f"batch {arrived.sequence}" if isinstance(arrived, Frame) else "no batch"
    rank = f", rank {folded.rank}" if folded.rank else ""
    replay = ", by a replay" if isinstance(arrived, Frame) and arrived.replayed else ""
    return f"{what}{rank}{replay}, at {seconds:.3f} s"


def _in_short(folded: FoldedBatch) -> str:
    """What a batch did, in a few words."""
    if not folded.counts:
        why = folded.found[0].what if folded.found else "it repeats one, or cannot be read"
        return f"not counted: {why}"
    kinds = Counter(type(event) for _, event in folded.events)
    words = {AllBlocksCleared: "cleared", BlockStored: "stored", BlockRemoved: "removed"}
    done = [f"{kinds[kind]:,} {word}" for kind, word in words.items() if kinds[kind]]
    return ", ".join(done) or "no events"


def _facts(recording: Recording, survey: StreamSurvey) -> tuple[tuple[str, str], ...]:
    laws = ", ".join(f"{law} {times(count)}" for law, count in sorted(survey.by_law.items()))
    return (
        ("recording", str(recording.path)),
        ("publishers", ", ".join(each.endpoint for each in recording.sources)),
        ("batches", f"{len(survey.pages):,}, with {sum(survey.pages):,} blocks stored or removed"),
        ("broken", laws or "no law"),
    )


def _notes(
    recording: Recording, survey: StreamSurvey, window: range, left_out: int
) -> Iterator[str]:
    yield (
        "The tree has what the events say: each block as a node, by publisher, rank and namespace, "
        "without slots, locks and windows."
    )
    if len(window) < len(survey.pages):
        yield (
            f"Batches {window.start + 1:,} to {window.stop:,} of {len(survey.pages):,} are shown; "
            "what those before left is in the first state."
        )
    if left_out:
        yield f"{left_out:,} blocks of the first state are left out: no batch here speaks of them."
    if len(survey.finds) > 1:
        count = f"{len(survey.finds):,}"
        yield f"There are {count} violations; --failure N opens the page at another one."
    if recording.cut_off:
        yield f"The recording was cut off: {recording.cut_off} bytes at its end are no block."


@frozen
class FoldedBatch:
    """The result of folding a batch."""

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
        counts = self.streams.of(source).counts
        batches, restarts = counts.batches, counts.restarts
        found = tuple(self.streams.take(arrived))
        events: list[tuple[str, Event]] = []
        if counts.restarts > restarts:
            events += self._cleared(source, None)
        is_malformed = any(each.fault is Fault.MALFORMED for each in found)
        batch = None if is_malformed or counts.batches == batches else _decoded(arrived)
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

    def _of_rank(self, source: int, rank: int) -> list[str]:
        """The books of a rank."""
        return [name for place, name in self._known.items() if place[:2] == (source, rank)]

    def _events(self, source: int, batch: SentBatch) -> Iterator[tuple[str, Event]]:
        for sent in batch.events:
            if sent.kind == "AllBlocksCleared":
                yield from self._cleared(source, batch.rank)
            else:
                books = [self._book(source, batch.rank, sent.group)]
                if sent.kind == "BlockRemoved" and not sent.names_group:
                    # It is about the group that holds the block; from the others nothing leaves.
                    books = self._of_rank(source, batch.rank)
                yield from ((book, each) for each in pages_sent(sent) for book in books)

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
    fields, medium = event.fields, MEDIA.get(event.fields.get("medium"))
    if medium is None:
        return
    hashes = [wire_hash(each) for each in event.hashes]
    if event.kind == "BlockRemoved":
        yield from (BlockRemoved(each, medium) for each in hashes)
        return
    parent = fields.get("parent_block_hash")
    parents = [None if parent is None else wire_hash(parent), *hashes]
    namespace = _namespace(fields)
    for each, before, page in zip(hashes, parents, _pages(fields, len(hashes)), strict=False):
        yield BlockStored(each, before, page, medium, namespace)


def wire_hash(block_hash: BlockHash) -> bytes:
    """The 64 bits by which a block is known."""
    return key_of(block_hash).to_bytes(WIRE_BYTES, "big")


def _pages(fields: Mapping[str, Any], blocks: int) -> list[Page]:
    """The tokens of each block; empty where they are not there, or are no whole blocks."""
    tokens, size = fields.get("token_ids") or (), fields.get("block_size")
    if not isinstance(size, int) or size <= 0 or len(tokens) != size * blocks:
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
