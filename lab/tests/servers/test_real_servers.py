"""A real SGLang server, with HiCache and a sliding window: its script, and its stream watched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import read_json
from kvcanon.conformance.errors import UsageError
from kvcanon.lab.releases.environment import Peer, usual_folder
from kvcanon.lab.servers.server_environment import server_environment
from kvcanon.live.decode import decode_batch
from kvcanon.live.frames import Frame
from kvcanon.live.stream_recording import open_recording
from paths import HELPERS

pytestmark = pytest.mark.nightly

SECONDS = 600
PORT = re.compile(r"tcp://\*:(\d+)")


def servers() -> Peer:
    """The environment of servers, or a failure of the test."""
    try:
        return server_environment(Path(os.environ.get("KVCANON_PEERS") or usual_folder()))
    except UsageError as reason:
        pytest.fail(str(reason))


def small_script(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command that plays the small script into a folder, and its variables."""
    peer = servers()
    command = [str(peer.python), "-W", "ignore", "-m", "kvcanon.lab.servers", "--small"]
    return [*command, "--into", str(folder)], peer.variables


def test_small_script_gives_equal_tokens_counts_and_events(tmp_path: Path) -> None:
    """Without a cache, and with each core: tokens as transformers', counts and events as Rust's."""
    command, variables = small_script(tmp_path)
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 servers, 0 with findings" in done.stdout


def test_a_server_attaches_storage_while_it_runs_and_detaches_it(tmp_path: Path) -> None:
    """Requests, flushes and an abort are served meanwhile, and under each write policy."""
    peer = servers()
    command = [str(peer.python), "-W", "ignore", str(HELPERS / "sglang_admin.py")]
    done = subprocess.run(
        [*command, "kvcanon", str(tmp_path)],
        env=peer.variables,
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert (report["core"], report["ending"], report["death"]) == ("KvcanonTreeCore", "abort", "")
    assert all(report["right"])
    assert report["detached"].startswith("HiCache storage backend detached")
    assert len(report["said"]) == 4
    assert not [words for words in report["said"] if words.startswith("400: ")]
    assert report["pages"]


def port_of(log: Path, server: subprocess.Popen[bytes]) -> int:
    """The port on which a server will publish, from the flags in its log."""
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends and server.poll() is None:
        found = PORT.search(log.read_text(encoding="utf-8")) if log.exists() else None
        if found:
            return int(found[1])
        time.sleep(0.2)
    raise AssertionError("the server does not start")


def first_clear(recording: Path) -> int:
    """The batch that clears all, before the rounds with namespaces.

    A recording that began early also has the clears of the empty cache that wait for a subscriber.
    """
    stored = False
    for frame in open_recording(recording).frames():
        assert isinstance(frame, Frame)
        kinds = {event.kind for event in decode_batch(frame.payload).events}
        if stored and "AllBlocksCleared" in kinds:
            return frame.sequence
        stored = stored or "BlockStored" in kinds
    raise AssertionError("nothing was flushed")


@pytest.mark.parametrize("core", ["rust", "kvcanon"])
def test_a_real_server_is_watched(
    core: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of its events only EVENT-2 is broken: by Rust's core on the host, by both for extra keys.

    The namespaces come after the flush, and hashes leave their extra keys out.
    """
    served, variables = small_script(tmp_path)
    only = ["--cores", core, "--only", f"{core}-write_through"]
    recording = tmp_path / "watched.kvstream"
    server = subprocess.Popen(
        [*served, *only], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    watching = None
    try:
        port = port_of(tmp_path / f"sliding-{core}-write_through-tp1.log", server)
        kept = ["--record", str(recording), "--keep-tokens"]
        watch = ["watch", f"tcp://127.0.0.1:{port}", *kept]
        limits = ["--hashes", "tokens", "--seconds", str(SECONDS)]
        watching = subprocess.Popen([sys.executable, "-m", "kvcanon", *watch, *limits])
        said = server.communicate(timeout=SECONDS)[0].decode()
    finally:
        if watching is not None:
            watching.terminate()
            watching.wait(60)
        server.terminate()
        server.wait(60)
    assert "90 of 90 replies" in said
    result = read_json(capsys, "audit", str(recording), "--hashes", "tokens", code=1)
    (stream,) = result["streams"]
    assert stream["counts"]["lost"] == stream["counts"]["malformed"] == 0
    assert stream["counts"]["batches"] > 100
    assert set(result["by_law"]) == {"EVENT-2"}
    cleared = first_clear(recording)
    before = [each["what"] for each in result["findings"] if each["batch"] < cleared]
    assert bool(before) is (core == "rust")
    assert all("stored on CPU_PINNED, where it was already" in what for what in before)
    assert any(each["batch"] > cleared for each in result["findings"])
