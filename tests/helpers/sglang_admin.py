"""Asks a real SGLang server with HiCache to attach storage while it runs, and to detach it.

Run in SGLang's environment with the name of a tree core and a folder; its last line is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from kvcanon.conformance.probe import transport
from kvcanon.conformance.probe.transport import EngineAddress, ServerProblem
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import ScriptedRequest
from kvcanon.lab.servers.script_rounds import SMALL
from kvcanon.lab.servers.server_process import running
from kvcanon.lab.servers.server_setup import WRITE_THROUGH, ServerSetup
from kvcanon.lab.servers.tiny_model import FULL_MODEL

KEY = "administrator"
FOLDER = "SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR"
STORAGE = "/hicache/storage-backend"
FLUSH = "/flush_cache?timeout=60"
WAITING_S = 60.0


def generated(at: EngineAddress, request: ScriptedRequest) -> bool:
    """Whether the server answers a prompt with the tokens of its model."""
    sampling = {"temperature": 0, "max_new_tokens": len(request.expected)}
    body = {"input_ids": list(request.tokens), "sampling_params": sampling}
    answer = transport.ask_json(at, "POST", "/generate", body)
    return tuple(answer["output_ids"]) == request.expected


def aborted(at: EngineAddress, request: ScriptedRequest) -> str:
    """How a request ends that is aborted after its first token."""
    sampling = {"temperature": 0, "max_new_tokens": 100, "ignore_eos": True}
    body = {"input_ids": list(request.tokens), "sampling_params": sampling, "rid": "aborted"}
    ending = ""
    for part in transport.stream(at, "/generate", body | {"stream": True}):
        if not ending:
            transport.ask(at, "POST", "/abort_request", {"rid": "aborted"})
        ending = (part["meta_info"]["finish_reason"] or {"type": "none"})["type"]
    return ending


def attached(at: EngineAddress, **policies: str) -> str:
    """What the server says to the request that it attach storage."""
    body = {"hicache_storage_backend": "file"} | policies
    try:
        return transport.ask(at, "PUT", STORAGE, body).decode()
    except ServerProblem as problem:
        return f"{problem.status}: {problem}"


def detached_once_idle(at: EngineAddress) -> str:
    """What the server says to the request that it detach storage, once no request runs."""
    ends = time.monotonic() + WAITING_S
    while True:
        try:
            return transport.ask(at, "DELETE", STORAGE).decode()
        except ServerProblem as problem:
            if "not idle" not in str(problem) or time.monotonic() > ends:
                raise
        time.sleep(0.1)


def written(pages: Path) -> int:
    """How many files of pages there are, once there is one; 0 if none comes."""
    ends = time.monotonic() + WAITING_S
    while not (found := len(list(pages.iterdir()))) and time.monotonic() < ends:
        time.sleep(0.1)
    return found


def report(core: str, folder: Path) -> dict[str, object]:
    """What the server did."""
    runs = EngineRuns(folder, 0, SMALL, lambda _: None)
    rounds = runs.script(FULL_MODEL).rounds
    requests = rounds[0].requests
    setup = ServerSetup(FULL_MODEL, core, WRITE_THROUGH, flags=("--admin-api-key", KEY))
    pages = folder / "pages"
    pages.mkdir()
    with running(setup, folder / FULL_MODEL, folder, {FOLDER: str(pages)}) as server:
        at = EngineAddress("127.0.0.1", server.ports.http, api_key=KEY)
        right = [generated(at, each) for each in requests]
        said = [attached(at)]
        # What came before is on the host already, and is not written to storage any more.
        right += [generated(at, each) for each in rounds[1].requests]
        stored = written(pages)
        said += [
            attached(at, hicache_write_policy=each)
            for each in ("write_back", "write_through_selective")
        ]
        right += [generated(at, each) for each in requests]
        transport.ask(at, "POST", FLUSH, {})
        said += [attached(at, hicache_write_policy="write_back")]
        right += [generated(at, each) for each in requests]
        ending = aborted(at, requests[0])
        detached = detached_once_idle(at)
        transport.ask(at, "POST", FLUSH, {})
        right += [generated(at, each) for each in requests]
        return {
            "core": server.core,
            "right": right,
            "said": said,
            "ending": ending,
            "detached": detached,
            "death": server.death,
            "pages": stored,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(report(sys.argv[1], Path(sys.argv[2]))) + "\n")
