"""Traces in the forms that people have: each is read, or refused with what it lacks."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard

from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.replay.workloads.block_rows import Turns
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace import Trace, TraceOptions, read_trace
from kvcanon.conformance.replay.workloads.trace_lines import TraceError, numbered_lines

WORDS = TraceOptions(tokenizer="words")


def read(folder: Path, *rows: object, options: TraceOptions | None = None) -> Trace:
    """Read a trace of some rows."""
    return read_trace(written(folder, *rows), options)


def written(folder: Path, *rows: object) -> Path:
    """A file of some rows, each a line of JSON, or text as it is."""
    path = folder / "trace.jsonl"
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return path


def row(length: int, *ids: object, **more: object) -> dict[str, object]:
    """A row of block ids."""
    return {"timestamp": 0, "input_length": length, "output_length": 4, "hash_ids": ids} | more


def shared(first: Request, second: Request) -> int:
    """How many tokens two prompts share from their beginning on."""
    pairs = [*zip(first.make_tokens(), second.make_tokens(), strict=False)]
    return next((at for at, (one, other) in enumerate(pairs) if one != other), len(pairs))


# Ids of blocks.


@pytest.mark.parametrize("size", [16, 64, 256, 1024])
def test_the_tokens_an_id_are_what_fits_the_rows(tmp_path: Path, size: int) -> None:
    """Prompts that share two ids share two blocks, of the only size that fits."""
    rows = row(3 * size - 1, 0, 1, 2), row(4 * size, 0, 1, 3, 4)
    trace = read(tmp_path, *rows)
    assert trace.block_tokens == size
    assert trace.notes == (f"{size} tokens an id",)
    assert shared(*trace.requests) == 2 * size


def test_rows_that_fit_several_sizes_need_the_option(tmp_path: Path) -> None:
    """Where the rows do not say, nothing is guessed."""
    rows = [row(16, 0)]
    with pytest.raises(UsageError, match=r"ids of 1024 and 2048 and .* by --block-tokens"):
        read(tmp_path, row(600, 0))
    assert read(tmp_path, *rows, options=TraceOptions(block_tokens=16)).block_tokens == 16
    with pytest.raises(TraceError, match=r":1: input_length 16 takes 2 blocks of 8 tokens"):
        read(tmp_path, *rows, options=TraceOptions(block_tokens=8))


def test_ids_of_no_usual_size_need_the_option(tmp_path: Path) -> None:
    """Where no usual size fits all rows, the message says that it guessed, and how to say."""
    rows = row(128, 0, 1), row(129, 0, 2)
    with pytest.raises(TraceError, match=r":2: input_length 129 takes 3 .* give --block-tokens"):
        read(tmp_path, *rows)
    assert read(tmp_path, *rows, options=TraceOptions(block_tokens=80)).block_tokens == 80


def test_ids_may_be_strings_and_times_fractions(tmp_path: Path) -> None:
    """Hex digests as ids, and milliseconds with a fraction."""
    rows = row(700, "9f86", "6030", timestamp=0.4), row(600, "9f86", "aaaa", timestamp=3000.6)
    trace = read(tmp_path, *rows)
    assert [each.arrival_ms for each in trace.requests] == [0, 3001]
    assert shared(*trace.requests) == 512


def test_the_names_of_dynamo_are_known(tmp_path: Path) -> None:
    """`input_tokens`, `output_tokens` and `created_time` are the other names of the fields."""
    other = {"created_time": 7, "input_tokens": 600, "output_tokens": 1, "hash_ids": [0, 1]}
    (request,) = read(tmp_path, other).requests
    assert (request.length_tokens, request.arrival_ms) == (600, 7)


def test_bailian_has_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    """Qwen-Bailian's rows: seconds, small blocks, and each turn is a whole prompt."""
    first = row(40, 1089, 1090, 1091, chat_id=159, parent_chat_id=-1, timestamp=61.114)
    second = row(70, 1089, 1090, 1092, 1093, 1094, chat_id=160, timestamp=75.2)
    trace = read(tmp_path, first, second)
    assert [each.arrival_ms for each in trace.requests] == [61_114, 75_200]
    assert trace.block_tokens == 16
    assert shared(*trace.requests) == 32


