"""Rows of block ids: the tokens of an id, and the errors of a bad row."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcanon.conformance.replay.workloads.block_rows import BLOCK_TOKENS
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import load_trace
from kvcanon.conformance.replay.workloads.trace_lines import TraceError
from kvcanon.spec.types import make_key

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 3, "hash_ids": [7, 8]}


def write_trace(folder: Path, *lines: str | dict[str, object]) -> Path:
    """Write a trace; a line that is not text already becomes JSON."""
    path = folder / "trace.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path


def blocks(request: Request) -> list[tuple[int, ...]]:
    """Return a request's tokens block by block."""
    tokens = request.make_tokens()
    return [tokens[at : at + BLOCK_TOKENS] for at in range(0, len(tokens), BLOCK_TOKENS)]


def test_load_reads_every_line_in_order(tmp_path: Path) -> None:
    """Each line of the file is one request, in the file's order."""
    later = {**GOOD, "timestamp": 40, "input_length": 512, "hash_ids": [7]}
    requests = load_trace(write_trace(tmp_path, GOOD, later))
    assert [(each.arrival_ms, each.length_tokens) for each in requests] == [(0, 600), (40, 512)]
    assert [len(each.make_tokens()) for each in requests] == [600, 512]


def test_load_takes_the_first_requests_only_where_a_limit_is_given(tmp_path: Path) -> None:
    """A limit ends the reading before later lines, even malformed ones."""
    path = write_trace(tmp_path, GOOD, GOOD, "not JSON")
    assert len(load_trace(path, limit=2)) == 2


@pytest.mark.nightly
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, BLOCK_TOKENS))
def test_equal_ids_are_equal_tokens(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], last_tokens: int
) -> None:
    """A hash id always has the same tokens, and no two ids share a block."""
    lines: list[dict[str, object]] = [
        GOOD | {"hash_ids": [each], "input_length": last_tokens} for each in ids
    ]
    requests = load_trace(write_trace(tmp_path_factory.mktemp("trace"), *lines))
    for one, first in zip(ids, requests, strict=True):
        for other, second in zip(ids, requests, strict=True):
            assert (one == other) == (first.make_tokens() == second.make_tokens())


def test_ids_differ_from_their_first_token_on(tmp_path: Path) -> None:
    """Two blocks differ in the first token, so that pages of one token share nothing."""
    line = GOOD | {"hash_ids": list(range(3000)), "input_length": 3000 * BLOCK_TOKENS}
    (request,) = load_trace(write_trace(tmp_path, line))
    assert len({block[0] for block in blocks(request)}) == 3000


def test_tokens_are_shared_objects(tmp_path: Path) -> None:
    """Prompts share integer objects, so that an hour of prompts fits in memory."""
    request, same = load_trace(write_trace(tmp_path, GOOD, GOOD))
    pairs = zip(request.make_tokens(), same.make_tokens(), strict=True)
    assert all(one is other for one, other in pairs)


@pytest.mark.parametrize("page_size", [1, 16, 64, 512, 700])
def test_key_is_what_make_key_cuts(tmp_path: Path, page_size: int) -> None:
    """A request's key is the key of its tokens."""
    (request,) = load_trace(write_trace(tmp_path, GOOD))
    assert request.key(page_size) == make_key(request.make_tokens(), page_size)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "is not a JSON object but a list"),
        ("null", "is not a JSON object but null"),
        ('{"timestamp": NaN}', "input_length is missing"),
        ({k: v for k, v in GOOD.items() if k != "hash_ids"}, "hash_ids is missing"),
        (GOOD | {"timestamp": "0"}, "timestamp must be a number, and is a string"),
        (GOOD | {"timestamp": -1}, "timestamp must be at least 0, and is -1"),
        (GOOD | {"output_length": True}, "output_length must be a whole number"),
        (GOOD | {"output_length": -3}, "output_length must be at least 0, and is -3"),
        (GOOD | {"input_length": 600.0}, "input_length must be a whole number"),
        (GOOD | {"input_length": 0, "hash_ids": []}, "input_length must be at least 1, and is 0"),
        (GOOD | {"hash_ids": 7}, "hash_ids must be a list of ids, and is a number"),
        (
            GOOD | {"hash_ids": [7, None]},
            "hash_ids[1] must be a whole number or a string, and is null",
        ),
        (GOOD | {"hash_ids": [-7, 8]}, "hash_ids[0] must be at least 0, and is -7"),
        (GOOD | {"hash_ids": [7]}, "takes 2 blocks of 512 tokens, but hash_ids has 1"),
        (GOOD | {"hash_ids": [7, 8, 9]}, "takes 2 blocks of 512 tokens, but hash_ids has 3"),
    ],
)
def test_load_malformed_line_is_named(
    tmp_path: Path, line: str | dict[str, object], said: str
) -> None:
    """A bad line is refused with the file and the line number."""
    path = write_trace(tmp_path, GOOD, line)
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:2: ")
    assert said in message
    assert "\n" not in message


def test_load_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """A binary file is refused with its name."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match=r"trace\.jsonl:1: is not UTF-8 text"):
        load_trace(path)


def test_load_empty_file_is_refused(tmp_path: Path) -> None:
    """A file without a request is refused."""
    with pytest.raises(TraceError, match=r"trace\.jsonl: holds no request"):
        load_trace(write_trace(tmp_path))
