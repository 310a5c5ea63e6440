"""Judges a recording: what it holds in the end, which laws it breaks, and what shows it.

A breach is shown by the shortest excerpt of the stream. Going back from the breach, the events of
the blocks that it is about are kept, one block an event; then whatever the breach does not need is
left out. The excerpt is folded once more after each omission, so what is printed breaks the same
law by itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import msgspec
from attrs import evolve, frozen

from kvcanon.live.decode import SentEvent, UnreadableBatch, decode_batch, key_of
from kvcanon.live.follower import Follower, FollowerConfig, HashRule, Streams
from kvcanon.live.frames import Frame
from kvcanon.live.stream_faults import SEQUENCE_FAULTS, Fault, StreamFinding
from kvcanon.live.stream_recording import Recording
from kvcanon.spec.shortest import shortest

MOST_STEPS = 400
"""Events beyond these are not looked for: a chain of so many blocks shows nothing to a reader."""

_CHAIN_FAULTS = frozenset({Fault.WRONG_HASH, Fault.OTHER_CONTENT, Fault.OTHER_NAMESPACE})
"""Faults that need the blocks before, since hashes and namespaces follow from them."""


@frozen
class ExcerptStep:
    """An event of an excerpt, and the batch that it was in."""

    sequence: int
    event: SentEvent


@frozen
class Excerpt:
    """Events that break a law by themselves, in order."""

    finding: StreamFinding
    steps: tuple[ExcerptStep, ...]
    shows: bool
    """Whether folding them breaks the law; not so where a chain is longer than `MOST_STEPS`."""


@frozen
class AuditResult:
    """The result of an audit."""

    streams: Streams
    excerpts: tuple[Excerpt, ...]
    seconds: float
    """That folding took."""


def audit(
    recording: Recording, config: FollowerConfig | None = None, excerpts: int = 3
) -> AuditResult:
    """Fold a recording, and make excerpts of the first findings of different kinds.

    Raises: BadRecording.
    """
    config = config if config is not None else FollowerConfig()
    streams = Streams(config, recording.sources)
    began = time.perf_counter()
    for arrived in recording.frames():
        streams.take(arrived)
    seconds = time.perf_counter() - began
    shown = list({finding.fault: finding for finding in reversed(streams.findings)}.values())[::-1]
    made = tuple(excerpt_of(recording, each, config) for each in shown[:excerpts])
    return AuditResult(streams, made, seconds)


def excerpt_of(recording: Recording, finding: StreamFinding, config: FollowerConfig) -> Excerpt:
    """Find the shortest excerpt that shows a finding. Raises: BadRecording."""
    if finding.fault in SEQUENCE_FAULTS:
        return Excerpt(finding, (), shows=True)
    steps = _gather(recording, finding)
    if finding.fault is Fault.WRONG_HASH:
        # That other hashes follow from their tokens is no part of the excerpt.
        config = evolve(config, hashes=HashRule.TOKENS)
    if not _shows(steps, finding, config):
        return Excerpt(finding, tuple(steps), shows=False)
    needed = shortest(steps, lambda fewer: _shows(fewer, finding, config), keeps_last=True)
    return Excerpt(finding, tuple(needed), shows=True)


def _gather(recording: Recording, finding: StreamFinding) -> list[ExcerptStep]:
    """The events of the blocks that a finding is about, from the last clear on."""
    wanted: set[int] = set()
    found: list[ExcerptStep] = []
    for frame in _frames_before(recording, finding):
        # Any block before shows that one has another size.
        any_block = finding.fault is Fault.OTHER_BLOCK_SIZE
        if found and not any_block and not _may_concern(frame.payload, wanted):
            continue
        for event in _events_of(frame, finding):
            if not found:
                kept = _last(event, finding, wanted) if event.index == finding.event else []
            elif event.kind == "AllBlocksCleared":
                kept = [event]
            else:
                kept = _about(event, finding, wanted)
            found += [ExcerptStep(frame.sequence, each) for each in kept]
            if found and event.kind == "AllBlocksCleared":
                return found[::-1]
        if len(found) >= MOST_STEPS:
            break
    return found[::-1]


def _frames_before(recording: Recording, finding: StreamFinding) -> Iterator[Frame]:
    """The frames of a publisher from the one with the finding back to its first."""
    begun = False
    for frame in recording.frames_backwards():
        if isinstance(frame, Frame) and frame.source == finding.source:
            begun = begun or frame.sequence == finding.sequence
            if begun:
                yield frame
                if frame.anew:
                    return


def _events_of(frame: Frame, finding: StreamFinding) -> Sequence[SentEvent]:
    """The events of a frame, the last first; none of another rank, or that cannot be read."""
    try:
        batch = decode_batch(frame.payload)
    except UnreadableBatch:
        return ()
    return batch.events[::-1] if batch.rank == finding.rank else ()


def _may_concern(payload: bytes, wanted: set[int]) -> bool:
    """Whether the bytes of a batch can hold one of some hashes, or a clear."""
    if b"AllBlocksCleared" in payload:
        return True
    small = any(key < 1 << 32 or key >> 31 == (1 << 33) - 1 for key in wanted)
    return small or any(key.to_bytes(8, "big") in payload for key in wanted)


def _last(event: SentEvent, finding: StreamFinding, wanted: set[int]) -> list[SentEvent]:
    """The event that shows the fault, with the blocks that it needs; backwards."""
    hashes = event.hashes
    if finding.fault is Fault.CHILD_STAYS:
        wanted.update((finding.key,))
        keys = [key_of(each) for each in hashes]
        return [event.only(keys.index(finding.key)) if finding.key in keys else event]
    if finding.fault in {Fault.MISALIGNED, Fault.NO_TOKENS, Fault.OTHER_BLOCK_SIZE} or not hashes:
        return [event]
    pages = [event.only(page) for page in range(min(finding.page + 1, len(hashes)))]
    if event.kind != "BlockStored" or finding.fault not in _CHAIN_FAULTS:
        pages = pages[-1:]
    for page in pages:
        _want(page, wanted, parent=True)
    return pages[::-1]


def _about(event: SentEvent, finding: StreamFinding, wanted: set[int]) -> list[SentEvent]:
    """Of an event before, the blocks that are wanted; backwards."""
    kept: list[SentEvent] = []
    keys = [key_of(each) for each in event.hashes]
    for page in reversed(range(len(keys))):
        one = None
        if keys[page] in wanted:
            one = event.only(page)
        elif finding.fault is Fault.CHILD_STAYS and event.kind == "BlockStored":
            child = event.only(page)
            parent = child.fields.get("parent_block_hash")
            if parent is not None and key_of(parent) == finding.key:
                one = child
        elif finding.fault is Fault.OTHER_BLOCK_SIZE and event.kind == "BlockStored" and page == 0:
            one = event.only(page)
        if one is not None:
            _want(one, wanted, parent=finding.fault in _CHAIN_FAULTS)
            kept.append(one)
    return kept


def _want(event: SentEvent, wanted: set[int], *, parent: bool) -> None:
    """Note which earlier blocks matter to an event of one block."""
    wanted.update(key_of(each) for each in event.hashes)
    before = event.fields.get("parent_block_hash")
    if parent and event.kind == "BlockStored" and before is not None:
        wanted.add(key_of(before))


def _shows(steps: Sequence[ExcerptStep], finding: StreamFinding, config: FollowerConfig) -> bool:
    """Whether the events break the law on the block, with the last of them."""
    follower = Follower(finding.source, config)
    found: list[StreamFinding] = []
    batches = [[{"type": "AllBlocksCleared"}], *([step.event.as_map()] for step in steps)]
    for number, events in enumerate(batches):
        payload = msgspec.msgpack.encode([0.0, events, finding.rank])
        found = follower.take(Frame(finding.source, b"", number, payload, 0.0))
    return any(each.fault is finding.fault and each.key == finding.key for each in found)
