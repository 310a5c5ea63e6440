"""The completions of OpenAI's interface, as vLLM serves them: prompts and replies as token ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping, Sequence
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
    Tokens,
    TokenScore,
    logprob_in,
    name_in,
    number_in,
    text_in,
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
    served_paths,
    shown_text,
    shown_value,
    stream,
    understood,
)

PATH = "/v1/completions"
LIKELIEST = 4
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
"""What a request has besides whose answer is streamed, with the counts of tokens."""
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
        metrics = metrics_of(self.address)
        config = metric_labels(metrics, "vllm:cache_config_info")
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
            # vLLM has this metric only where a draft model is at work.
            speculative=metric_value(metrics, "vllm:spec_decode_num_drafts_total") is not None,
            keeps_replies=bool(config),
            cache_off=config.get("enable_prefix_caching") == "False",
            salts=fields is None or "cache_salt" in fields,
            not_said=() if config else (_NO_METRICS,),
        )

    def is_there(self) -> bool:
        """Whether the server has completions, and not chats alone. Raises: ServerProblem."""
        paths = served_paths(self.address)
        if paths is not None:
            return PATH in paths or not any(each.endswith("/chat/completions") for each in paths)
        try:
            # It is refused where there are completions, and computes nothing.
            ask_json(self.address, "POST", PATH, {"model": self.model})
        except ServerProblem as problem:
            if not problem.status or problem.status in {401, 403}:
                raise
            return problem.status not in {404, 405}
        return True

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """Send to /v1/completions; where its client may leave, stream, and close the connection."""
        body = self._body(request)
        if leaves is None:
            answer = ask_json(self.address, "POST", PATH, body)
            return understood(PATH, partial(_reply, answer))
        preempted = self._preemptions()
        parts = stream(self.address, PATH, body | STREAMED)
        reply = gathered(PATH, parts, _said, leaves)
        # It may be another request that was taken back; what is not certain is not judged.
        return evolve(reply, retracted=self._preemptions() > preempted)

    def prompt(self, tokens: Tokens) -> Sequence[object]:
        """The token ids themselves."""
        return list(tokens)

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
        if request.stop_token is not None:
            body["stop_token_ids"] = [request.stop_token]
        if request.stop_text:
            body["stop"] = [request.stop_text]
        return body | ({"cache_salt": request.space.salt} if request.space.salt else {})


def _reply(answer: JsonObject) -> ProbeReply:
    choices = answer.get("choices")
    if not isinstance(choices, Sequence) or not choices:
        raise ServerProblem(f"{PATH} answered no reply: {shown_value(answer)}", status=200)
    return _said(answer)


def _said(part: JsonObject) -> ProbeReply:
    """What a part of an answer says, or a whole one."""
    choices = part.get("choices") or ()
    reply = ProbeReply(
        tuple(token for choice in choices for token in _tokens(choice)),
        None,
        scores=tuple(score for choice in choices for score in _scores(choice)),
        text="".join(text_in(choice.get("text")) for choice in choices),
    )
    return with_usage(reply, part)


def with_usage(reply: ProbeReply, part: JsonObject) -> ProbeReply:
    """A reply with the counts of tokens that come with it, if any do."""
    usage = part.get("usage") or {}
    details = usage.get("prompt_tokens_details")
    return evolve(
        reply,
        cached=_counted(details.get("cached_tokens")) if isinstance(details, Mapping) else None,
        prompt_tokens=_counted(usage.get("prompt_tokens")),
        generated=_counted(usage.get("completion_tokens")),
    )


def gathered(
    path: str,
    stream_of_parts: Generator[JsonObject, None, None],
    read: Callable[[JsonObject], ProbeReply],
    leaves: Leaves,
) -> ProbeReply:
    """The reply of a stream, up to where its client leaves. Raises: ServerProblem."""
    tokens: list[int] = []
    scores: list[TokenScore] = []
    text: list[str] = []
    left, whole = False, ProbeReply((), None)
    before: JsonObject | None = None
    again = 0
    with closing(stream_of_parts) as parts:
        for part in parts:
            said = understood(path, partial(read, part))
            # Two equal tokens in a row have log-probabilities of their own, unless both are
            # certain. One part that comes twice may be the engine's fault; all do if somebody else
            # sends them again.
            is_told_by_score = any(each.logprob for each in said.scores)
            again += len(said.tokens) if is_told_by_score and part == before else 0
            before = part
            tokens += said.tokens
            scores += said.scores
            text.append(said.text)
            # The counts come with the last part, of some servers with each.
            if said.prompt_tokens is not None:
                whole = said
            left = leaves(len(tokens))
            if left:
                break
    if again and len(tokens) == 2 * again == 2 * (whole.generated or again):
        raise ServerProblem(
            f"{path} streamed parts twice, with {again} tokens; something between sends them "
            "again: give the address of the engine itself",
            status=200,
        )
    return evolve(
        whole, tokens=tuple(tokens), scores=tuple(scores), text="".join(text), aborted=left
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


def _counted(said: object) -> int | None:
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