def test_turns_that_begin_anew_add_to_those_before(tmp_path: Path) -> None:
    """As in AIPerf: the prompt of a turn is all that was said, replies included."""
    first = row(600, 0, 1, session_id="a")
    second = {"session_id": "a", "delay": 2000, "input_length": 100, "hash_ids": [2]}
    other = row(600, 0, 3, session_id="b", timestamp=5000)
    trace = read(tmp_path, first, second, other)
    assert [each.length_tokens for each in trace.requests] == [600, 600 + 4 + 100, 600]
    assert [each.arrival_ms for each in trace.requests] == [0, 2000, 5000]
    assert shared(*trace.requests[:2]) == 600
    assert "adds to those before" in trace.notes[0]


def test_turns_that_begin_as_the_one_before_are_whole(tmp_path: Path) -> None:
    """A turn with the first id of the turn before it is the whole prompt; so is one if told."""
    rows = row(600, 0, 1, session_id="a"), row(1100, 0, 1, 2, session_id="a")
    assert [each.length_tokens for each in read(tmp_path, *rows).requests] == [600, 1100]
    anew = row(600, 0, 1, session_id="a"), row(100, 2, session_id="a")
    whole = read(tmp_path, *anew, options=TraceOptions(turns=Turns.WHOLE))
    assert [each.length_tokens for each in whole.requests] == [600, 100]


# Tokens and text.


TOKEN_ROW = {"session_id": "a", "token_ids": [5, 6]}
DYNAMO_ROW = {
    "schema": "dynamo.request.trace.v1",
    "event_type": "request_end",
    "request": {
        "request_received_ms": 0,
        "replay": {"trace_block_size": 64, "input_length": 100, "input_sequence_hashes": [7, 8]},
    },
}


@pytest.mark.parametrize(
    ("fields", "options", "option"),
    [
        (TOKEN_ROW, TraceOptions(turns=Turns.ADDED), "--turns"),
        (TOKEN_ROW, TraceOptions(turns=Turns.WHOLE), "--turns"),
        (TOKEN_ROW, TraceOptions(block_tokens=16), "--block-tokens"),
        (DYNAMO_ROW, TraceOptions(turns=Turns.ADDED), "--turns"),
        (DYNAMO_ROW, WORDS, "--tokenizer"),
        (row(100, 1), TraceOptions(64, "words"), "--tokenizer"),
    ],
)
def test_no_option_is_dropped_in_silence(
    tmp_path: Path, fields: dict[str, object], options: TraceOptions, option: str
) -> None:
    """An option that says nothing of these rows is refused."""
    with pytest.raises(UsageError, match=f"of which {option} says nothing; leave it out"):
        read(tmp_path, fields, options=options)


def test_rows_of_tokens_in_a_session_are_whole_prompts(tmp_path: Path) -> None:
    """That they do not add to those before them is said."""
    trace = read(tmp_path, TOKEN_ROW, {"session_id": "a", "token_ids": [7]})
    assert [each.length_tokens for each in trace.requests] == [2, 1]
    assert trace.notes == ("each row is a whole prompt, also in a session",)


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    """Rows of token ids, under each name that logs have."""
    rows = {"prompt_token_ids": [5, 6, 7]}, {"input_ids": [5, 6, 8]}, {"prompt": [5, 9]}
    tokens = [each.make_tokens() for each in read(tmp_path, *rows).requests]
    assert tokens == [(5, 6, 7), (5, 6, 8), (5, 9)]


def test_text_needs_a_tokenizer(tmp_path: Path) -> None:
    """Text is refused without one, with what to give."""
    with pytest.raises(TraceError, match=r":1: is text; give --tokenizer words"):
        read(tmp_path, {"prompt": "the cat"})


def test_words_that_are_equal_are_equal_tokens(tmp_path: Path) -> None:
    """`words` numbers words, so that prompts share what their texts share."""
    rows = {"prompt": "The cat sat."}, {"text_input": "The cat ran."}, {"text": "A dog"}
    first, second, third = read(tmp_path, *rows, options=WORDS).requests
    assert shared(first, second) == 2
    assert first.length_tokens == 4
    assert shared(first, third) == 0


