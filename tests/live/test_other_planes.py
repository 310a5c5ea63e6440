"""Files of other planes: TensorRT-LLM's events, Dynamo's router events, raw batches."""

from __future__ import annotations

import gzip
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import read_json, usage_error
from kvcanon.live.audit import audit
from kvcanon.live.follower import FollowerConfig
from kvcanon.live.frames import Frame
from kvcanon.live.input_files import BadRecording
from kvcanon.live.other_planes import open_stream
from kvcanon.spec.law import LAWS
from kvcanon.spec.wire import WIRE_LAWS
from sent_events import CLEARED, batch, store

GOLDEN = Path(__file__).parent / "golden"
PROMPT = store([10, 20, 30])
Event = dict[str, Any]


def trt(number: int, window: int = 128, rank: int | None = None, **data: object) -> Event:
    """An event of TensorRT-LLM."""
    event: Event = {"event_id": number, "window_size": window, "data": data}
    return event if rank is None else event | {"attention_dp_rank": rank}


def trt_block(block_hash: int | str, *tokens: int, **fields: object) -> Event:
    """A block in a store of TensorRT-LLM."""
    told = [{"type": "unique_token", "token_id": each, "token_extra_id": 0} for each in tokens]
    block: Event = {"type": "stored_block", "block_hash": block_hash, "tokens": told}
    return block | {"cache_level": 0, "priority": 35, "mm_keys": []} | fields


def level(old: int, new: int) -> Event:
    """A move between levels."""
    return {"type": "event_diff", "old_value": old, "new_value": new}


TRT = [
    trt(0, type="created", num_blocks_per_cache_level=[8, 2]),
    trt(1, type="stored", parent_hash=None, blocks=[trt_block(1, 1, 2, 3), trt_block(2, 4, 5, 6)]),
    trt(2, type="stored", parent_hash=2, blocks=[trt_block(3, 7)]),
    trt(3, 32, type="stored", parent_hash=None, blocks=[trt_block(1, 1, 2, 3)]),
    trt(4, type="updated", block_hash=3, cache_level=level(0, 1), priority=None),
    trt(5, type="updated", block_hash=2, cache_level=None, priority=level(35, 80)),
    trt(6, 32, type="removed", block_hashes=[1]),
    trt(7, type="removed", block_hashes=[3]),
    trt(8, type="removed", block_hashes=[2, 1]),
]


def written(path: Path, events: list[Event], *, lines: bool = False) -> Path:
    """A file of events, as one list or line by line."""
    text = "\n".join(map(json.dumps, events)) if lines else json.dumps(events)
    path.write_text(text, encoding="utf-8")
    return path


def laws(path: Path) -> dict[str, int]:
    """How often a file breaks which laws."""
    return dict(audit(open_stream(path), FollowerConfig()).streams.by_law())


@pytest.mark.parametrize("lines", [False, True])
def test_events_of_tensorrt_are_folded(tmp_path: Path, lines: bool) -> None:
    """Windows are groups, a level is a medium, and a last block may be short; nothing is found."""
    path = written(tmp_path / "a", TRT[:6], lines=lines)
    assert laws(path) == {}
    streams = audit(open_stream(path), FollowerConfig()).streams
    window, full = streams.of(0).books()
    assert (window.group_words, full.group_words) == ("group 0 window 32", "group 1 full")
    assert full.blocks() == {"GPU": 2, "CPU_PINNED": 1}
    assert laws(written(tmp_path / "b", TRT, lines=lines)) == {}


@pytest.mark.parametrize(
    ("planted", "law"),
    [
        (TRT[:7] + TRT[8:], "WIRE-1"),
        ([*TRT[:8], TRT[8] | {"data": {"type": "removed", "block_hashes": [1, 2, 9]}}], "EVENT-2"),
        ([*TRT[:8], TRT[8] | {"data": {"type": "removed", "block_hashes": [1]}}], "EVENT-12"),
        ([*TRT[:2], TRT[2] | {"data": TRT[2]["data"] | {"parent_hash": 77}}], "EVENT-1"),
        (
            [
                *TRT[:2],
                trt(2, type="stored", parent_hash=1, blocks=[trt_block(2, 4, 5, 9)]),
            ],
            "EVENT-7",
        ),
    ],
)
def test_faults_in_events_of_tensorrt_are_found(
    tmp_path: Path, planted: list[Event], law: str
) -> None:
    """A lost event, a remove of nothing, a head that leaves first, a parent that is not there."""
    assert law in laws(written(tmp_path / "a", planted))


