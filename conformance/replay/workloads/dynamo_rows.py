"""Request traces of NVIDIA Dynamo: a record for each request, written when the request has ended.

A record has a `schema`, an `event_type`, and for `request_end` a `request`. Its `replay` has
`input_length`, `trace_block_size` (both in tokens) and `input_sequence_hashes`: one hash for each
block of the prompt, of all tokens up to the end of the block. Files that other sinks wrote have the
record below `event`. Records of tools and of payloads are no requests, and are left out.

Trap: records stand in the order in which requests ended; `request_received_ms` says when they came.

Source: https://docs.nvidia.com/dynamo/dev/reference/observability/request-traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from kvcanon.conformance.replay.workloads.block_rows import BlockRow, block_ids
from kvcanon.conformance.replay.workloads.trace_lines import (
    Fields,
    NotARequest,
    kind_of,
    number_of,
    present,
    whole_number,
)
from kvcanon.spec.oracle.pages import pages_covering

SCHEMA = "dynamo.request.trace.v1"
REQUEST = "request_end"
OTHERS = frozenset({"request_payload", "tool_start", "tool_end", "tool_error"})
"""The types of records that are no requests."""
HASHES = "input_sequence_hashes"


@frozen
class DynamoRow:
    """A request, and the size of its blocks."""

    row: BlockRow
    block_tokens: int


def is_dynamo_row(fields: Fields) -> bool:
    """Whether a row is a record of a request trace."""
    return _record(fields).get("schema") == SCHEMA


def is_no_request(fields: Fields) -> bool:
    """Whether a row is a record of a tool or a payload."""
    return _record(fields).get("event_type") in OTHERS


def dynamo_row(line: int, fields: Fields) -> DynamoRow:
    """The request of a record. Raises: NotARequest."""
    record = _record(fields)
    if record.get("schema") != SCHEMA or record.get("event_type") != REQUEST:
        raise NotARequest(
            f"must be a {REQUEST} of {SCHEMA}, and is a {record.get('event_type')} of "
            f"{record.get('schema')}"
        )
    request = _part(record, "request")
    replay = _part(request, "replay")
    size = whole_number(replay, "trace_block_size", least=1)
    length = whole_number(replay, "input_length", least=1)
    ids = tuple(block_ids(replay, HASHES))
    if len(ids) != pages_covering(length, size):
        raise NotARequest(
            f"input_length {length} takes {pages_covering(length, size)} blocks of {size} tokens, "
            f"but {HASHES} has {len(ids)}"
        )
    arrival_ms = number_of(request, "request_received_ms")
    return DynamoRow(BlockRow(line, length, ids, 0, arrival_ms, 0.0, None), size)


def in_order_of_arrival(rows: Sequence[BlockRow]) -> list[BlockRow]:
    """The rows in the order in which their requests came, with times after the first of them."""
    first_ms = min(row.arrival_ms or 0.0 for row in rows)
    later = [evolve(row, arrival_ms=(row.arrival_ms or 0.0) - first_ms) for row in rows]
    return sorted(later, key=lambda row: row.arrival_ms or 0.0)


def _record(fields: Fields) -> Fields:
    event = fields.get("event")
    return event if isinstance(event, Mapping) else fields


def _part(fields: Fields, name: str) -> Fields:
    value = present(fields, name)
    if not isinstance(value, Mapping):
        raise NotARequest(f"{name} must be an object, and is {kind_of(value)}")
    return value
