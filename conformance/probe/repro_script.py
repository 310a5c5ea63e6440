"""Writes the requests that show a finding as a script that needs the standard library alone."""

from __future__ import annotations

from pprint import pformat

from kvcanon.conformance.probe.findings import ProbeFault
from kvcanon.conformance.probe.player import ProbePlayer
from kvcanon.conformance.probe.reduction import ShownFinding
from kvcanon.conformance.probe.talk import EngineApi, ProbeRequest
from kvcanon.conformance.probe.transport import EngineAddress
from kvcanon.printable import printable

_WIDTH = 96

_CHECKS = {
    ProbeFault.TOKENS: "tokens",
    ProbeFault.SHARED: "most",
    ProbeFault.TOO_MANY: "most",
    ProbeFault.HELD: "most",
    ProbeFault.TOO_FEW: "least",
    ProbeFault.IN_USE: "held",
    ProbeFault.ENDED: "answers",
    ProbeFault.WINDOW_ORDER: "order",
}
"""What the script checks; a kind that is not here is only played."""


def script_of(
    shown: ShownFinding, address: EngineAddress, player: ProbePlayer, margin: float
) -> str:
    """The source of the script."""
    finding = shown.finding
    check = _CHECKS.get(finding.fault, "play")
    if not finding.bounds and check not in {"tokens", "answers"}:
        check = "play"
    if finding.fault is ProbeFault.ORDER:
        check = "order" if len(finding.bounds) == 2 else "most"
    requests = [_plain(each.request, player.api) for each in shown.requests]
    law = finding.law_id or "no law of its own"
    words = printable(finding.words).replace("\\", "/").replace('"""', "'''")
    head = f'"""{law}, {finding.fault.words}.\n\n{words}.\n'
    constants = {
        "API": player.facts.api,
        "MODEL": player.facts.model,
        "CHECK": check,
        "BOUNDS": finding.bounds,
        "JUDGED": finding.at if finding.at >= 0 else len(shown.requests) - 1,
        "MARGIN": margin,
    }
    named = "".join(f"{name} = {value!r}\n" for name, value in constants.items())
    listed = pformat(requests, width=_WIDTH, compact=True, sort_dicts=False)
    return (
        f"{head}{_USAGE}"
        f"URL = sys.argv[1] if len(sys.argv) > 1 else {address.url!r}\n{named}"
        "# Name, prompt, tokens to generate, namespace (salt, extra key, LoRA), tokens before the\n"
        "# client leaves (0: it stays), how many of the next requests are sent meanwhile, and the\n"
        "# token or the text with which the reply ends (None: it has all its tokens).\n"
        f"REQUESTS = {listed}\n{_BODY}"
    )


def _plain(request: ProbeRequest, api: EngineApi) -> tuple[object, ...]:
    space = request.space
    named = (space.salt, space.extra_key, space.lora)
    prompt, stop = list(api.prompt(request.tokens)), request.stop_text or request.stop_token
    return (request.name, prompt, request.count, named, request.abort_after, request.overlaps, stop)


_USAGE = '''
Run it with the address of the server: it ends with 1 while the fault shows, and with 0 once it does
not. An API key is read from the variable KVCANON_API_KEY, other headers, as an object of JSON, from
KVCANON_HEADERS, and the name of a file with the client's certificate from KVCANON_CLIENT_CERT.

Written by `kvcanon probe`; it needs Python alone.
"""

import http.client
import json
import os
import ssl
import sys
import threading
import time
import urllib.request

'''

