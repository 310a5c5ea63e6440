"""Recorded requests whose prompts are token ids or text, as benches and chat logs have them.

| a row, or an entry of a list, has | whose |
|---|---|
| `prompt_token_ids`, `input_ids`, `token_ids`: numbers | token logs |
| `prompt`, `text_input`, `text`: a string | benches of vLLM, AIPerf, SGLang |
| `messages`: each with `role` and `content` | OpenAI's form, in the same benches |
| `custom_id` and a `body` with `messages` or `prompt` | files of OpenAI's batches |
| `conversations`: each with `from` and `value` | ShareGPT: each turn of a person is a request |

Text needs a tokenizer. `words` gives each word a number of its own, which says what prompts share
where no model is at hand. No chat template is applied; `tools` stand before the messages, as in
most templates.

Source of batch files: https://platform.openai.com/docs/guides/batch.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, cast

from kvcanon.conformance.errors import UsageError, describe_exception
from kvcanon.conformance.replay.workloads.request import Request
from kvcanon.conformance.replay.workloads.trace_lines import Fields, NotARequest, kind_of

Tokenizer: TypeAlias = Callable[[str], Sequence[int]]
"""Turns text into token ids."""

TOKENS = ("prompt_token_ids", "input_ids", "token_ids")
TEXTS = ("prompt", "text_input", "text")
CHATS = ("messages", "conversations", "conversation")
"""The names of fields with prompts, by what they hold."""
BATCH_ID, BATCH_BODY = "custom_id", "body"
"""The fields of a row of a batch: its name there, and the call that it makes."""
PEOPLE = frozenset({"human", "user"})
"""Whose turns are requests, in a log of conversations."""
WORDS = "words"
MOST_TOKEN = (1 << 32) - 1


def is_token_row(fields: Fields) -> bool:
    """Whether a row has a prompt that this module reads."""
    return any(name in fields for name in (*TOKENS, *TEXTS, *CHATS)) or _is_batch(fields)


def requests_of_row(fields: Fields, tokenize: Tokenizer | None) -> Iterator[Request]:
    """The requests of a row: one, or one for each prompt or turn of a person in it.

    Raises: NotARequest.
    """
    for call in _calls(fields):
        yield from _requests_of(call, tokenize)


def _requests_of(fields: Fields, tokenize: Tokenizer | None) -> Iterator[Request]:
    for name in (*TOKENS, "prompt"):
        if _is_tokens(fields.get(name)):
            yield _request(_tokens(name, fields[name]))
            return
    texts = any(isinstance(fields.get(name), str) for name in TEXTS)
    if not texts and not any(name in fields for name in CHATS):
        raise NotARequest(f"has no prompt among {', '.join((*TOKENS, *TEXTS, *CHATS))}")
    if tokenize is None:
        raise NotARequest(f"is text; give --tokenizer {WORDS}, a tokenizer.json, or a model's name")
    for name in TEXTS:
        value = fields.get(name)
        if isinstance(value, str):
            yield _request(tokenize(value))
            return
    for name in CHATS:
        if name in fields:
            yield from map(_request, _prompts(name, fields, tokenize))
            return


def _is_batch(fields: Fields) -> bool:
    return BATCH_ID in fields and BATCH_BODY in fields


def _calls(fields: Fields) -> Iterator[Fields]:
    """The fields of each call: of a body where a row is one of a batch, one for each prompt."""
    if _is_batch(fields):
        body = fields[BATCH_BODY]
        if not isinstance(body, Mapping):
            raise NotARequest(f"{BATCH_BODY} must be an object, and is {kind_of(body)}")
        fields = body
    prompts = fields.get("prompt")
    if isinstance(prompts, list) and prompts and isinstance(prompts[0], str | list):
        yield from ({"prompt": prompt} for prompt in prompts)
    else:
        yield fields


def _is_tokens(value: object) -> bool:
    return isinstance(value, list) and bool(value) and not isinstance(value[0], str | dict)


def _tokens(name: str, value: object) -> Sequence[int]:
    for at, token in enumerate(cast("list[object]", value)):
        if type(token) is not int or not 0 <= token <= MOST_TOKEN:
            raise NotARequest(f"{name}[{at}] must be a token id, and is {token!r:.40}")
    return cast("list[int]", value)


def _prompts(name: str, fields: Fields, tokenize: Tokenizer) -> Iterator[Sequence[int]]:
    """The prompts of a conversation: of a log one for each turn of a person, else one."""
    value, tools = fields[name], fields.get("tools")
    if not isinstance(value, list) or not value:
        raise NotARequest(f"{name} must be a list of messages, and is {kind_of(value)}")
    said = [*tokenize(json.dumps(tools))] if tools else []
    for at, message in enumerate(value):
        who, text = _message(f"{name}[{at}]", message)
        said.extend(tokenize(f"{who}: {text}\n"))
        last = at + 1 == len(value)
        if who in PEOPLE if name != CHATS[0] else last:
            yield tuple(said)


def _message(name: str, message: object) -> tuple[str, str]:
    if not isinstance(message, Mapping):
        raise NotARequest(f"{name} must be an object, and is {kind_of(message)}")
    who = message.get("role", message.get("from"))
    text = message.get("content", message.get("value"))
    if isinstance(text, list):  # Parts, of which only text is a prompt.
        text = "\n".join(str(part.get("text", "")) for part in text if isinstance(part, Mapping))
    if message.get("tool_calls"):  # A turn of the model that calls tools often has no content.
        text = f"{text or ''}{json.dumps(message['tool_calls'])}"
    if not isinstance(who, str) or not isinstance(text, str):
        raise NotARequest(f"{name} must have a role and a content, or a from and a value")
    return who, text


def _request(tokens: Sequence[int]) -> Request:
    if not tokens:
        raise NotARequest("has an empty prompt")
    # Four bytes a token; numbers are made anew each time, as few are wanted twice.
    kept = array("I", tokens)
    return Request(len(kept), partial(tuple, kept))


# Tokenizers.


def tokenizer_named(name: str | None) -> Tokenizer | None:
    """The tokenizer of an option. Raises: UsageError."""
    if name is None:
        return None
    if name == WORDS:
        return _word_numbers()
    if Path(name).is_file():
        module = _imported("tokenizers", name)
        made = _made(name, lambda: module.Tokenizer.from_file(name))
        return lambda text: made.encode(text, add_special_tokens=False).ids
    module = _imported("transformers", name)
    loaded = _made(name, lambda: module.AutoTokenizer.from_pretrained(name))
    return lambda text: loaded.encode(text, add_special_tokens=False)


def _word_numbers() -> Tokenizer:
    """Number words and signs in the order of their first appearance."""
    numbers: dict[str, int] = {}

    def tokenize(text: str) -> Sequence[int]:
        return [numbers.setdefault(word, len(numbers)) for word in re.findall(r"\w+|\S", text)]

    return tokenize


def _imported(library: str, name: str) -> Any:  # noqa: ANN401  # Whatever it has there.
    from importlib import import_module  # noqa: PLC0415  # Few traces need a tokenizer.

    try:
        return import_module(library)
    except ImportError:
        raise UsageError(
            f"--tokenizer {name} needs {library}, which is not installed; run "
            f"`pip install {library}`, or give --tokenizer {WORDS}"
        ) from None


def _made(name: str, make: Callable[[], Any]) -> Any:  # noqa: ANN401  # As above.
    try:
        return make()
    except Exception as error:
        raise UsageError(
            f"--tokenizer {name} cannot be loaded: {describe_exception(error)}"
        ) from error
