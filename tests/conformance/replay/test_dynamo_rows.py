"""Request traces of Dynamo: which records are requests, in which order, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.trace import Trace, TraceOptions, read_trace
from kvcanon.conformance.replay.workloads.trace_lines import TraceError


def record(received_ms: float, *hashes: object, length: int = 0, size: int = 4) -> dict[str, Any]:
    """A record of a request that has ended, with whole blocks if no length is given."""
    replay = {
        "trace_block_size": size,
        "input_length": length or size * len(hashes),
        "input_sequence_hashes": hashes,
    }
    request = {"request_id": "r", "output_tokens": 2, "request_received_ms": received_ms}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": received_ms + 10,
        "request": request | {"replay": replay},
    }


def other(kind: str) -> dict[str, Any]:
    """A record of something else."""
    return {"schema": "dynamo.request.trace.v1", "event_type": kind, "event_time_unix_ms": 1}


def read(folder: Path, *rows: object, limit: int | None = None, size: int | None = None) -> Trace:
    """Read a trace of some records."""
    path = folder / "trace.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return read_trace(path, TraceOptions(block_tokens=size), limit)


def test_equal_hashes_are_equal_beginnings(tmp_path: Path) -> None:
    """Prompts share the blocks whose hashes are equal; the last block may be partial."""
    first, second = read(tmp_path, record(0, 7, 8), record(1, 7, 9, length=6)).requests
    assert (first.length_tokens, second.length_tokens) == (8, 6)
    one, two = first.make_tokens(), second.make_tokens()
    assert one[:4] == two[:4]
    assert one[4] != two[4]


def test_block_size_is_that_of_the_records(tmp_path: Path) -> None:
    """No option is needed, and another number is refused."""
    trace = read(tmp_path, record(0, 1, 2, 3, length=100, size=48))
    assert (trace.block_tokens, trace.notes) == (48, ("48 tokens an id",))
    assert read(tmp_path, record(0, 1), size=4).block_tokens == 4
    with pytest.raises(UsageError, match=r"has blocks of 4 tokens; leave --block-tokens out"):
        read(tmp_path, record(0, 1), size=8)


def test_requests_are_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    """A record is written when its request ends: the longer request came first here."""
    late, early = record(1_700_000_000_500, 1), record(1_700_000_000_100, 2, 3)
    requests = read(tmp_path, late, early).requests
    assert [each.length_tokens for each in requests] == [8, 4]
    assert [each.arrival_ms for each in requests] == [0, 400]


def test_a_turn_is_a_whole_prompt(tmp_path: Path) -> None:
    """Records of one session have the prompt as it was sent, not what a turn adds."""
    turns = [{**record(at, *range(at + 1)), "agent_context": {"session_id": "s"}} for at in (0, 1)]
    assert [each.length_tokens for each in read(tmp_path, *turns).requests] == [4, 8]


@pytest.mark.parametrize("kind", ["request_payload", "tool_start", "tool_end", "tool_error"])
def test_records_of_other_things_are_left_out(tmp_path: Path, kind: str) -> None:
    """They stand between requests, also first, and count for no limit."""
    rows = other(kind), record(0, 1), other(kind), record(1, 2), record(2, 3)
    assert len(read(tmp_path, *rows).requests) == 3
    assert len(read(tmp_path, *rows, limit=2).requests) == 2
    with pytest.raises(TraceError, match="holds no request"):
        read(tmp_path, other(kind))


def test_a_record_may_stand_below_its_event(tmp_path: Path) -> None:
    """As the recorders of other sinks write it, with a time of their own."""
    rows = [{"timestamp": 9, "event": each} for each in (other("tool_end"), record(0, 1))]
    assert len(read(tmp_path, *rows).requests) == 1


def changed(**fields: object) -> dict[str, Any]:
    """A record with other fields of its replay; None takes one out."""
    row = record(0, 1, 2)
    replay = row["request"]["replay"] | fields
    row["request"]["replay"] = {name: each for name, each in replay.items() if each is not None}
    return row


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (changed(trace_block_size=None), "trace_block_size is missing"),
        (changed(trace_block_size=0), "trace_block_size must be at least 1, and is 0"),
        (changed(input_length="8"), "input_length must be a whole number, and is a string"),
        (changed(input_sequence_hashes=[1]), "takes 2 blocks of 4 tokens, but input_sequence_hash"),
        (changed(input_sequence_hashes=[1, None]), "input_sequence_hashes[1] must be a whole numb"),
        (changed(input_sequence_hashes=None), "input_sequence_hashes is missing"),
        ({**record(0, 1), "request": {"request_id": "r"}}, "replay is missing"),
        ({**record(0, 1), "request": None}, "request must be an object, and is null"),
        (other("request_end"), "request is missing"),
        (other("request_begin"), "must be a request_end of dynamo.request.trace.v1, and is a requ"),
        ({"prompt": "the cat"}, "must be a request_end of dynamo.request.trace.v1, and is a None"),
        (record(0, 1, 2, size=8), "has blocks of 8 tokens, after blocks of 4"),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, row: object, says: str) -> None:
    """A record that is none is refused with its line."""
    with pytest.raises(TraceError) as caught:
        read(tmp_path, record(0, 1), row)
    assert f"{tmp_path}/trace.jsonl:2: " in str(caught.value)
    assert says in str(caught.value)


def test_a_record_without_its_time_is_refused(tmp_path: Path) -> None:
    """Without it nobody knows which request came first."""
    row = record(0, 1)
    del row["request"]["request_received_ms"]
    with pytest.raises(TraceError, match="request_received_ms is missing"):
        read(tmp_path, row)