_BODY = '''
# What is cached besides can hide some faults once, and the timing of requests at once more often.
# What is only played shows nothing by itself, and may take something from the server each time.
TRIES = 1 if CHECK == "play" else 10 if any(request[5] for request in REQUESTS) else 3


def post(path, body):
    """Open a request; the caller reads the answer."""
    headers = json.loads(os.environ.get("KVCANON_HEADERS") or "{}")
    headers["Content-Type"] = "application/json"
    if os.environ.get("KVCANON_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["KVCANON_API_KEY"]
    request = urllib.request.Request(URL + path, json.dumps(body).encode(), headers)
    security = ssl.create_default_context()
    if os.environ.get("KVCANON_CLIENT_CERT"):
        security.load_cert_chain(os.environ["KVCANON_CLIENT_CERT"])
    return urllib.request.urlopen(request, timeout=120, context=security)


def parts_of(answer):
    """The parts of a streamed answer."""
    for line in answer:
        if line.startswith(b"data: [DONE]"):
            return
        if line.startswith(b"data: "):
            yield json.loads(line[6:])
    raise OSError("a reply broke off")


def ask_sglang(name, tokens, count, space, leave_after, stop=None, begun=None):
    """Send to SGLang; returns tokens, log-probabilities, cached tokens, and those on the device."""
    salt, key, lora = space
    rid = "%s %s" % (RUN, name)
    body = {
        "input_ids": tokens,
        "sampling_params": {
            "temperature": 0,
            "max_new_tokens": count,
            "ignore_eos": not isinstance(stop, int),
            "stop_token_ids": [stop] if isinstance(stop, int) else [],
            "stop": [stop] if isinstance(stop, str) else [],
        },
        "rid": rid,
        "return_logprob": True,
    }
    named = {"cache_salt": salt and "%s %s" % (RUN, salt), "extra_key": key, "lora_path": lora}
    body.update((field, value) for field, value in named.items() if value)
    streams, left = bool(leave_after or begun), False
    with post("/generate", dict(body, stream=streams)) as answers:
        for answer in parts_of(answers) if streams else [json.load(answers)]:
            if begun:
                begun.set()
            came = answer["meta_info"].get("completion_tokens") or len(answer["output_ids"])
            if leave_after and not left and came >= leave_after:
                post("/abort_request", {"rid": rid}).read()
                left = True
    facts = answer["meta_info"]
    cached = facts.get("cached_tokens", 0)
    device = (facts.get("cached_tokens_details") or {}).get("device", cached)
    scores = [each[0] for each in facts.get("output_token_logprobs") or ()]
    return answer["output_ids"], scores, cached, device


def ask_openai(name, tokens, count, space, leave_after, stop=None, begun=None):
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
    if isinstance(stop, int):
        body["stop_token_ids"] = [stop]
    return asked_of("/v1/completions", body, salt, leave_after, stop, begun)


def ask_chat(name, messages, count, space, leave_after, stop=None, begun=None):
    """Send to a server of chats; returns texts of tokens, and the others as above."""
    salt, _, lora = space
    body = {
        "model": lora or MODEL,
        "messages": messages,
        "max_tokens": count,
        "temperature": 0,
        "logprobs": True,
    }
    return asked_of("/v1/chat/completions", body, salt, leave_after, stop, begun)


def asked_of(path, body, salt, leave_after, stop, begun):
    """Send to one of OpenAI's interfaces, and read the answer or its parts."""
    if salt:
        body["cache_salt"] = "%s %s" % (RUN, salt)
    if isinstance(stop, str):
        body["stop"] = [stop]
    streams, came, scores, cached = bool(leave_after or begun), [], [], 0
    with post(path, dict(body, stream=streams)) as answer:
        for part in parts_of(answer) if streams else [json.load(answer)]:
            for each in part["choices"]:
                said = each.get("logprobs") or {}
                came += each.get("token_ids") or [one["token"] for one in said.get("content") or ()]
                scores += said.get("token_logprobs") or ()
                scores += [one["logprob"] for one in said.get("content") or ()]
            usage = part.get("usage") or {}
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            if begun:
                begun.set()
            if leave_after and len(came) >= leave_after:
                break
    return came, scores, cached, cached


def is_right(replies, goes_on):
    """Whether the replies are as they should be; `goes_on`: one was generated during the last."""
    tokens, scores, cached, device = replies[JUDGED]
    if CHECK == "most":
        print("at most %d tokens can be cached" % BOUNDS[0])
        return min(cached, device) <= BOUNDS[0]
    if CHECK == "least":
        print("at least %d tokens must be cached" % BOUNDS[0])
        return cached >= BOUNDS[0]
    if CHECK == "held" and not goes_on:
        print("the reply that holds the prompt ended too soon to show anything")
        return True
    if CHECK == "held":
        print("at least %d tokens must be on the device" % BOUNDS[0])
        return device >= BOUNDS[0]
    if CHECK == "order":
        print("the last finds %d on the device if the one before finds %d" % BOUNDS[::-1])
        return device >= BOUNDS[1] or replies[-2][3] < BOUNDS[0]
    if CHECK == "tokens":
        name, prompt, count, space = REQUESTS[JUDGED][:4]
        right, right_scores, _, _ = ask(name + ", alone", prompt, count, ("alone", "", space[2]), 0)
        print("without a cache: tokens %s" % right)
        far = [abs(a - b) > MARGIN for a, b in zip(scores, right_scores)]
        return tokens == right[: len(tokens)] and not any(far)
    return True


def ask_meanwhile(at, replies, begun):
    """Send a request, and keep its reply, or what went wrong."""
    try:
        replies[at] = ask(*REQUESTS[at][:5], REQUESTS[at][6], begun)
    except Exception as problem:
        replies[at] = problem
    begun.set()


def play():
    """Send all requests; returns the replies, and whether one went on during the judged one."""
    replies, running, goes_on = [None] * len(REQUESTS), [], False
    for at, request in enumerate(REQUESTS):
        if request[5]:
            begun = threading.Event()
            thread = threading.Thread(target=ask_meanwhile, args=(at, replies, begun), daemon=True)
            thread.start()
            begun.wait()
            running.append((at + request[5], thread))
        else:
            replies[at] = ask(*request[:5], request[6])
        if at == JUDGED:
            goes_on = any(thread.is_alive() for _, thread in running)
        for end, thread in running:
            if at >= end:
                thread.join()
    for _, thread in running:
        thread.join()
    for each in replies:
        if isinstance(each, Exception):
            raise each
    return replies, goes_on


ask = {"sglang": ask_sglang, "openai": ask_openai, "chat": ask_chat}[API]
for number in range(TRIES):
    RUN = "script %d" % time.time_ns()
    try:
        replies, goes_on = play()
    except (OSError, http.client.HTTPException) as problem:
        sys.exit("the server ended: %s" % problem)
    for request, reply in zip(REQUESTS, replies):
        parts = "messages" if API == "chat" else "tokens"
        print("%-40s %5d %s, %5d cached, %5d on the device, reply %s" % (
            request[0], len(request[1]), parts, reply[2], reply[3], reply[0]
        ))
    if not is_right(replies, goes_on):
        sys.exit("the fault shows")
print("the fault does not show")
'''
