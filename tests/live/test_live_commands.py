"""The commands `watch` and `audit`, and the metrics of a watch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from command_line import KVCANON, read, read_json, usage_error
from kvcanon.conformance.cli import main
from kvcanon.live import Publisher, Subscriber
from kvcanon.live.dashboard import amount, dashboard
from kvcanon.live.follower import Streams
from kvcanon.live.metrics import start_metrics
from kvcanon.live.stream_recording import open_recording
from kvcanon.live.watch import StreamWatch
from kvcanon.spec.events import AllBlocksCleared, Event
from kvcanon.spec.law import LAWS
from loopback import listening, publisher, until
from sent_events import CLEARED, frame, frames_of, recorded, remove, removes, store, stores

PROMPT = store([10, 20, 30])


@contextmanager
def publishing(*batches: list[Event]) -> Iterator[Publisher]:
    """A publisher that sends batches, and then a sound one every few milliseconds."""
    over = threading.Event()
    with publisher() as sender:

        def send() -> None:
            for events in batches:
                sender.publish(events)
            number = 0
            while not over.wait(0.02):
                number += 1
                sender.publish(stores(5000 + 4 * number))

        thread = threading.Thread(target=send)
        thread.start()
        try:
            yield sender
        finally:
            over.set()
            thread.join()


def stream(path: Path, *batches: list[dict[str, Any]]) -> str:
    """A recording of batches, and its path."""
    return str(recorded(path, frames_of(*batches)).path)


def watched(sender: Publisher, *options: str) -> list[str]:
    """The command that watches a publisher."""
    return ["watch", sender.endpoint, "--replay", str(sender.replay_endpoint), *options]


def test_watch_shows_and_records_a_sound_stream(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends after its time with what is cached, and its recording passes the audit."""
    path = tmp_path / "a.kvstream"
    with publishing([AllBlocksCleared()], stores(10, 20)) as sender:
        assert main(watched(sender, "--seconds", "1", "--record", str(path))) == 0
    shown = capsys.readouterr().out
    assert "No law is broken." in shown
    assert sender.endpoint in shown
    assert open_recording(path).sources[0].endpoint == sender.endpoint
    assert "No law is broken." in read(capsys, "audit", str(path))


