"""Recorded requests, in the JSONL format of the Mooncake traces.

A line is a request: `timestamp` (milliseconds), `input_length` and `output_length` (tokens), and
`hash_ids`, one id for each block of 512 prompt tokens. Equal id means equal tokens and equal
prefix. The prompts themselves were never published: here each id stands for 512 token ids of its
own, the same in each run and on every machine.

Trap: the last block may be partial, and is then cut to `input_length`. Its id is that of the
partial block; the prompt that continues it has another id at this place.

Sources: https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from random import Random

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.spec.oracle.pages import pages_covering

BLOCK_TOKENS = 512
"""Tokens per id."""


@frozen
class TraceError(UsageError):
    """A trace cannot be used: a line is not a request, or there is none."""

    path: Path
    line: int | None
    """Number of the bad line, from 1; None if the whole file is bad."""
    problem: str

    def __str__(self) -> str:
        place = f"{self.path}" if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.problem}"


class _NotARequest(Exception):
    """What is wrong with a line, as the end of a sentence that begins with the line."""


class BlockTokens:
    """Gives each block id its 512 tokens.

    The first token is the block's number, by order of first appearance, so that two blocks differ
    from their first token on; the other tokens are a range of one table.
    """

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def number(self, block_id: int) -> int:
        """Return the number of a block: always the same integer object."""
        return self._numbers.setdefault(block_id, len(self._numbers))

    def prompt(self, numbers: tuple[int, ...], length_tokens: int) -> tuple[int, ...]:
        """Return `length_tokens` tokens of consecutive blocks; the last block may be cut."""
        tokens: list[int] = []
        for number in numbers:
            start = number * _STRIDE % _STARTS
            tokens.append(number)
            tokens.extend(self._table[start : start + BLOCK_TOKENS - 1])
        del tokens[length_tokens:]
        return tuple(tokens)

    @cached_property
    def _table(self) -> tuple[int, ...]:
        random = Random(_TABLE_SEED)
        return tuple(random.getrandbits(_TOKEN_BITS) for _ in range(_STARTS + BLOCK_TOKENS))


_TABLE_SEED = 512
_TOKEN_BITS = 17
"""About the size of current vocabularies."""
_STARTS = 1 << 16
"""Positions in the table at which a block may begin."""
_STRIDE = 40503
"""Odd, so that consecutive blocks begin at different positions, far from each other."""


def load_trace(path: Path, limit: int | None = None) -> tuple[Request, ...]:
    """Return the requests of a trace in the order of its lines, or the first `limit` of them.

    Raises:
        TraceError: a line is not a request, or the file has none.
        OSError: the file cannot be read.
    """
    blocks = BlockTokens()
    requests: list[Request] = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if limit is not None and len(requests) >= limit:
                break
            try:
                requests.append(_request(line, blocks))
            except _NotARequest as error:
                raise TraceError(path, number, str(error)) from None
    if not requests:
        raise TraceError(path, None, "holds no request")
    return tuple(requests)


def _request(line: bytes, blocks: BlockTokens) -> Request:
    fields = _fields(line)
    length = _whole_number(fields, "input_length", least=1)
    arrival_ms = _whole_number(fields, "timestamp", least=0)
    _whole_number(fields, "output_length", least=0)
    block_ids = tuple(_block_ids(fields))
    covering = pages_covering(length, BLOCK_TOKENS)
    if len(block_ids) != covering:
        raise _NotARequest(
            f"input_length {length} takes {covering} blocks of {BLOCK_TOKENS} tokens, "
            f"but hash_ids has {len(block_ids)}"
        )
    numbers = tuple(blocks.number(block_id) for block_id in block_ids)
    return Request(length, partial(blocks.prompt, numbers, length), arrival_ms=arrival_ms)


def _fields(line: bytes) -> dict[str, object]:
    try:
        fields = json.loads(line.decode())
    except UnicodeDecodeError:
        raise _NotARequest("is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise _NotARequest(f"is not JSON ({error})") from None
    if not isinstance(fields, dict):
        raise _NotARequest(f"is not a JSON object but {_kind(fields)}")
    return fields


def _whole_number(fields: dict[str, object], name: str, least: int) -> int:
    value = _present(fields, name)
    if type(value) is not int:
        raise _NotARequest(f"{name} must be a whole number, and is {_kind(value)}")
    if value < least:
        raise _NotARequest(f"{name} must be at least {least}, and is {value}")
    return value


def _block_ids(fields: dict[str, object]) -> Iterator[int]:
    values = _present(fields, "hash_ids")
    if not isinstance(values, list):
        raise _NotARequest(f"hash_ids must be a list of whole numbers, and is {_kind(values)}")
    for index, value in enumerate(values):
        if type(value) is not int:
            raise _NotARequest(f"hash_ids[{index}] must be a whole number, and is {_kind(value)}")
        if value < 0:
            raise _NotARequest(f"hash_ids[{index}] must be at least 0, and is {value}")
        yield value


def _present(fields: dict[str, object], name: str) -> object:
    if name not in fields:
        raise _NotARequest(f"{name} is missing")
    return fields[name]


def _kind(value: object) -> str:
    return {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "true or false",
        float: "a number with a fraction",
        int: "a number",
    }.get(type(value), "null")
