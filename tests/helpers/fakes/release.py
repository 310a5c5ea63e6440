"""A release of SGLang whose launcher is a script of the test, started as a real one is."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

LOADED = """
    import json, os, sys, threading, time
    from ctypes import CDLL
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from pathlib import Path
    from kvcanon.lab.servers.cache_clock import CLOCK, time_calls

    if not os.fork():
        CDLL(None).prctl(15, b"sglang::schedul", 0, 0, 0)
        CDLL(None).prctl(1, 9, 0, 0, 0)
        while True:
            time.sleep(1)
    core = os.environ.get("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", "none")
    names = {"kvcanon": "KvcanonTreeCore", "rust": "RustUnifiedTreeCore"}
    print("Init Unified Radix Cache. Tree Core:", names.get(core, ANSWERS_WITH), flush=True)
    seconds = {"kvcanon": 0.002, "rust": 0.012}.get(core, 0.006)
    one_at_a_time, served = threading.Lock(), []

    class Cache:
        def match_prefix(self, tokens):
            time.sleep(seconds)
            return any(seen[:1500] == tokens[:1500] for seen in served) * 1500 * (core != "none")

    time_calls(Cache, Path(os.environ[CLOCK]))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.do_GET()
            if self.path != "/generate":
                served.clear()
                return
            with one_at_a_time:
                cached = Cache().match_prefix(body["input_ids"])
                served.append(body["input_ids"])
            if len(served) > DIES_AFTER:
                os.write(2, b"MemoryError: no room is left\\n")
                os._exit(1)
            for count in range(1, body["sampling_params"]["max_new_tokens"] + 1):
                ending = {"type": ENDING} if count == 4 else None
                facts = {"finish_reason": ending, "cached_tokens": cached}
                said = {"output_ids": [7] * count, "meta_info": facts}
                self.wfile.write(b"data: " + json.dumps(said).encode() + b"\\n\\n")
            self.wfile.write(b"data: [DONE]\\n\\n")

        def log_message(self, *_):
            pass

    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""
"""A server under load; its core decides how long its cache takes."""


def release_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a release in a folder, and put it on the path; returns the file of its launcher."""
    package = folder / "release" / "sglang"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    return package / "launch_server.py"


def write_loaded(
    launcher: Path, *, dies_after: int = 10**9, ending: str = "length", other: str = "Other"
) -> None:
    """Write a server that is under load, and may fail."""
    names = f"DIES_AFTER, ENDING, ANSWERS_WITH = {dies_after}, {ending!r}, {other!r}\n"
    launcher.write_text(names + textwrap.dedent(LOADED), encoding="utf-8")


def write_refusing(launcher: Path, sentence: str) -> None:
    """Write a server that ends with a sentence about what it was given; an empty one serves."""
    launcher.write_text(
        textwrap.dedent(REFUSES).replace("SENTENCE", repr(sentence)), encoding="utf-8"
    )


REFUSES = """
    import os, sys
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from importlib.metadata import distributions

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    sentence = SENTENCE
    port = int(sys.argv[sys.argv.index("--port") + 1])
    if not sentence:
        HTTPServer(("127.0.0.1", port), Handler).serve_forever()
    own = sys.argv[sys.argv.index("--skip-server-warmup") + 1 :]
    name = os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"]
    releases = [each.version for each in distributions() if each.name == "sglang"]
    hidden = sys.modules.get("kvcanon.optimized._core", "there")
    raise ValueError(sentence.format(own=own, name=name, releases=releases, hidden=hidden))
"""

KILLED = """
    import ctypes, json, os, signal, sys, threading, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from pathlib import Path

    LAUNCHER = os.getpid()
    ready, writes = os.pipe()
    scheduler = os.fork()
    if not scheduler:
        ctypes.CDLL(None).prctl(15, b"sglang::schedul", 0, 0, 0)
        os.close(writes)
        while ORPHANED or os.getppid() == LAUNCHER:
            time.sleep(0.01)
        os._exit(0)
    threading.Thread(target=lambda: (os.waitpid(scheduler, 0), os._exit(9)), daemon=True).start()
    time.sleep(STARTS_AFTER)
    left = Path(LEAVES) if LEAVES else None
    cached = 4 if left is not None and left.exists() else 0
    if left is not None:
        left.write_text("a prompt")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def do_POST(self):
            length = int(self.headers["Content-Length"])
            rid = json.loads(self.rfile.read(length))["rid"]
            self.do_GET()
            facts = {"finish_reason": {"type": "length"}, "cached_tokens": cached}
            self.wfile.write(json.dumps({"output_ids": [1, 2], "meta_info": facts}).encode())

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        allow_reuse_address = True

    port = int(sys.argv[sys.argv.index("--port") + 1])
    Server(("127.0.0.1", port), Handler).serve_forever()
"""


def write_killed(
    launcher: Path, *, orphaned: bool = False, leaves: str = "", starts_after: float = 0.0
) -> None:
    """Write a server with a scheduler, which may outlive it, and a file that it may leave."""
    names = f"ORPHANED, LEAVES, STARTS_AFTER = {orphaned}, {leaves!r}, {starts_after}\n"
    launcher.write_text(names + textwrap.dedent(KILLED), encoding="utf-8")