def test_watch_ends_at_a_violation_where_it_is_asked_to(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With --fail-on-violation it ends with 1 and names the law; --ignore leaves the law out."""
    broken = [AllBlocksCleared(), *stores(10, 20)], stores(10, 20)
    with publishing(*broken) as sender:
        began = time.monotonic()
        assert main(watched(sender, "--seconds", "20", "--fail-on-violation")) == 1
        assert time.monotonic() - began < 15
        line = capsys.readouterr().out.splitlines()[0]
        assert f" EVENT-2 {sender.endpoint} source 0 batch 1 event 0: " in line
        datetime.fromisoformat(line.split()[0])
        ignoring = watched(sender, "--seconds", "1", "--fail-on-violation", "--ignore", "EVENT-2")
        assert main(ignoring) == 0


AS_PID_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


@pytest.mark.parametrize("within", [(), AS_PID_1], ids=["a process", "the first process"])
def test_sigterm_ends_a_watch_with_its_summary(within: tuple[str, ...]) -> None:
    """Also where it is the first process of a container, which the system protects from it."""
    if within and subprocess.run([*within, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this system lets nobody make a namespace of processes")
    with publishing([AllBlocksCleared()], stores(10, 20), stores(10, 20)) as sender:
        command = [*within, *KVCANON, *watched(sender, "--seconds", "20")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            assert running.stdout is not None
            # The first line is a violation, so the watch has begun.
            assert " EVENT-2 tcp://" in running.stdout.readline()
            children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text()
            began = time.monotonic()
            os.kill(int(children.split()[0]) if within else running.pid, signal.SIGTERM)
            printed = running.stdout.read()
            assert running.wait(10) == 0
    assert time.monotonic() - began < 5
    assert "violations: EVENT-" in printed


def test_a_watch_without_a_frame_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong address ends with 1 and is named; nothing says that no law is broken."""
    assert main(["watch", "tcp://127.0.0.1:1", "--seconds", "0.5"]) == 1
    printed = capsys.readouterr()
    assert "nothing came from tcp://127.0.0.1:1: check the address" in printed.err
    assert "so no law was checked" in printed.out
    assert "No law is broken" not in printed.out


def test_a_watch_does_not_overwrite_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 2 before it listens; an empty file may be written."""
    path = Path(stream(tmp_path / "a", [CLEARED]))
    before = path.read_bytes()
    watch = ["watch", "tcp://127.0.0.1:1", "--seconds", "0.1", "--record"]
    assert main([*watch, str(path)]) == 2
    assert f"{path} is there already" in capsys.readouterr().err
    assert path.read_bytes() == before
    (tmp_path / "b").touch()
    assert main([*watch, str(tmp_path / "b")]) == 1
    (tmp_path / "c.1").write_bytes(before)
    assert main([*watch, str(tmp_path / "c")]) == 2
    assert "c.1 is there already" in capsys.readouterr().err


def test_a_recording_without_events_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends with 1, and says that no law was checked."""
    shown = read(capsys, "audit", stream(tmp_path / "a"), code=1)
    assert "There are no events, so no law was checked." in shown
    assert "No law is broken" not in shown


def test_audit_shows_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It ends with 1, and prints the law, the events that show it, and what a router believes."""
    path = stream(tmp_path / "a", [CLEARED], [PROMPT], [PROMPT | {"medium": "CPU"}], [PROMPT])
    shown = read(capsys, "audit", path, code=1)
    assert "EVENT-2 at source 0 batch 3 event 0" in shown
    assert "Shown by 2 events:" in shown
    assert "Wrongly believed: A router that counts copies" in shown
    assert f"\nThe law: {LAWS['EVENT-2'].address}\n" in shown
    assert "BROKEN: EVENT-2 3 times" in shown
    result = read_json(capsys, "audit", path, code=1)
    assert result["by_law"] == {"EVENT-2": 3}
    assert result["excerpts"][0]["shows"]
    assert result["streams"][0]["books"][0]["blocks"][:2] == [3, 3]


def test_audit_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --against it says whether the streams are equal, and where they differ."""
    first = stream(tmp_path / "a", [CLEARED], [PROMPT])
    second = stream(tmp_path / "b", [CLEARED], [PROMPT], [remove(PROMPT["block_hashes"][2:])])
    assert "are equal, in order" in read(capsys, "audit", first, "--against", first)
    shown = read(capsys, "audit", first, "--against", second, code=1)
    assert "1 blocks removed from GPU" in shown
    assert "differ first at place 4: nothing, and block" in shown
    assert read_json(capsys, "audit", first, "--against", second, code=1)["resident"] == [2, 1, 0]


def test_wrong_commands_are_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong endpoint, file, law or number ends with 2 and says why."""
    usage_error(capsys, "watch", "5557")
    usage_error(capsys, "watch", "tcp://127.0.0.1:5557", "--ignore", "EVENT-99")
    usage_error(capsys, "watch", "tcp://a:1", "tcp://b:1", "--replay", "tcp://a:2")
    usage_error(capsys, "watch", "tcp://a:1", "--record", str(tmp_path / "no" / "a"))
    assert "no address to connect to; name" in usage_error(capsys, "watch", "tcp://*:5557")
    many = ("watch", *(f"tcp://h{number}:1" for number in range(5)), "--ranks", "256")
    assert "1280 publishers are too many" in usage_error(capsys, *many)
    assert "named 2 times" in usage_error(capsys, "watch", "tcp://a:1", "tcp://a:1")
    assert "nobody is named" in usage_error(capsys, "watch")
    assert "is no name with a port" in usage_error(capsys, "watch", "--discover", "dns://a")
    usage_error(capsys, "audit", str(tmp_path / "none"))
    path = stream(tmp_path / "a", [CLEARED])
    usage_error(capsys, "audit", path, "--against", path, "--source", "3")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_watch_that_found_nobody_says_why(
    form: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its end may come before the first answer; that nobody was heard is not all that is said."""

    def end_of(place: str) -> str:
        assert main(["watch", "--discover", place, "--seconds", "0.4", *form]) == 1
        said = capsys.readouterr()
        return said.out if form else said.err

    empty = tmp_path / "empty"
    empty.write_text("# nobody yet\n", encoding="utf-8")
    assert f"{empty} names nobody" in end_of(str(empty))
    assert f"{tmp_path}/none cannot be read" in end_of(f"{tmp_path}/none")
    hanging = threading.Event()
    monkeypatch.setattr("kvcanon.live.discovery.find_sources", lambda _: hanging.wait())
    assert "dns://slow:1 did not answer before the end" in end_of("dns://slow:1")
    hanging.set()


@pytest.mark.parametrize("missing", ["msgspec", "zmq", "prometheus_client", "kvcanon.live._stream"])
def test_a_missing_extra_is_one_line(missing: str) -> None:
    """Without a package of the extra both commands end with 2 and say what to install."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from kvcanon.conformance.cli import main; sys.exit(main(['audit', 'x']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "kvcanon[live]" in line
    assert ("without `--config-settings=kvcanon.core=off`" in line) == missing.endswith("_stream")


def test_metrics_and_dashboard_tell_what_is_held() -> None:
    """A scrape and the dashboard have the blocks, the tokens, the gaps and the broken laws."""
    with (
        publishing([AllBlocksCleared(), *stores(10, 20)], removes(stores(10, 20, 30))) as sender,
        listening(sender) as listener,
    ):
        watch = StreamWatch(listener.subscriber, Streams())
        assert "waiting" in rendered(watch)
        watch.read_rates()
        until(lambda: bool(watch.streams.total), lambda: watch.step(0.05))
        watch.read_rates()
        port, close = start_metrics(watch, 0)
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            text = urllib.request.urlopen(url, timeout=10).read().decode()
        finally:
            close()
        source = f'source="{sender.endpoint}"'
        assert f'kvcanon_stream_violations_total{{group="",law="EVENT-2",{source}}} 1.0' in text
        assert f"kvcanon_stream_up{{{source}}} 1.0" in text
        assert f'kvcanon_cache_blocks{{group="0",medium="GPU",rank="0",{source}}}' in text
        assert "kvcanon_stream_gaps_total" in text
        shown = rendered(watch)
        assert "1 violations: EVENT-2 1" in shown
        assert "GPU" in shown


def rendered(watch: StreamWatch) -> str:
    """The dashboard as text."""
    console = Console(width=140, record=True, file=StringIO())
    console.print(dashboard(watch))
    return console.export_text()


def test_addresses_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brackets, as of IPv6, are no markup."""
    addresses = ("tcp://[fe80::1]:5557", "ipc:///tmp/[/x]")
    with Subscriber(addresses) as subscriber:
        shown = rendered(StreamWatch(subscriber, Streams()))
    sent = [frame(0, CLEARED, source=source) for source in range(2)]
    audited = read(capsys, "audit", str(recorded(tmp_path / "a", sent, *addresses).path))
    for each in addresses:
        assert each in shown
        assert each in audited


def test_a_full_disk_ends_the_recording_and_not_the_watch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The line says which file cannot be written, and the watch finds what comes later."""
    with publishing([AllBlocksCleared()], stores(10), stores(10)) as sender:
        assert main(watched(sender, "--seconds", "2", "--record", "/dev/full")) == 0
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    full = "the recording ended: [Errno 28] No space left on device: '/dev/full'"
    assert line == f"kvcanon: {full}"
    assert "EVENT-2" in printed.out
    assert full in printed.out


def test_amounts_are_short() -> None:
    """A large number has three figures and a unit."""
    amounts = {0: "0", 999: "999", 1500: "1.5k", 2_340_000: "2.34M", 5e9: "5G"}
    assert {number: amount(number) for number in amounts} == amounts


def test_a_masked_recording_is_audited_without_its_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says so; what would need the tokens is refused, and --keep-tokens keeps them."""
    kept, masked = str(tmp_path / "kept"), str(tmp_path / "masked")
    with publishing([AllBlocksCleared()], stores(10, 20)) as sender:
        for path, option in ((masked, ()), (kept, ("--keep-tokens",))):
            assert main(watched(sender, "--seconds", "1", "--record", path, *option)) == 0
    capsys.readouterr()
    assert "Its tokens are masked" in read(capsys, "audit", masked)
    assert "Its tokens are masked" not in read(capsys, "audit", kept, "--hashes", "tokens")
    for options in (("--hashes", "tokens"), ("--against", kept), ("--served", kept)):
        assert "record with --keep-tokens" in usage_error(capsys, "audit", masked, *options)


def test_lines_of_json_say_what_happens_and_to_whom(capsys: pytest.CaptureFixture[str]) -> None:
    """A change of a publisher's state, a violation, and at the end what came of all."""
    with publishing([AllBlocksCleared()], stores(10, 20), stores(10, 20)) as sender:
        assert main(watched(sender, "--seconds", "2", "--json")) == 0
    lines = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    assert {each["kind"] for each in lines} == {"state", "violation", "summary"}
    assert {each.get("endpoint", sender.endpoint) for each in lines} == {sender.endpoint}
    assert all(datetime.fromisoformat(each["time"]) for each in lines)
    (found,) = {each["law"] for each in lines if each["kind"] == "violation"}
    assert found == "EVENT-2"
    summary = lines[-1]
    assert summary["violations"] == 2
    assert summary["publishers"][0]["state"] == "live"
    assert summary["publishers"][0]["books"][0]["blocks"]["GPU"] > 2


def test_whether_a_watch_is_well_is_served() -> None:
    """It is while it steps, with its publishers by state; it is not once it is stuck."""
    with publishing([AllBlocksCleared()]) as sender, listening(sender) as listener:
        watch = StreamWatch(listener.subscriber, Streams())
        until(lambda: bool(watch.streams.followers), lambda: watch.step(0.05))
        port, close = start_metrics(watch, 0)
        try:
            url = f"http://127.0.0.1:{port}/healthz"
            told = json.loads(urllib.request.urlopen(url, timeout=10).read())
            assert (told["ok"], told["publishers"]) == (True, {"live": 1})
            watch.stepped -= 60
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(url, timeout=10)
        finally:
            close()


def test_the_screen_shows_violations_whatever_its_height() -> None:
    """Of 300 publishers those with violations come first, and all fits into the lines there are."""
    with Subscriber([f"tcp://h{number}:1" for number in range(300)]) as subscriber:
        watch = StreamWatch(subscriber, Streams())
        for number in range(300):
            watch.latest.extend(watch.streams.take(frame(0, CLEARED, source=number)))
        broken = [frame(1, PROMPT, source=277), frame(2, PROMPT, source=277)]
        for each in broken:
            watch.latest.extend(watch.streams.take(each))
        for lines in (24, 40, 80):
            console = Console(width=120, record=True, file=StringIO())
            console.print(dashboard(watch, lines))
            shown = console.export_text().splitlines()
            assert len(shown) <= lines
            assert "3 violations: EVENT-2 3" in shown[1]
            assert any(each.startswith("277 tcp://h277:1") for each in shown[:16])
            assert any("more" in each for each in shown)
