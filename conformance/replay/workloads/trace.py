"""Recorded requests: reads a trace in any form that the modules `*_rows` know.

A file that has lengths and no prefixes cannot be replayed on a prefix cache, and is refused with
what it lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.block_rows import (
    BLOCK_TOKENS,
    IDS,
    SESSION,
    BlockRow,
    Turns,
    block_row,
    likeliest_size,
    requests_of,
    sizes_that_fit,
    turns_of,
)
from kvcanon.conformance.replay.workloads.dynamo_rows import (
    DynamoRow,
    dynamo_row,
    in_order_of_arrival,
    is_dynamo_row,
    is_no_request,
)
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.token_rows import (
    CHATS,
    TEXTS,
    TOKENS,
    is_token_row,
    requests_of_row,
    tokenizer_named,
)
from kvcanon.conformance.replay.workloads.trace_lines import (
    Fields,
    NotARequest,
    TraceError,
    fields_of,
    numbered_lines,
    opened,
    parsed,
)
from kvcanon.spec.oracle.pages import pages_covering

KNOWN = (
    f"a row needs one of {', '.join((*IDS, *TOKENS, *TEXTS, *CHATS))}, or is of Dynamo's request "
    "traces or of an OpenAI batch"
)
ELSEWHERE = (
    "; replay such a log through a load generator that makes prompts, and record their tokens, or "
    "leave --trace out for generated chats"
)
LENGTHS_ALONE = ("BurstGPT", "Timestamp,Model,Request tokens"), ("Azure's", "TIMESTAMP,Context")
"""Published traces without prefixes, with the beginning of their first lines."""


@frozen
class TraceOptions:
    """What a trace does not say of itself."""

    block_tokens: int | None = None
    """Tokens an id; None for what fits the rows."""
    tokenizer: str | None = None
    turns: Turns = Turns.AUTO


@frozen
class Trace:
    """The requests of a trace, and how it was read where that was not plain."""

    requests: tuple[Request, ...]
    notes: tuple[str, ...] = ()
    block_tokens: int | None = None
    """Tokens an id, if prompts are given by ids: no two prompts part within so many."""


def load_trace(path: Path, limit: int | None = None) -> tuple[Request, ...]:
    """The requests of a trace in the order of its rows. Raises: as `read_trace`."""
    return read_trace(path, limit=limit).requests


def read_trace(path: Path, options: TraceOptions | None = None, limit: int | None = None) -> Trace:
    """The requests of a trace, or of its first `limit` rows, in the order of the rows.

    Those of Dynamo's request traces are in the order of arrival.

    Raises:
        TraceError: a row is not a request, or the file has none.
        UsageError: an option does not fit the trace.
        OSError: the file cannot be read.
    """
    options = options or TraceOptions()
    rows = islice((row for row in _rows(path) if not is_no_request(row[1])), limit)
    first = next(rows, None)
    if first is None:
        raise TraceError(path, None, "holds no request")
    everything = _again(first, rows)
    if is_dynamo_row(first[1]):
        return _of_dynamo(path, everything, options)
    if any(name in first[1] for name in IDS):
        return _of_blocks(path, everything, options)
    if is_token_row(first[1]):
        return _of_tokens(path, everything, options, limit)
    raise TraceError(path, first[0], _why_unknown(first[1]))


def _again(
    first: tuple[int, Fields], rows: Iterator[tuple[int, Fields]]
) -> Iterator[tuple[int, Fields]]:
    yield first
    yield from rows


def _rows(path: Path) -> Iterator[tuple[int, Fields]]:
    """The rows with their numbers: lines of JSON, or entries of one JSON list."""
    with opened(path) as file:
        lines = numbered_lines(path, file)
        for number, line in lines:
            if number == 1 and line.lstrip().startswith(b"["):
                whole = b"\n".join((line, *(each for _, each in lines)))
                yield from _entries(path, whole)
                return
            try:
                yield number, fields_of(line)
            except NotARequest as error:
                raise TraceError(path, number, _why_no_json(line, str(error))) from None


def _entries(path: Path, whole: bytes) -> Iterator[tuple[int, Fields]]:
    try:
        entries = parsed(whole)
    except NotARequest as error:
        raise TraceError(path, None, str(error)) from None
    for number, entry in enumerate(entries if isinstance(entries, list) else (), start=1):
        if not isinstance(entry, dict):
            raise TraceError(path, number, "is an entry that is not an object")
        yield number, entry


def _why_no_json(line: bytes, problem: str) -> str:
    for whose, begin in LENGTHS_ALONE:
        if line.decode(errors="replace").startswith(begin):
            return (
                f"is of {whose} traces, which have lengths and do not say which prompts begin "
                f"alike{ELSEWHERE}"
            )
    return problem


def _why_unknown(fields: Fields) -> str:
    there = ", ".join(list(fields)[:8]) or "nothing"
    return f"does not say which prompts begin alike: it has {there}; {KNOWN}{ELSEWHERE}"


def _require_unused(path: Path, rows: str, **given: object) -> None:
    """Refuse options that rows of this form do not need. Raises: UsageError."""
    for name, value in given.items():
        if value not in (None, Turns.AUTO):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{path} has {rows}, of which {option} says nothing; leave it out")


def _of_blocks(path: Path, rows: Iterator[tuple[int, Fields]], options: TraceOptions) -> Trace:
    _require_unused(path, "ids of blocks", tokenizer=options.tokenizer)
    read: list[BlockRow] = []
    for number, fields in rows:
        try:
            read.append(block_row(number, fields))
        except NotARequest as error:
            raise TraceError(path, number, str(error)) from None
    size = _block_tokens(path, read, options.block_tokens)
    turns = options.turns
    if turns is Turns.AUTO:
        turns = turns_of(read)
    notes = [] if size == BLOCK_TOKENS else [f"{size} tokens an id"]
    sessions = [row.session for row in read if row.session is not None]
    if len(set(sessions)) < len(sessions):
        added = "a turn adds to those before it and their replies"
        notes.append("each turn is a whole prompt" if turns is Turns.WHOLE else added)
    return Trace(requests_of(read, size, turns), tuple(notes), size)


def _of_dynamo(path: Path, rows: Iterator[tuple[int, Fields]], options: TraceOptions) -> Trace:
    _require_unused(path, "Dynamo's records", turns=options.turns, tokenizer=options.tokenizer)
    read: list[DynamoRow] = []
    for number, fields in rows:
        try:
            read.append(dynamo_row(number, fields))
        except NotARequest as error:
            raise TraceError(path, number, str(error)) from None
    size = read[0].block_tokens
    for each in read:
        if each.block_tokens != size:
            problem = f"has blocks of {each.block_tokens} tokens, after blocks of {size}"
            raise TraceError(path, each.row.line, problem)
    if options.block_tokens not in (None, size):
        raise UsageError(f"{path} has blocks of {size} tokens; leave --block-tokens out")
    requests = requests_of(in_order_of_arrival([each.row for each in read]), size, Turns.WHOLE)
    return Trace(requests, (f"{size} tokens an id",), size)


def _block_tokens(path: Path, rows: Sequence[BlockRow], given: int | None) -> int:
    """The tokens an id. Raises: TraceError, UsageError."""
    fitting = sizes_that_fit(rows) if given is None else ()
    if BLOCK_TOKENS in fitting:
        return BLOCK_TOKENS
    if fitting[1:]:
        sizes = " and ".join(map(str, sorted(fitting)))
        raise UsageError(f"{path} fits ids of {sizes} tokens; say which by --block-tokens")
    size = fitting[0] if fitting else given or likeliest_size(rows)
    for row in rows:
        if not row.fits(size):
            tried = (
                "; most rows fit that, none of the usual sizes fits all: give --block-tokens"
                if given is None
                else ""
            )
            raise TraceError(
                path,
                row.line,
                f"input_length {row.length} takes {pages_covering(row.length, size)} blocks of "
                f"{size} tokens, but hash_ids has {len(row.ids)}{tried}",
            )
    return size


def _of_tokens(
    path: Path,
    rows: Iterator[tuple[int, Fields]],
    options: TraceOptions,
    limit: int | None,
) -> Trace:
    _require_unused(path, "whole prompts", turns=options.turns, block_tokens=options.block_tokens)
    tokenize = tokenizer_named(options.tokenizer)
    requests: list[Request] = []
    in_session = False
    for number, fields in rows:
        in_session = in_session or SESSION in fields
        try:
            requests.extend(requests_of_row(fields, tokenize))
        except NotARequest as error:
            raise TraceError(path, number, str(error)) from None
    notes: list[str] = []
    if tokenize is not None:
        notes.append(f"tokens by {options.tokenizer}, without a chat template")
    if in_session:
        notes.append("each row is a whole prompt, also in a session")
    return Trace(tuple(requests[:limit]), tuple(notes))