def test_a_log_of_conversations_is_a_request_for_each_turn_of_a_person(tmp_path: Path) -> None:
    """ShareGPT is one list; the prompt of a turn begins with all turns before it."""
    said = [("human", "hello there"), ("gpt", "hi"), ("human", "and now")]
    entry = {"id": "1", "conversations": [{"from": who, "value": text} for who, text in said]}
    trace = read(tmp_path, json.dumps([entry], indent=1), options=WORDS)
    first, second = trace.requests
    assert first.length_tokens < second.length_tokens
    assert shared(first, second) == first.length_tokens


def test_messages_are_one_prompt(tmp_path: Path) -> None:
    """OpenAI's form: all messages of a row are its prompt, also with parts of text."""
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "x"}}]
    messages = [{"role": "system", "content": "be kind"}, {"role": "user", "content": parts}]
    (request,) = read(tmp_path, {"messages": messages}, options=WORDS).requests
    assert request.length_tokens == 7


def test_tools_stand_before_the_messages(tmp_path: Path) -> None:
    """Two calls with other tools share nothing; a turn that calls a tool is part of the prompt."""
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "is it warm"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "20"},
    ]
    tools = [{"type": "function", "function": {"name": "weather"}}]
    rows = {"messages": messages}, {"messages": messages, "tools": tools}
    bare, tooled = read(tmp_path, *rows, options=WORDS).requests
    assert shared(bare, tooled) == 0
    assert tooled.length_tokens > bare.length_tokens
    (other,) = read(tmp_path, {"messages": [*messages[:1], messages[2]]}, options=WORDS).requests
    assert other.length_tokens < bare.length_tokens


def batched(body: object, **more: object) -> dict[str, object]:
    """A row of a batch."""
    call = {"custom_id": "request-1", "method": "POST", "url": "/v1/chat/completions"}
    return call | {"body": body} | more


def test_a_batch_has_its_prompts_in_bodies(tmp_path: Path) -> None:
    """OpenAI's batch files: messages, a text, or token ids below `body`."""
    system = {"role": "system", "content": "be kind"}
    asked = ({"role": "user", "content": text} for text in ("hello you", "hello me"))
    rows = [batched({"model": "m", "messages": [system, each]}) for each in asked]
    first, second = read(tmp_path, *rows, options=WORDS).requests
    assert shared(first, second) == first.length_tokens - 1
    text = batched({"model": "m", "prompt": "the cat"}, url="/v1/completions")
    (request,) = read(tmp_path, text, options=WORDS).requests
    assert request.length_tokens == 2
    (request,) = read(tmp_path, batched({"prompt": [5, 6, 7]})).requests
    assert request.make_tokens() == (5, 6, 7)


def test_a_list_of_prompts_is_a_request_for_each(tmp_path: Path) -> None:
    """OpenAI's completions take several prompts, as texts or as token ids."""
    texts = read(tmp_path, batched({"prompt": ["the cat", "the dog"]}), options=WORDS)
    assert shared(*texts.requests) == 1
    tokens = read(tmp_path, {"prompt": [[1, 2], [1, 3, 4]]}).requests
    assert [each.make_tokens() for each in tokens] == [(1, 2), (1, 3, 4)]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (batched("x"), "body must be an object, and is a string"),
        (batched({"model": "m", "input": "to embed"}), "has no prompt among prompt_token_ids"),
        (batched({"messages": []}), "messages must be a list of messages"),
        (batched({"prompt": [[1, "2"]]}), "prompt[1] must be a token id, and is '2'"),
        (batched({"prompt": ["the", 5]}), "has no prompt among"),
    ],
)
def test_a_bad_row_of_a_batch_is_named(tmp_path: Path, row: object, said: str) -> None:
    """What has no prompt is refused with its row, as embeddings are."""
    with pytest.raises(TraceError) as caught:
        read(tmp_path, row, options=WORDS)
    assert f"{tmp_path}/trace.jsonl:1: " in str(caught.value)
    assert said in str(caught.value)


