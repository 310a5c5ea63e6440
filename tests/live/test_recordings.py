"""Recordings, audits of them, and excerpts that show what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from attrs import evolve

from kvcanon.live.against import Comparison, compare
from kvcanon.live.audit import audit, excerpt_of
from kvcanon.live.follower import FollowerConfig
from kvcanon.live.frames import Arrived, BrokenFrame, Frame, Source
from kvcanon.live.input_files import BadRecording
from kvcanon.live.stream_faults import Fault
from kvcanon.live.stream_recording import MAGIC, StreamRecorder, open_recording
from sent_events import CLEARED, batch, frame, frames_of, recorded, remove, store, tail

LONG = store(range(0, 400, 4))
HASHES: list[int] = LONG["block_hashes"]


def test_frames_come_back_as_they_were(tmp_path: Path) -> None:
    """Each field of a frame is kept; backwards they come in the other order."""
    frames: list[Arrived] = [
        Frame(0, b"kv", 0, batch(CLEARED), 1.5),
        Frame(1, b"", 2**63, b"", 2.000001, replayed=True),
        BrokenFrame(1, "has 2 parts", 3.0),
        Frame(0, b"kv", 1, bytes(2_000_000), 4.0, anew=True),
        Frame(0, b"kv", 2, batch(LONG), 5.0),
    ]
    sources = Source("tcp://engine:5557", "tcp://engine:5558"), Source("tcp://other:5557")
    with StreamRecorder(tmp_path / "a", sources) as recorder:
        for each in frames:
            recorder.write(each)
    recording = open_recording(tmp_path / "a")
    assert recording.sources == sources
    assert list(recording.frames()) == frames
    assert list(recording.frames_backwards()) == frames[::-1]
    assert len(recording.blocks) == 2
    assert recording.cut_off == 0


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_recording_that_was_cut_off_is_read_so_far(tmp_path: Path, cut: int) -> None:
    """A recorder that was killed leaves all blocks that it had written."""
    whole = recorded(tmp_path / "a", frames_of([CLEARED], [LONG]), flush_each=True)
    (tmp_path / "b").write_bytes(whole.path.read_bytes()[:-cut])
    recording = open_recording(tmp_path / "b")
    assert len(list(recording.frames())) == 1
    assert recording.cut_off > 0


def test_damaged_recordings_are_refused(tmp_path: Path) -> None:
    """A file that is no recording, or has other bytes than were written, is refused."""
    path = recorded(tmp_path / "a", frames_of([CLEARED], [LONG])).path
    good = path.read_bytes()
    for damaged, problem in (
        (b"", "is no recording"),
        (b"KVSTRM99" + good[8:], "of version .99."),
        (MAGIC + b"\1\0\0\0{", "damaged header"),
        (good[:-1] + bytes([good[-1] ^ 1]), "damaged at byte"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(BadRecording, match=problem):
            list(open_recording(path).frames())
    with pytest.raises(BadRecording, match="cannot be read"):
        open_recording(tmp_path)


def test_a_sound_recording_breaks_nothing(tmp_path: Path) -> None:
    """An audit counts what there is, and finds nothing."""
    sent = frames_of([CLEARED], [LONG], [remove(HASHES)])
    streams = audit(recorded(tmp_path / "a", sent)).streams
    assert (streams.total, streams.events, streams.pages) == (0, 3, 200)
    assert streams.followers[0].books()[0].blocks() == {"GPU": 0}


NOISE = [[store([number])] for number in range(1000, 1400, 4)]
"""Events that have nothing to do with a fault."""


@pytest.mark.parametrize(
    ("fault", "before", "last", "steps"),
    [
        (Fault.STORED_TWICE, [[LONG]], [tail(LONG, 99)], 2),
        (Fault.REMOVED_ABSENT, [[LONG]], [remove([HASHES[-1]]), remove([HASHES[-1]])], 1),
        (Fault.PARENT_ABSENT, [[LONG], [remove(HASHES)]], [tail(LONG, 99)], 1),
        (Fault.CHILD_STAYS, [[LONG]], [remove([HASHES[50]])], 3),
        (
            Fault.WRONG_HASH,
            [[store([0, 4, 8])]],
            [tail(store([0, 4, 12]), 2) | {"token_ids": [9] * 4}],
            3,
        ),
        (Fault.OTHER_BLOCK_SIZE, [[LONG]], [store([5000], size=8)], 2),
        (Fault.NO_TOKENS, [[LONG]], [{**LONG, "token_ids": [], "medium": "CPU"}], 1),
        (Fault.UNSEEDED_HASH, [], [store([5000]) | {"cache_salt": "s"}], 1),
        (Fault.NOT_CLEARED_FIRST, [], [], 0),
    ],
)
def test_excerpts_are_short_and_show_the_fault(
    tmp_path: Path,
    fault: Fault,
    before: list[list[dict[str, Any]]],
    last: list[dict[str, Any]],
    steps: int,
) -> None:
    """Of hundreds of events an excerpt keeps those few that break the law by themselves."""
    first = [] if fault is Fault.NOT_CLEARED_FIRST else [CLEARED]
    sent = frames_of(first, *NOISE[:50], *before, *NOISE[50:], last)
    recording = recorded(tmp_path / "a", sent, flush_each=True)
    result = audit(recording)
    (found,) = [each for each in result.streams.findings if each.fault is fault][:1]
    excerpt = excerpt_of(recording, found, FollowerConfig())
    if fault is Fault.NOT_CLEARED_FIRST:
        return
    assert excerpt.shows
    assert len(excerpt.steps) == steps, [step.event for step in excerpt.steps]
    assert fault in {each.finding.fault for each in result.excerpts}


@pytest.mark.parametrize(
    "sent",
    [
        ["BlockRemoved", 2],
        ["BlockRemoved", [None]],
        ["BlockStored", [2.5], None, [1], 1],
        ["BlockStored", [2], [3], [1], 1],
        ["BlockStored", [2], None, 7, 1],
        {"type": "BlockStored", "block_hashes": [5], "medium": ["GPU"]},
    ],
)
def test_an_excerpt_passes_over_what_cannot_be_read(tmp_path: Path, sent: object) -> None:
    """A batch with fields of wrong types is a finding, and no end of the search for another."""
    bad = msgspec.msgpack.encode([1.0, [sent]])
    sent = [frame(0, CLEARED), frame(1, LONG), frame(3, store([5000], size=8))]
    sent.insert(2, evolve(frame(2), payload=bad))
    result = audit(recorded(tmp_path / "a", sent))
    assert result.streams.by_law() == {"WIRE-2": 1, "EVENT-9": 1}
    assert [len(each.steps) for each in result.excerpts] == [0, 2]


def test_a_chain_of_blocks_is_part_of_the_excerpt(tmp_path: Path) -> None:
    """A wrong hash is shown with the blocks from the first page on, as it follows from them."""
    wrong = tail(LONG, 40) | {"block_hashes": [7, *HASHES[41:]]}
    sent = frames_of([CLEARED], *NOISE, [LONG], [remove(HASHES[40:])], [wrong])
    (excerpt,) = audit(recorded(tmp_path / "a", sent)).excerpts
    assert excerpt.shows
    assert len(excerpt.steps) == 41


def compared(folder: Path, first: list[Frame], second: list[Frame]) -> Comparison:
    """Two streams, compared."""
    one, other = recorded(folder / "first", first), recorded(folder / "second", second)
    return compare(one, other, FollowerConfig())


def test_equal_streams_are_equal_however_batches_are_cut(tmp_path: Path) -> None:
    """Two ranks that do the same are equal, also where one hashes otherwise."""
    half = [{**LONG, "block_hashes": [each + 1 for each in HASHES]}]
    gone = [remove([each + 1 for each in reversed(HASHES)])]
    result = compared(
        tmp_path,
        frames_of([CLEARED], [LONG], [remove(HASHES[::-1])]),
        frames_of([CLEARED, *half, *gone]),
    )
    assert result.is_equal
    assert result.is_same_sum
    assert result.happenings == (201, 201)


def test_streams_that_differ_are_told_apart(tmp_path: Path) -> None:
    """What one stream has alone is counted, and the first difference is named."""
    shorter = frames_of([CLEARED], [LONG])
    result = compared(tmp_path, shorter, [*shorter, frame(2, remove(HASHES[-3:]))])
    assert result.first_difference == 101
    assert result.only_second == {"removed from GPU": 3}
    assert not result.only_first
    assert result.resident == (97, 3, 0)
    assert not result.is_same_sum
    other = store([9000])
    swapped = frames_of([CLEARED], [other], [LONG]), frames_of([CLEARED], [LONG], [other])
    result = compared(tmp_path, *swapped)
    assert (result.is_equal, result.is_same_sum) == (False, True)


def test_a_frame_of_a_publisher_that_is_not_named_is_damage(tmp_path: Path) -> None:
    """It is said in words, in whichever order frames are read."""
    recording = recorded(tmp_path / "a", [frame(0, CLEARED, source=2)], "tcp://a:1", "tcp://b:1")
    for read in (recording.frames, recording.frames_backwards):
        with pytest.raises(BadRecording, match="has a frame of publisher 2, which it does not"):
            list(read())
