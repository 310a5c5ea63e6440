"""Writes the requests that show a finding as a script that needs the standard library alone."""

from __future__ import annotations

from pprint import pformat

from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.reduction import ShownFinding
from kvcanon.conformance.probe.talk import EngineFacts, ProbeRequest
from kvcanon.conformance.probe.transport import EngineAddress

_WIDTH = 96

_CHECKS = {
    ProbeFault.TOKENS: "tokens",
    ProbeFault.SHARED: "most",
    ProbeFault.TOO_MANY: "most",
    ProbeFault.HELD: "most",
    ProbeFault.TOO_FEW: "least",
    ProbeFault.WINDOW_ORDER: "order",
}
"""What the script checks; a kind that is not here is only played."""


def script_of(
    shown: ShownFinding, address: EngineAddress, facts: EngineFacts, margin: float
) -> str:
    """The source of the script."""
    finding = shown.finding
    check = _CHECKS.get(finding.fault, "play")
    if not finding.bounds and check != "tokens":
        check = "play"
    if finding.fault is ProbeFault.ORDER:
        check = "order" if len(finding.bounds) == 2 else "most"
    requests = [_plain(each.request) for each in shown.requests]
    law = finding.law_id or "no law of its own"
    head = f'"""{law}, {finding.fault.words}.\n\n{_safe(finding.words)}.\n'
    constants = {
        "API": facts.api,
        "MODEL": facts.model,
        "CHECK": check,
        "BOUNDS": finding.bounds,
        "MARGIN": margin,
    }
    named = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    listed = pformat(requests, width=_WIDTH, compact=True, sort_dicts=False)
    return (
        f"{head}{_USAGE}"
        f"URL = sys.argv[1] if len(sys.argv) > 1 else {address.url!r}\n{named}"
        "# Name, prompt, tokens to generate, namespace (salt, extra key, LoRA), and tokens before\n"
        f"# the client leaves (0: it stays).\nREQUESTS = {listed}\n{_BODY}"
    )


def _plain(request: ProbeRequest) -> tuple[object, ...]:
    space = request.space
    named = (space.salt, space.extra_key, space.lora)
    return (request.name, list(request.tokens), request.count, named, request.abort_after)


def _safe(words: str) -> str:
    return words.replace("\\", "/").replace('"""', "'''")


_USAGE = '''
Run it with the address of the server: it ends with 1 while the fault shows, and with 0 once it does
not. An API key is read from the variable KVCANON_API_KEY.

Written by `kvcanon probe`; it needs Python alone.
"""

import json
import os
import sys
import time
import urllib.request

'''

_BODY = '''
TRIES = 3  # What is cached besides can hide some faults once.


def post(path, body):
    """Open a request; the caller reads the answer."""
    headers = {"Content-Type": "application/json"}
    if os.environ.get("KVCANON_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["KVCANON_API_KEY"]
    data = json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(URL + path, data, headers), timeout=120)


def parts_of(answer):
    """The parts of a streamed answer."""
    for line in answer:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[6:])


def ask_sglang(name, tokens, count, space, leave_after):
    """Send to SGLang; returns tokens, log-probabilities, cached tokens, and those on the device."""
    salt, key, lora = space
    rid = "%s %s" % (RUN, name)
    body = {
        "input_ids": tokens,
        "sampling_params": {"temperature": 0, "max_new_tokens": count, "ignore_eos": True},
        "rid": rid,
        "return_logprob": True,
    }
    named = {"cache_salt": salt and "%s %s" % (RUN, salt), "extra_key": key, "lora_path": lora}
    body.update((field, value) for field, value in named.items() if value)
    if not leave_after:
        answer = json.load(post("/generate", body))
    else:
        left = False
        for answer in parts_of(post("/generate", dict(body, stream=True))):
            if not left and len(answer.get("output_ids") or ()) >= leave_after:
                post("/abort_request", {"rid": rid}).read()
                left = True
    facts = answer["meta_info"]
    cached = facts.get("cached_tokens", 0)
    device = (facts.get("cached_tokens_details") or {}).get("device", cached)
    scores = [each[0] for each in facts.get("output_token_logprobs") or ()]
    return answer["output_ids"], scores, cached, device


def ask_openai(name, tokens, count, space, leave_after):
    """Send to vLLM; returns tokens, log-probabilities, cached tokens, and the same again."""
    salt, _, lora = space
    body = {
        "model": lora or MODEL,
        "prompt": tokens,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "logprobs": 1,
        "return_token_ids": True,
    }
    if salt:
        body["cache_salt"] = "%s %s" % (RUN, salt)
    if leave_after:
        came = []
        with post("/v1/completions", dict(body, stream=True)) as answer:
            for part in parts_of(answer):
                came += [token for each in part["choices"] for token in each.get("token_ids") or ()]
                if len(came) >= leave_after:
                    break
        return came, [], 0, 0
    answer = json.load(post("/v1/completions", body))
    choice = answer["choices"][0]
    cached = (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    scores = (choice.get("logprobs") or {}).get("token_logprobs") or []
    return choice["token_ids"], scores, cached, cached


def is_right(replies):
    """Whether the replies are as they should be."""
    tokens, scores, cached, device = replies[-1]
    if CHECK == "most":
        print("at most %d tokens can be cached" % BOUNDS[0])
        return min(cached, device) <= BOUNDS[0]
    if CHECK == "least":
        print("at least %d tokens must be cached" % BOUNDS[0])
        return cached >= BOUNDS[0]
    if CHECK == "order":
        print("the last finds %d on the device if the one before finds %d" % BOUNDS[::-1])
        return device >= BOUNDS[1] or replies[-2][3] < BOUNDS[0]
    if CHECK == "tokens":
        name, prompt, count, space, _ = REQUESTS[-1]
        right, right_scores, _, _ = ask(name + ", alone", prompt, count, ("alone", "", space[2]), 0)
        print("without a cache: tokens %s" % right)
        far = [abs(a - b) > MARGIN for a, b in zip(scores, right_scores)]
        return tokens == right[: len(tokens)] and not any(far)
    return True


ask = ask_sglang if API == "sglang" else ask_openai
for number in range(TRIES):
    RUN = "script %d" % time.time_ns()
    replies = []
    for request in REQUESTS:
        replies.append(ask(*request))
        print("%-40s %5d tokens, %5d cached, %5d on the device, reply %s" % (
            request[0], len(request[1]), replies[-1][2], replies[-1][3], replies[-1][0]
        ))
    if not is_right(replies):
        sys.exit("the fault shows")
print("the fault does not show")
'''