def test_text_of_a_batch_needs_a_tokenizer(tmp_path: Path) -> None:
    """As all text does."""
    with pytest.raises(TraceError, match=r":1: is text; give --tokenizer words"):
        read(tmp_path, batched({"prompt": "the cat"}))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"prompt_token_ids": [1, -1]}, "prompt_token_ids[1] must be a token id, and is -1"),
        ({"prompt_token_ids": [1, "2"]}, "prompt_token_ids[1] must be a token id, and is '2'"),
        ({"prompt_token_ids": []}, "has no prompt among"),
        ({"prompt": 5}, "has no prompt among"),
        ({"prompt": ""}, "has an empty prompt"),
        ({"messages": []}, "messages must be a list of messages"),
        ({"messages": ["hi"]}, "messages[0] must be an object, and is a string"),
        ({"messages": [{"role": "user"}]}, "messages[0] must have a role and a content"),
    ],
)
def test_a_bad_prompt_is_named(tmp_path: Path, entry: object, said: str) -> None:
    """A prompt that is none is refused with its row."""
    with pytest.raises(TraceError) as caught:
        read(tmp_path, {"prompt": "fine"}, entry, options=WORDS)
    assert f"{tmp_path}/trace.jsonl:2: " in str(caught.value)
    assert said in str(caught.value)


def test_a_tokenizer_that_cannot_be_had_is_one_line(tmp_path: Path) -> None:
    """A file that is no tokenizer, or a library that is not there."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}", "utf-8")
    with pytest.raises(UsageError, match=r"--tokenizer .*tokenizer\.json"):
        read(tmp_path, {"prompt": "fine"}, options=TraceOptions(tokenizer=str(path)))


# Files.


def test_packed_files_are_read(tmp_path: Path) -> None:
    """Whatever their names are, gzip and zstd are known by how they begin."""
    plain = written(tmp_path, row(600, 0, 1), row(600, 0, 2)).read_bytes()
    for packed in (gzip.compress(plain), zstandard.compress(plain)):
        path = tmp_path / "packed"
        path.write_bytes(packed)
        assert len(read_trace(path).requests) == 2
        path.write_bytes(packed[:-9])
        with pytest.raises(TraceError):
            read_trace(path)


def test_one_line_of_megabytes_is_read_once(tmp_path: Path) -> None:
    """ShareGPT is one line; a long line is not copied again for each part that is read."""
    entries = [{"prompt_token_ids": [at] * 1000} for at in range(2000)]
    text = json.dumps(entries)
    path = written(tmp_path, text)
    with path.open("rb") as file:
        ((number, line),) = numbered_lines(path, file)
    assert (number, len(line)) == (1, len(text))
    packed = tmp_path / "packed"
    packed.write_bytes(zstandard.compress(path.read_bytes()))
    assert len(read_trace(packed).requests) == len(entries)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n", "BurstGPT"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,44\n", "Azure's"),
        ('{"input_length": 5, "output_length": 3}\n', "it has input_length, output_length"),
    ],
)
def test_lengths_without_prefixes_are_refused_with_what_they_lack(
    tmp_path: Path, text: str, said: str
) -> None:
    """A file that does not say which prompts begin alike cannot be replayed."""
    with pytest.raises(TraceError) as caught:
        read_trace(written(tmp_path, text.rstrip("\n")))
    assert said in str(caught.value)
    assert "begin alike" in str(caught.value)
    assert "leave --trace out" in str(caught.value)


def test_a_mark_before_the_text_is_no_part_of_it(tmp_path: Path) -> None:
    """Editors begin UTF-8 files with one."""
    path = written(tmp_path, row(600, 0, 1))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert len(read_trace(path).requests) == 1


def test_a_limit_is_of_rows(tmp_path: Path) -> None:
    """Later rows are not read."""
    path = written(tmp_path, row(600, 0, 1), row(600, 0, 1), "not JSON")
    assert len(read_trace(path, limit=2).requests) == 2
    path = written(tmp_path, json.dumps([{"prompt_token_ids": [1]}, "no"]))
    assert len(read_trace(path, limit=1).requests) == 1
