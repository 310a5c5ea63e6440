"""The chats of OpenAI's interface, for servers that take messages alone.

A prompt is a message of words, one for each of its tokens, and a reply in it is a message of its
own. The server says how many tokens its template makes of that, and not where they stand; so the
bounds of cached tokens are as wide as what the template adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

from attrs import evolve, field, frozen

from kvcanon.conformance.probe.chat_words import WORDS
from kvcanon.conformance.probe.openai_api import (
    LIKELIEST,
    STREAMED,
    OpenaiApi,
    gathered,
    with_usage,
)
from kvcanon.conformance.probe.talk import (
    SAID,
    EngineApi,
    EngineFacts,
    Leaves,
    ProbeReply,
    ProbeRequest,
    Tokens,
    TokenScore,
    logprob_in,
    text_in,
)
from kvcanon.conformance.probe.transport import (
    JsonObject,
    ServerProblem,
    ask_json,
    request_fields,
    shown_value,
    stream,
    understood,
)

PATH = "/v1/chat/completions"
_NO_TEMPLATE = (
    "cached tokens to the token: a template adds some to each prompt, and the bounds allow for "
    "all of them"
)


@frozen
class SpokenTokens:
    """The texts of generated tokens, and the ids that stand for them here."""

    _ids: dict[str, int] = field(factory=dict)
    _texts: list[str] = field(factory=list)

    def id_of(self, text: str) -> int:
        """The id of a text, the same each time."""
        if text not in self._ids:
            self._ids[text] = SAID + len(self._texts)
            self._texts.append(text)
        return self._ids[text]

    def text_of(self, token: int) -> str:
        """The text of an id."""
        return self._texts[token - SAID]


@frozen
class ChatApi:
    """A server with OpenAI's chats."""

    completions: OpenaiApi
    """The same server, for all that is no prompt."""
    spoken: SpokenTokens = field(factory=SpokenTokens)

    def facts(self) -> EngineFacts:
        """What the server says of itself, by its models and metrics."""
        facts = self.completions.facts()
        fields = request_fields(self.completions.address, "ChatCompletionRequest")
        return evolve(
            facts,
            api="chat",
            chats=True,
            keeps_replies=False,
            vocabulary=len(WORDS),
            salts=fields is None or "cache_salt" in fields,
            not_said=(*facts.not_said, _NO_TEMPLATE),
        )

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """Send to /v1/chat/completions; where its client may leave, stream."""
        address, body = self.completions.address, self._body(request)
        if leaves is None:
            answer = ask_json(address, "POST", PATH, body)
            reply = understood(PATH, partial(self._reply, answer))
        else:
            reply = gathered(PATH, stream(address, PATH, body | STREAMED), self._said, leaves)
        if reply.prompt_tokens is None:
            # What the template adds is not known either, and no bound is without it.
            return evolve(reply, cached=None)
        added = reply.prompt_tokens - len(request.tokens)
        if added < 0:
            raise ServerProblem(
                f"{PATH} counts {reply.prompt_tokens} tokens of a prompt of "
                f"{len(request.tokens)} words; a word must be one token or more for a probe",
                status=200,
            )
        return evolve(reply, added=added)

    def patient(self, seconds: float) -> EngineApi:
        """The same server, with at least this many seconds for an answer."""
        patient = evolve(self.completions, address=self.completions.address.patient(seconds))
        return evolve(self, completions=patient)

    def flush(self) -> None:
        """Empty the cache."""
        self.completions.flush()

    def prompt_tokens(self) -> float | None:
        """The prompt tokens of all requests so far; their number is not that of the words."""
        return None

    def held_share(self) -> float | None:
        """The share of blocks that requests hold, while none runs."""
        return self.completions.held_share()

    def prompt(self, tokens: Tokens) -> Sequence[object]:
        """The messages of a prompt: words of the user, and what was replied between them."""
        return [
            {
                "role": "assistant" if said else "user",
                "content": self._replied(part) if said else " ".join(WORDS[each] for each in part),
            }
            for said, part in (
                (said, list(run)) for said, run in groupby(tokens, key=lambda each: each >= SAID)
            )
        ]

    def _replied(self, tokens: Sequence[int]) -> str:
        return "".join(self.spoken.text_of(each) for each in tokens)

    def _body(self, request: ProbeRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.space.lora or self.completions.model,
            "messages": self.prompt(request.tokens),
            "max_tokens": request.count,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": LIKELIEST,
        }
        if request.stop_text:
            body["stop"] = [request.stop_text]
        return body | ({"cache_salt": request.space.salt} if request.space.salt else {})

    def _reply(self, answer: JsonObject) -> ProbeReply:
        choices = answer.get("choices")
        if not isinstance(choices, Sequence) or not choices:
            raise ServerProblem(f"{PATH} answered no reply: {shown_value(answer)}", status=200)
        return self._said(answer)

    def _said(self, part: JsonObject) -> ProbeReply:
        """What a part of an answer says, or a whole one."""
        tokens, scores, text = list[int](), list[TokenScore](), ""
        for choice in part.get("choices") or ():
            said = choice.get("message") or choice.get("delta") or {}
            text += text_in(said.get("reasoning_content")) + text_in(said.get("content"))
            scores += self._scores(choice)
        # Without log-probabilities words stand for tokens.
        tokens = [each.token for each in scores]
        tokens = tokens or [self.spoken.id_of(each) for each in _pieces(text)]
        reply = ProbeReply(tuple(tokens), None, scores=tuple(scores), text=text)
        # A template and a text without its last token are counted otherwise.
        return evolve(with_usage(reply, part), generated=None)

    def _scores(self, choice: JsonObject) -> list[TokenScore]:
        id_of = self.spoken.id_of
        return [
            TokenScore(
                id_of(text_in(each["token"])),
                logprob_in(each["logprob"]),
                {
                    id_of(text_in(other["token"])): logprob_in(other["logprob"])
                    for other in each.get("top_logprobs") or ()
                },
            )
            for each in (choice.get("logprobs") or {}).get("content") or ()
        ]


def _pieces(text: str) -> list[str]:
    """A text in pieces of a word each, with the spaces before it."""
    words = text.split(" ")
    return [word if at == 0 else f" {word}" for at, word in enumerate(words) if word or at]
