"""The completions of OpenAI's interface, as vLLM serves them: prompts and replies as token ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from attrs import evolve, frozen

from kvcanon.conformance.probe.talk import (
    EngineApi,
    EngineFacts,
    Leaves,
    ProbeReply,
    ProbeRequest,
    TokenScore,
    logprob_in,
    name_in,
    number_in,
)
from kvcanon.conformance.probe.transport import (
    EngineAddress,
    JsonObject,
    ServerProblem,
    ask_json,
    metric_labels,
    metric_value,
    metrics_of,
    object_at,
    request_fields,
    shown_text,
    shown_value,
    stream,
    understood,
)

PATH = "/v1/completions"
LIKELIEST = 4
_NUMBER = re.compile(r"[0-9]{1,15}\Z")
_NAMED_ID = "token_id:"
_NO_METRICS = "the sizes of page and pool: /metrics does not have vllm:cache_config_info"


@frozen
class OpenaiApi:
    """A server with OpenAI's completions."""

    address: EngineAddress
    model: str = ""
    """The model that requests name; the first that the server lists if empty."""

    def facts(self) -> EngineFacts:
        """What /v1/models, /version, /metrics and the schema of requests say."""
        models = ask_json(self.address, "GET", "/v1/models")
        return understood("/v1/models", partial(self._facts, models))

    def _facts(self, models: JsonObject) -> EngineFacts:
        cards = models.get("data") or ()
        bases = [card for card in cards if not card.get("parent")]
        if not bases:
            raise ServerProblem(f"{self.address.url}/v1/models lists no model", status=200)
        listed = [name_in(card["id"]) for card in cards]
        if self.model not in listed:
            raise ServerProblem(
                f"{self.address.url}/v1/models lists no model {self.model!r}; it lists "
                f"{shown_text(', '.join(listed))}: choose by --model",
                status=200,
            )
        base = next((card for card in bases if card["id"] == self.model), bases[0])
        config = metric_labels(metrics_of(self.address), "vllm:cache_config_info")
        page, blocks = (_number(config.get(name)) for name in ("block_size", "num_gpu_blocks"))
        fields = request_fields(self.address, "CompletionRequest")
        return EngineFacts(
            api="openai",
            version=shown_value(object_at(self.address, "/version").get("version", "")),
            model=name_in(base["id"]),
            loras=tuple(name_in(card["id"]) for card in cards if card.get("parent") == base["id"]),
            page_size=page,
            context_tokens=number_in(base.get("max_model_len") or 0) or None,
            pool_tokens=page * blocks if page and blocks else None,
            policy="lru" if config else None,
            cache_off=config.get("enable_prefix_caching") == "False",
            salts=fields is None or "cache_salt" in fields,
            not_said=() if config else (_NO_METRICS,),
        )

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """Send to /v1/completions; where its client may leave, stream, and close the connection."""
        body = self._body(request)
        if leaves is None:
            answer = ask_json(self.address, "POST", PATH, body)
            return understood(PATH, partial(_reply, answer))
        tokens: list[int] = []
        scores: list[TokenScore] = []
        cached: int | None = None
        left = False
        asked = {"stream": True, "stream_options": {"include_usage": True}}
        preempted = self._preemptions()
        with closing(stream(self.address, PATH, body | asked)) as parts:
            for part in parts:
                said = understood(PATH, partial(_said, part))
                tokens += said.tokens
                scores += said.scores
                cached = cached if said.cached is None else said.cached
                left = leaves(len(tokens))
                if left:
                    break
        # It may be another request that was taken back; what is not certain is not judged.
        retracted = self._preemptions() > preempted
        return ProbeReply(tuple(tokens), cached, None, tuple(scores), left, retracted)

    def patient(self, seconds: float) -> EngineApi:
        """The same server, with at least this many seconds for an answer."""
        return evolve(self, address=self.address.patient(seconds))

    def flush(self) -> None:
        """Empty the cache; vLLM offers it in its development mode only."""
        answer = ask_json(self.address, "POST", "/reset_prefix_cache", {})
        if answer.get("success") is False:
            raise ServerProblem("/reset_prefix_cache: blocks are still held", status=400)

    def prompt_tokens(self) -> float | None:
        """The prompt tokens of all requests so far, from /metrics."""
        return metric_value(metrics_of(self.address), "vllm:prompt_tokens_total")

    def held_share(self) -> float | None:
        """The share of blocks that requests hold, from /metrics, while none runs."""
        text = metrics_of(self.address)
        if metric_value(text, "vllm:num_requests_running") != 0:
            return None
        return metric_value(text, "vllm:kv_cache_usage_perc")

    def _preemptions(self) -> float:
        """How many requests were taken back so far, if that is said."""
        return metric_value(metrics_of(self.address), "vllm:num_preemptions_total") or 0.0

    def _body(self, request: ProbeRequest) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": request.space.lora or self.model,
            "prompt": list(request.tokens),
            "max_tokens": request.count,
            "temperature": 0,
            "ignore_eos": True,
            "logprobs": LIKELIEST,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        return body | ({"cache_salt": request.space.salt} if request.space.salt else {})


def _reply(answer: JsonObject) -> ProbeReply:
    choices = answer.get("choices")
    if not isinstance(choices, Sequence) or not choices:
        raise ServerProblem(f"{PATH} answered no reply: {shown_value(answer)}", status=200)
    return _said(answer)


def _said(part: JsonObject) -> ProbeReply:
    """What a part of an answer says, or a whole one."""
    choices = part.get("choices") or ()
    details = (part.get("usage") or {}).get("prompt_tokens_details")
    return ProbeReply(
        tuple(token for choice in choices for token in _tokens(choice)),
        _cached(details.get("cached_tokens")) if isinstance(details, Mapping) else None,
        scores=tuple(score for choice in choices for score in _scores(choice)),
    )


def _tokens(choice: JsonObject) -> list[int]:
    given = choice.get("token_ids")
    if given is None:
        named = (choice.get("logprobs") or {}).get("tokens") or ()
        given = [each.removeprefix(_NAMED_ID) for each in named if each.startswith(_NAMED_ID)]
        if choice.get("text") and not given:
            raise ServerProblem(
                f"{PATH} names no token ids (return_token_ids); the probe needs a server that "
                "does, as vLLM since 0.10.2",
                status=200,
            )
    return [number_in(_id(each) if isinstance(each, str) else each) for each in given]


def _cached(said: object) -> int | None:
    return None if said is None else number_in(said)


def _scores(choice: JsonObject) -> list[TokenScore]:
    said = choice.get("logprobs") or {}
    rows = zip(
        said.get("tokens") or (),
        said.get("token_logprobs") or (),
        said.get("top_logprobs") or (),
        strict=False,
    )
    return [
        TokenScore(
            _id(token),
            logprob_in(logprob),
            {_id(t): logprob_in(p) for t, p in (tops or {}).items()},
        )
        for token, logprob, tops in rows
        if logprob is not None and token.startswith(_NAMED_ID)
    ]


def _id(token: str) -> int:
    return number_in(int(token.removeprefix(_NAMED_ID)))


def _number(value: str | None) -> int | None:
    return int(value) if value is not None and _NUMBER.match(value) else None