def test_ranks_of_tensorrt_are_publishers(tmp_path: Path) -> None:
    """Each numbers its own events."""
    both = [event | {"attention_dp_rank": rank} for event in TRT for rank in (0, 1)]
    path = written(tmp_path / "a", both)
    assert laws(path) == {}
    assert [each.endpoint for each in open_stream(path).sources] == ["rank 0", "rank 1"]


def dynamo(worker: int, number: int, data: object) -> Event:
    """An event of Dynamo's routers."""
    return {"worker_id": worker, "event": {"event_id": number, "data": data, "dp_rank": 0}}


def dynamo_store(parent: int | None, *hashes: int) -> Event:
    """What a worker stored."""
    blocks = [{"block_hash": each, "tokens_hash": each << 40 | 7} for each in hashes]
    return {"stored": {"parent_hash": parent, "blocks": blocks}}


def test_dumps_of_dynamo_are_what_workers_have(tmp_path: Path) -> None:
    """Whatever their numbers; a block without the one before it is found."""
    dump = [dynamo(3, 10, dynamo_store(None, 1)), dynamo(4, 11, dynamo_store(None, 1, 2))]
    dump.append(dynamo(3, 12, dynamo_store(1, 5)))
    path = written(tmp_path / "a", dump)
    assert laws(path) == {}
    assert [each.endpoint for each in open_stream(path).sources] == ["worker 3", "worker 4"]
    dump.append(dynamo(4, 13, dynamo_store(99, 6)))
    assert laws(written(tmp_path / "b", dump)) == {"EVENT-1": 1}


def test_recordings_of_dynamo_are_streams(tmp_path: Path) -> None:
    """Line by line, with times; a number that is missing is a gap."""
    sent = [
        dynamo(3, 0, "cleared"),
        dynamo(3, 1, dynamo_store(None, 1, 2)),
        dynamo(3, 2, {"removed": {"block_hashes": [2]}}),
    ]
    lines = [{"timestamp": 1000 + n, "event": each} for n, each in enumerate(sent)]
    assert laws(written(tmp_path / "a", lines, lines=True)) == {}
    assert laws(written(tmp_path / "b", [lines[0], lines[2]], lines=True)) == {"WIRE-1": 1}
    twice = [*lines, lines[2] | {"event": dynamo(3, 3, sent[2]["event"]["data"])}]
    assert laws(written(tmp_path / "c", twice, lines=True)) == {"EVENT-2": 1}


