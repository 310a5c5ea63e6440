"""Recorded requests whose prompts are given as ids of blocks, as in the Mooncake traces.

A row has `input_length` and `output_length` (tokens), and `hash_ids`, one id for each block of the
prompt. Equal id means equal tokens and equal prefix. The prompts themselves were never published:
here each id stands for token ids of its own, the same in each run and on every machine.

Trap: the last block may be partial, and is then cut to `input_length`. Its id is that of the
partial block; the prompt that continues it has another id at this place.

| who writes such rows | tokens a block | `timestamp` | turns of a session |
|---|---|---|---|
| Mooncake | 512 | milliseconds | |
| Qwen-Bailian (`chat_id`) | 16 | seconds | each row is a whole prompt |
| Dynamo | any | milliseconds, or `created_time`; `delay` after the turn before | as the rows show |
| AIPerf | any | as Dynamo | a row adds to the turns before it, and to their replies |

Sources: https://github.com/kvcache-ai/Mooncake, folder FAST25-release/traces;
https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon;
https://docs.rs/dynamo-data-gen (mooncake);
https://docs.nvidia.com/aiperf/benchmark-modes/trace-replay-with-mooncake-traces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from functools import cached_property, partial
from random import Random
from typing import TypeAlias

from attrs import define, frozen

from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace_lines import (
    Fields,
    NotARequest,
    kind_of,
    name_of,
    number_of,
    present,
    whole_number,
)
from kvcanon.spec.oracle.pages import pages_covering

BLOCK_TOKENS = 512
"""Tokens an id in the Mooncake traces."""
SIZES = (BLOCK_TOKENS, *(1 << exponent for exponent in range(14) if 1 << exponent != BLOCK_TOKENS))
"""The tokens an id that are tried, in turn, where nobody says how many there are."""
IDS = ("hash_ids", "block_hashes")
"""The names of the field with the ids."""
BAILIAN = "chat_id"
"""A field of Qwen-Bailian's rows alone, whose times are in seconds."""
SESSION = "session_id"

BlockId: TypeAlias = int | str


class Turns(StrEnum):
    """What the rows of one session hold."""

    AUTO = "auto"
    WHOLE = "whole"
    ADDED = "added"


@frozen
class BlockRow:
    """A row."""

    line: int
    length: int
    """Tokens of the prompt, or of what a turn adds to it."""
    ids: tuple[BlockId, ...]
    output: int
    """Tokens of the reply."""
    arrival_ms: float | None
    delay_ms: float
    session: str | None

    def fits(self, block_tokens: int) -> bool:
        """Whether the prompt takes as many blocks of this size as it has ids."""
        return len(self.ids) == pages_covering(self.length, block_tokens)


# Reading.


def block_row(line: int, fields: Fields) -> BlockRow:
    """A row of a trace. Raises: NotARequest."""
    length = whole_number(fields, name_of(fields, "input_length", "input_tokens"), least=1)
    output = name_of(fields, "output_length", "output_tokens")
    time, delay = name_of(fields, "timestamp", "created_time"), name_of(fields, "delay", "delay_ms")
    unit = 1000.0 if BAILIAN in fields else 1.0
    session = fields.get(SESSION)
    if time not in fields and delay not in fields and session is None:
        raise NotARequest(f"{time} is missing")
    return BlockRow(
        line,
        length,
        tuple(block_ids(fields, name_of(fields, *IDS))),
        whole_number(fields, output, least=0) if output in fields else 0,
        unit * number_of(fields, time) if time in fields else None,
        number_of(fields, delay) if delay in fields else 0.0,
        None if session is None else str(session),
    )


def block_ids(fields: Fields, name: str) -> Iterator[BlockId]:
    """The ids of a field, one for each block. Raises: NotARequest."""
    values = present(fields, name)
    if not isinstance(values, list):
        raise NotARequest(f"{name} must be a list of ids, and is {kind_of(values)}")
    for index, value in enumerate(values):
        if type(value) is not int and not isinstance(value, str):
            raise NotARequest(
                f"{name}[{index}] must be a whole number or a string, and is {kind_of(value)}"
            )
        if isinstance(value, int) and value < 0:
            raise NotARequest(f"{name}[{index}] must be at least 0, and is {value}")
        yield value


