"""SGLang's own interface: /generate with token ids, cached tokens by tier, aborts by name."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from attrs import evolve, field, frozen

from kvcanon.conformance.probe.talk import (
    DEVICE,
    HOST,
    STORAGE,
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
    ask,
    ask_json,
    hangs,
    metric_value,
    metrics_of,
    object_at,
    request_fields,
    said,
    shown_value,
    stream,
    understood,
)

LOADS = "/v1/loads"
LIKELIEST = 4
"""Tokens of which the log-probability is asked at each place."""

_GROWING = frozenset({"output_token_logprobs", "output_top_logprobs"})
"""Lists in `meta_info` that grow while a reply is streamed."""

_RECURRENT = ("mamba", "jamba", "bamba", "zamba", "next", "linear", "hybrid", "nemotronh", "lfm2")
"""Parts of the names of architectures whose layers keep a state: it is exact at some places only,
so that a prefix cannot be used wherever a page ends."""


@frozen
class SglangApi:
    """A server of SGLang."""

    address: EngineAddress
    run: str
    """A word that makes names of requests unique on the server."""
    numbers: count[int] = field(factory=count)

    def facts(self) -> EngineFacts:
        """What /server_info, /v1/models and the schema of requests say."""
        return understood("/server_info", partial(self._facts, server_info(self.address)))

    def _facts(self, info: JsonObject) -> EngineFacts:
        capacity = _capacities(info)
        fields = request_fields(self.address, "GenerateReqInput")
        model, loras = _models(self.address)
        path = info.get("served_model_name") or info.get("model_path") or ""
        disabled = bool(info.get("disable_radix_cache"))
        return EngineFacts(
            api="sglang",
            version=shown_value(info.get("version", "")),
            model=model or shown_value(path),
            loras=loras,
            page_size=_number(info.get("page_size")),
            context_tokens=_number(info.get("max_req_input_len"))
            or _number(info.get("context_length")),
            pool_tokens=_number(info.get("max_total_num_tokens")),
            window_pool_tokens=_number(capacity.get("token_capacity_swa")),
            window=self._window(capacity),
            has_host=bool(info.get("enable_hierarchical_cache")),
            policy=shown_value(info.get("radix_eviction_policy") or "lru"),
            ranks=_number(info.get("dp_size")) or 1,
            speculative=bool(info.get("speculative_algorithm")),
            keeps_replies=not info.get("strip_thinking_cache"),
            cache_off=disabled,
            salts=fields is None or "cache_salt" in fields,
            extra_keys=fields is None or "extra_key" in fields,
        )

    def generate(self, request: ProbeRequest, leaves: Leaves | None = None) -> ProbeReply:
        """Send to /generate; where its client may leave, stream, and abort by name."""
        body = self._body(request)
        if leaves is None:
            answer = ask_json(self.address, "POST", "/generate", body)
            return understood("/generate", partial(_reply, answer))
        whole: JsonObject = {}
        aborted, ends = False, math.inf
        for part in stream(self.address, "/generate", body | {"stream": True}):
            whole = understood("/generate", partial(_with_part, whole, part))
            if not aborted and leaves(len(whole.get("output_ids") or ())):
                ask(self.address, "POST", "/abort_request", {"rid": body["rid"]})
                aborted, ends = True, time.monotonic() + self.address.timeout
            if time.monotonic() > ends:
                raise hangs(self.address, "/abort_request")
        return understood("/generate", partial(_reply, whole))

    def prompt(self, tokens: Tokens) -> Sequence[object]:
        """The token ids themselves."""
        return list(tokens)

    def patient(self, seconds: float) -> EngineApi:
        """The same server, with at least this many seconds for an answer."""
        return evolve(self, address=self.address.patient(seconds))

    def flush(self) -> None:
        """Empty the cache, once no request runs."""
        ask(self.address, "POST", f"/flush_cache?timeout={self.address.timeout:g}", {})

    def prompt_tokens(self) -> float | None:
        """The prompt tokens of all requests so far, from /metrics (needs --enable-metrics)."""
        return metric_value(metrics_of(self.address), "sglang:prompt_tokens_total")

    def held_share(self) -> float | None:
        """The share of the pool that is neither free nor evictable, from /v1/loads.

        SGLang writes it down whenever it has nothing to do; its metrics only now and then. Other
        releases have another form, or none.
        """
        loads = object_at(self.address, LOADS)
        return said(lambda: understood(LOADS, partial(_held_share, loads)), None)

    def _window(self, capacity: JsonObject) -> int | None:
        """0 if no layer has a window or a state; None if one has, since its size is not said."""
        if "token_capacity_swa" not in capacity or capacity["token_capacity_swa"] is not None:
            return None
        info = object_at(self.address, "/model_info")
        if not info:
            return None
        names = " ".join([*(info.get("architectures") or ()), str(info.get("model_type"))]).lower()
        return None if any(part in names for part in _RECURRENT) else 0

    def _body(self, request: ProbeRequest) -> dict[str, Any]:
        sampling: dict[str, Any] = {"temperature": 0, "max_new_tokens": request.count}
        # SGLang looks for no token that ends a reply where it is to ignore the end of a text.
        sampling["ignore_eos"] = request.stop_token is None
        if request.stop_token is not None:
            sampling["stop_token_ids"] = [request.stop_token]
        if request.stop_text:
            sampling["stop"] = [request.stop_text]
        body: dict[str, Any] = {
            "input_ids": list(request.tokens),
            "sampling_params": sampling,
            "rid": f"{self.run}-{next(self.numbers)}",
            "return_logprob": True,
            "top_logprobs_num": LIKELIEST,
        }
        space = request.space
        named = {
            "cache_salt": space.salt,
            "extra_key": space.extra_key,
            "lora_path": space.lora,
        }
        return body | {name: value for name, value in named.items() if value}


def server_info(address: EngineAddress) -> JsonObject:
    """What the server says of its settings, under the new or the old path."""
    try:
        return ask_json(address, "GET", "/server_info")
    except ServerProblem as problem:
        if problem.status != 404:
            raise
        return ask_json(address, "GET", "/get_server_info")


def _capacities(info: JsonObject) -> JsonObject:
    states = info.get("internal_states")
    first = states[0] if isinstance(states, Sequence) and states else {}
    usage = first.get("memory_usage") if isinstance(first, Mapping) else None
    return usage if isinstance(usage, Mapping) else {}


def _models(address: EngineAddress) -> tuple[str, tuple[str, ...]]:
    """The name of the model, and those of the LoRA adapters that are loaded."""
    cards = object_at(address, "/v1/models").get("data") or ()
    base = next((name_in(card["id"]) for card in cards if not card.get("parent")), "")
    return base, tuple(name_in(card["id"]) for card in cards if card.get("parent"))


def _with_part(whole: JsonObject, part: JsonObject) -> JsonObject:
    """What came so far, with one more part: all tokens again, or the new ones alone.

    SGLang sends the new ones alone with --incremental-streaming-output.
    """
    facts, said = part.get("meta_info"), whole.get("meta_info") or {}
    if not isinstance(facts, Mapping):
        return part
    total = facts.get("completion_tokens")
    grown = {name: _grown(said.get(name), facts[name], total) for name in _GROWING & facts.keys()}
    tokens = _grown(whole.get("output_ids"), part.get("output_ids"), total)
    return {**part, "output_ids": tokens, "meta_info": {**facts, **grown}}


def _grown(before: Sequence[Any] | None, part: Sequence[Any] | None, total: object) -> list[Any]:
    known, new = list(before or ()), list(part or ())
    if not isinstance(total, int) or len(new) >= total:
        return new
    # The last part of an aborted request has its last token again.
    return known + new if len(known) + len(new) <= total else known


def _reply(answer: JsonObject) -> ProbeReply:
    if not answer:
        words = "/generate ended its answer before it began; has the server ended?"
        raise ServerProblem(words, closed=True)
    facts = answer.get("meta_info")
    ending = facts.get("finish_reason") if isinstance(facts, Mapping) else None
    kind = ending.get("type") if isinstance(ending, Mapping) else None
    if not isinstance(facts, Mapping) or kind not in {"length", "stop", "abort"}:
        raise ServerProblem(f"/generate answered no reply: {shown_value(answer)}", status=200)
    if kind == "abort" and not answer.get("output_ids"):
        why = ending.get("message") if isinstance(ending, Mapping) else ""
        raise ServerProblem(f"/generate refused a request: {shown_value(why)}", status=400)
    cached = number_in(facts.get("cached_tokens") or 0)
    return ProbeReply(
        tuple(number_in(each) for each in answer.get("output_ids") or ()),
        cached,
        _tiers(facts.get("cached_tokens_details"), cached),
        tuple(_scores(facts)),
        aborted=kind == "abort",
        retracted=bool(facts.get("num_retractions")),
        text=text_in(answer.get("text")),
        prompt_tokens=_counted(facts.get("prompt_tokens")),
        generated=_counted(facts.get("completion_tokens")),
    )


def _counted(said: object) -> int | None:
    return None if said is None else number_in(said)


def _held_share(loads: JsonObject) -> float | None:
    """None where a request runs, or where the server does not say."""
    ranks = loads.get("loads") or ()
    if not ranks or any(each["num_running_reqs"] or each["num_waiting_reqs"] for each in ranks):
        return None
    room = sum(number_in(each["max_total_num_tokens"]) for each in ranks)
    return sum(number_in(each["num_used_tokens"]) for each in ranks) / room if room else None


def _tiers(details: object, cached: int) -> Mapping[str, int] | None:
    if not isinstance(details, Mapping):
        return {DEVICE: 0, HOST: 0, STORAGE: 0} if not cached else None
    host, stored = (number_in(details.get(name) or 0) for name in ("host", "storage"))
    device = number_in(details.get("device", max(0, cached - host)))
    return {DEVICE: device, HOST: host, STORAGE: stored}


def _scores(facts: JsonObject) -> list[TokenScore]:
    chosen = facts.get("output_token_logprobs") or ()
    tops = facts.get("output_top_logprobs") or [None] * len(chosen)
    return [
        TokenScore(
            number_in(each[1]),
            logprob_in(each[0]),
            {number_in(t[1]): logprob_in(t[0]) for t in likeliest or ()},
        )
        for each, likeliest in zip(chosen, tops, strict=False)
        if each[0] is not None
    ]


def _number(value: object) -> int | None:
    try:
        return number_in(value) or None
    except ValueError:
        return None