def test_raw_batches_are_folded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Payloads one after the other, and whole frames; a file may begin in the middle."""
    recording = open_stream(GOLDEN / "streams" / "sglang-hicache.kvstream")
    payloads = [each.payload for each in recording.frames() if isinstance(each, Frame)]
    path = tmp_path / "a"
    path.write_bytes(b"".join(payloads))
    assert laws(path) == {}
    path.write_bytes(b"".join(payloads[20:]))
    assert laws(path) == {}
    framed = [
        msgspec.msgpack.encode([b"kv", number.to_bytes(8, "big"), payload])
        for number, payload in enumerate(payloads)
        if number != 30
    ]
    path.write_bytes(b"".join(framed))
    assert laws(path)["WIRE-1"] == 1
    path.write_bytes(batch(CLEARED) + batch(PROMPT) + batch(PROMPT))
    result = read_json(capsys, "audit", str(path), code=1)
    assert result["by_law"] == {"EVENT-2": 3}
    assert result["excerpts"][0]["shows"]


@pytest.mark.parametrize(
    "contents",
    [b"", b"{", b"[]", b"[1]", b'{"a": 1}', b"\xc1", b"\x93\x01", b"text", b'[{"event": {}}]',
     b'[{"event_id": 0, "data": {"type": "stored", "blocks": [{"tokens": 3}]}}]', b"[" * 100_000],
)  # fmt: skip
def test_other_files_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], contents: bytes
) -> None:
    """The line says what can be read."""
    path = tmp_path / "a"
    path.write_bytes(contents)
    assert str(path) in usage_error(capsys, "audit", str(path))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, file: bytes
) -> None:
    """No file ends in a traceback."""
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(file)
    with suppress(BadRecording):
        assert set(laws(path)) <= {*WIRE_LAWS, *LAWS}


@pytest.mark.parametrize("event_id", [-1, 1 << 64, 10**400, 1.5, "1", None, float("nan")])
def test_numbers_that_no_event_has_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], event_id: object
) -> None:
    """JSON has numbers of any size, and others than whole ones."""
    last = trt(0, type="removed", block_hashes=[2, 1]) | {"event_id": event_id}
    path = written(tmp_path / "a", [*TRT[:3], last])
    assert "is no recording" in usage_error(capsys, "audit", str(path))


@pytest.mark.parametrize("numbers", [(0, 2**64 - 1), (0, 2**63, 2**63 + 1, 2**64 - 1), (3, 2**62)])
def test_any_number_of_a_frame_can_come_next(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    """A publisher may lose more batches than a length can say."""
    frames = [(b"", each.to_bytes(8, "big"), batch(CLEARED)) for each in numbers]
    path = tmp_path / "a"
    path.write_bytes(b"".join(map(msgspec.msgpack.encode, frames)))
    assert "WIRE-1" in laws(path)


@pytest.mark.parametrize("frame", [(1 << 40, bytes(8), b"x"), (b"", bytes(8), 5), (b"", b"1", b"")])
def test_parts_of_a_frame_are_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], frame: tuple[object, ...]
) -> None:
    """A number in place of bytes says how long nothing is."""
    path = tmp_path / "a"
    path.write_bytes(msgspec.msgpack.encode(frame))
    assert "is no recording" in usage_error(capsys, "audit", str(path))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_text_of_windows_is_read(tmp_path: Path, encoding: str, line_end: str) -> None:
    """PowerShell writes a mark first, UTF-16, and line ends of two characters."""
    path = tmp_path / "a"
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    path.write_bytes((mark + line_end.join(map(json.dumps, TRT))).encode(encoding))
    assert laws(path) == {}


def test_blocks_without_keys_of_media_are_read(tmp_path: Path) -> None:
    """Releases of TensorRT-LLM before them name none."""
    events = json.loads(json.dumps(TRT))
    for block in events[1]["data"]["blocks"]:
        del block["mm_keys"]
    assert laws(written(tmp_path / "a", events)) == {}


@pytest.mark.parametrize(
    ("contents", "says"),
    [
        (gzip.compress(b"KVSTRM02" * 99, mtime=0)[:40], "is packed by gzip; unpack it first"),
        (b"\x28\xb5\x2f\xfd" + bytes(9), "is packed by zstd"),
        (b"KVSTRM03" + bytes(99), "is a recording of version '03', which this kvcanon does not"),
        (b"KVSTRM\xff\x00", "is a recording of version"),
    ],
)
def test_other_recordings_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], contents: bytes, says: str
) -> None:
    """The line says what to do with a packed one, and with one of another version."""
    path = tmp_path / "a"
    path.write_bytes(contents)
    for options in ((), ("--against", str(path))):
        assert says in usage_error(capsys, "audit", str(path), *options)


@pytest.mark.parametrize("option", ["", "--served", "--against"])
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_devices_and_pipes_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, option: str
) -> None:
    """A device may give bytes for ever, and a pipe none."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "pipe"
    if kind == "pipe":
        os.mkfifo(path)
    good = str(written(tmp_path / "good", TRT))
    arguments = (good, option, str(path)) if option else (str(path),)
    says = usage_error(capsys, "audit", *arguments)
    assert f"{path} is a device or a pipe; write what it gives into a file" in says