def sizes_that_fit(rows: Sequence[BlockRow]) -> tuple[int, ...]:
    """The tokens an id with which every row has as many ids as its prompt takes."""
    return tuple(size for size in SIZES if all(row.fits(size) for row in rows))


def likeliest_size(rows: Sequence[BlockRow]) -> int:
    """The tokens an id with which most rows are right."""
    return max(SIZES, key=lambda size: sum(row.fits(size) for row in rows))


def turns_of(rows: Sequence[BlockRow]) -> Turns:
    """What the rows of sessions hold: whole prompts, where a turn begins as the one before it."""
    first: dict[str, BlockId] = {}
    for row in rows:
        if row.session is None or not row.ids:
            continue
        if row.session not in first:
            first[row.session] = row.ids[0]
        elif first[row.session] == row.ids[0]:
            return Turns.WHOLE
    return Turns.ADDED


# Requests.


@define
class _Session:
    """What the turns of a session have said so far."""

    parts: tuple[tuple[tuple[int, ...], int], ...] = ()
    arrival_ms: float = 0.0
    turns: int = 0


def requests_of(rows: Sequence[BlockRow], block_tokens: int, turns: Turns) -> tuple[Request, ...]:
    """The requests of some rows, in their order."""
    blocks = BlockTokens(block_tokens)
    sessions: dict[str, _Session] = {}
    requests: list[Request] = []
    now_ms = 0.0
    for row in rows:
        session = _Session()
        if row.session is not None:
            session = sessions.setdefault(row.session, session)
        if row.arrival_ms is not None:
            now_ms = row.arrival_ms
        else:
            now_ms = (session.arrival_ms if session.turns else now_ms) + row.delay_ms
        numbers = tuple(blocks.number(each) for each in row.ids)
        before = session.parts if turns is Turns.ADDED else ()
        parts = (*before, (numbers, row.length))
        requests.append(
            Request(
                sum(length for _, length in parts),
                partial(blocks.prompt, parts),
                arrival_ms=round(now_ms),
            )
        )
        reply = _reply(blocks, row, session.turns)
        session.parts = (*parts, reply) if row.output else parts
        session.arrival_ms, session.turns = now_ms, session.turns + 1
    return tuple(requests)


def _reply(blocks: BlockTokens, row: BlockRow, turn: int) -> tuple[tuple[int, ...], int]:
    """The reply of a turn: tokens that no other prompt has."""
    count = pages_covering(row.output, blocks.size)
    names = [f"reply {row.session} {turn} {row.line} {at}" for at in range(count)]
    return tuple(blocks.number(name) for name in names), row.output


class BlockTokens:
    """Gives each block id its tokens.

    The first token is the block's number, by order of first appearance, so that two blocks differ
    from their first token on; the other tokens are a range of one table.
    """

    def __init__(self, size: int = BLOCK_TOKENS) -> None:
        self.size = size
        self._numbers: dict[BlockId, int] = {}

    def number(self, block_id: BlockId) -> int:
        """Return the number of a block: always the same integer object."""
        return self._numbers.setdefault(block_id, len(self._numbers))

    def prompt(self, parts: tuple[tuple[tuple[int, ...], int], ...]) -> tuple[int, ...]:
        """Return the tokens of some parts: each is consecutive blocks, the last of which is cut."""
        tokens: list[int] = []
        for numbers, length in parts:
            end = len(tokens) + length
            for number in numbers:
                start = number * _STRIDE % _STARTS
                tokens.append(number)
                tokens.extend(self._table[start : start + self.size - 1])
            del tokens[end:]
        return tuple(tokens)

    @cached_property
    def _table(self) -> tuple[int, ...]:
        random = Random(_TABLE_SEED)
        return tuple(random.getrandbits(_TOKEN_BITS) for _ in range(_STARTS + self.size))


_TABLE_SEED = 512
_TOKEN_BITS = 17
"""About the size of current vocabularies."""
_STARTS = 1 << 16
"""Positions in the table at which a block may begin."""
_STRIDE = 40503
"""Odd, so that consecutive blocks begin at different positions, far from each other."""
