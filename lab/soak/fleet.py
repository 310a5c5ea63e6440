"""Fleet: 500 publishers, three of which do their worst, followed by `kvcanon watch` on two cores.

One publisher leaves 10,000 gaps and names a replay where nobody is, one answers a replay without
end, one sends frames of 100 MB. The run says how long after its batch each batch of the others is
folded, how much memory the watch takes, and how soon it ends after Ctrl-C and after SIGTERM. It
fails if a bar is missed, a batch of the others is lost, or a law is said to be broken by them.

Run it as `python -m kvcanon.lab.soak.fleet --json fleet.json`, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import zmq
from attrs import asdict, define, field, frozen

from kvcanon.conformance.cli import main as kvcanon
from kvcanon.lab.bench.memory import resident_bytes
from kvcanon.lab.servers.server_process import free_ports
from kvcanon.live.follower import Streams
from kvcanon.live.frames import Arrived, Frame
from kvcanon.run_record import with_run

MODULE = "kvcanon.lab.soak.fleet"
PERIOD_S = 0.5
"""Between two batches of a publisher."""
GAPS, ENDLESS, HUGE = 0, 1, 2
"""The numbers of those that do their worst."""
WORST = 3
HUGE_BYTES = 100_000_000
HUGE_PERIOD_S = 2.0
REPLAY_PERIOD_S = 0.0005
"""Between two batches of the replay that never ends."""
BLOCKS_A_BATCH = 8
BLOCK_TOKENS = 16
UNSETTLED_S = 4.0
"""Gaps of the last seconds may still wait for a replay."""
MOST_LAG_S = 1.0
MOST_END_S = 1.0
HELD_BYTES = (256 << 20) + (64 << 20)
"""What docs/live.md allows beside blocks: frames that wait for a replay, and the largest frame."""
BYTES_A_BLOCK = 92
LEDGER_BYTES = 4 << 20
"""For each publisher that did not do well, once enough blocks have left."""
START_S = 120.0


@frozen
class FleetRun:
    """A watch of the fleet, up to a signal."""

    signal: str
    publishers: int
    seconds: float
    gaps: int
    huge_frames: int
    batches: int
    """Of the others, folded."""
    lost: int
    lag_ms: Mapping[str, float]
    """From a batch's time to its fold: p50, p99 and the most."""
    accused: int
    """Findings about the others."""
    gaps_seen: int
    refused: int
    """What the watch saw of those that did their worst."""
    replayed: int
    """Batches that the replay without an end sent to it."""
    watch_cpu: float
    """Cores that the watch used."""
    start_bytes: int
    most_bytes: int
    bound_bytes: int
    end_s: float
    """From the signal to the end of the process, its summary included."""
    exit_code: int

    @property
    def missed(self) -> list[str]:
        """The bars that were missed."""
        bars = {
            f"a batch was folded after {self.lag_ms['most']:.0f} ms": self.lag_ms["most"]
            < 1000 * MOST_LAG_S,
            f"{self.lost} batches were lost": self.lost == 0,
            f"{self.accused} findings about publishers that are sound": self.accused == 0,
            f"{self.most_bytes >> 20} MiB of at most {self.bound_bytes >> 20}": self.most_bytes
            <= self.bound_bytes,
            f"it ended {self.end_s:.2f} s after {self.signal}": self.end_s < MOST_END_S,
            f"it ended with {self.exit_code}": self.exit_code == 0,
            f"{self.gaps_seen} of {self.gaps} gaps were seen": self.gaps_seen
            >= self.gaps * (1 - UNSETTLED_S / self.seconds),
            "no frame of 100 MB was refused": self.refused > 0,
            "nobody asked for the replay": self.replayed > 0,
        }
        return [words for words, is_met in bars.items() if not is_met]


# --------------------------------------------------------------------------------------------------
# The publishers, in a process of their own
# --------------------------------------------------------------------------------------------------


def payload(events: Sequence[Mapping[str, object]]) -> bytes:
    """A batch of now."""
    return msgspec.msgpack.encode([time.time(), events, 0])


def stored(first: int) -> dict[str, object]:
    """Blocks of a prompt, by their ids."""
    return {
        "type": "BlockStored",
        "block_hashes": list(range(first, first + BLOCKS_A_BATCH)),
        "parent_block_hash": None,
        "token_ids": list(range(BLOCKS_A_BATCH * BLOCK_TOKENS)),
        "block_size": BLOCK_TOKENS,
        "medium": "GPU",
    }


def removed(first: int) -> dict[str, object]:
    """The same blocks leave, the last first."""
    hashes = list(range(first + BLOCKS_A_BATCH - 1, first - 1, -1))
    return {"type": "BlockRemoved", "block_hashes": hashes, "medium": "GPU"}


def batch_of(number: int, place: int) -> bytes:
    """The batch of a number: a clear, and then a prompt that comes and one that goes."""
    if number == 0:
        return payload([{"type": "AllBlocksCleared"}])
    first = (place << 32) + number * BLOCKS_A_BATCH
    events = [stored(first)]
    if number > 1:
        events.append(removed(first - BLOCKS_A_BATCH))
    return payload(events)


@define
class Fleet:
    """The sockets of all publishers, and what each sends next."""

    publishers: int
    gaps_per_s: float
    context: zmq.Context[zmq.Socket[bytes]] = field(factory=lambda: zmq.Context(2))
    sockets: list[zmq.Socket[bytes]] = field(factory=list)
    next_number: list[int] = field(init=False)
    router: zmq.Socket[bytes] = field(init=False)
    gaps: int = 0
    huge_frames: int = 0
    _huge: bytes = b""
    _asks: bytes | None = None
    """Who asked for the replay that never ends."""
    replayed: int = 0

    def __attrs_post_init__(self) -> None:
        self.next_number = [0] * self.publishers
        self.context.set(zmq.MAX_SOCKETS, 4 * self.publishers + 16)
        for _ in range(self.publishers):
            self.sockets.append(self._bound(zmq.PUB))
        self.router = self._bound(zmq.ROUTER)
        self._huge = msgspec.msgpack.encode([1.0, [], 0, bytes(HUGE_BYTES)])

    def _bound(self, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        # What the watch does not read yet is not to be dropped here, which would be fewer gaps.
        socket.setsockopt(zmq.SNDHWM, 0)
        socket.bind("tcp://127.0.0.1:*")
        return socket

    def places(self, dead_port: int) -> str:
        """The file of publishers for `--discover`."""
        ends = [each.getsockopt_string(zmq.LAST_ENDPOINT) for each in self.sockets]
        ends[GAPS] += f" tcp://127.0.0.1:{dead_port}"
        ends[ENDLESS] += f" {self.router.getsockopt_string(zmq.LAST_ENDPOINT)}"
        return "\n".join(ends) + "\n"

    def send(self, place: int, skips: int = 0) -> None:
        """Send the next batch of a publisher, after some that it does not send."""
        number = self.next_number[place] + skips
        self.sockets[place].send_multipart(
            (b"kv", number.to_bytes(8, "big"), batch_of(number, place))
        )
        self.next_number[place] = number + 1

    def go_on(self, over: Connection) -> None:
        """Send, each publisher in its time, until the other side says that it is over."""
        step = PERIOD_S / self.publishers
        began = time.monotonic()
        place, due, gap_due, huge_due, replay_due = 0, began, began, began, began
        while True:
            now = time.monotonic()
            while due <= now:
                if place not in (GAPS, HUGE):
                    self.send(place, skips=place == ENDLESS and self.next_number[place] > 0)
                place, due = (place + 1) % self.publishers, due + step
            while gap_due <= now:
                self.send(GAPS, skips=self.next_number[GAPS] > 0)
                self.gaps += 1
                gap_due += 1 / self.gaps_per_s
            if huge_due <= now:
                self.sockets[HUGE].send_multipart((b"kv", bytes(8), self._huge), copy=False)
                self.huge_frames += 1
                huge_due = now + HUGE_PERIOD_S
            if replay_due <= now:
                self._go_on_with_replay()
                replay_due = now + REPLAY_PERIOD_S
            if over.poll(max(0.0, min(due, gap_due, replay_due) - time.monotonic())):
                return

    def _go_on_with_replay(self) -> None:
        """Answer the last that asked with one more batch that it did not ask for."""
        while self.router.poll(0):
            self._asks = self.router.recv_multipart()[0]
        if self._asks is not None:
            self.replayed += 1
            number = self.replayed.to_bytes(8, "big")
            frames = (self._asks, b"", b"kv", number, batch_of(self.replayed, ENDLESS))
            self.router.send_multipart(frames)


def publish(control: Connection, publishers: int, gaps_per_s: float) -> None:
    """The process of the publishers: says where they are, sends, and says what it sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fleet = Fleet(publishers, gaps_per_s)
    control.send(fleet.places(free_ports(1)[0]))
    control.recv()
    fleet.go_on(control)
    control.recv()
    control.send((fleet.gaps, fleet.huge_frames, fleet.replayed))
    fleet.context.destroy(linger=0)


# --------------------------------------------------------------------------------------------------
# The watch, in a process of its own
# --------------------------------------------------------------------------------------------------


@define
class Folds:
    """How late each batch of the others was folded, and what was wrong with them."""

    lags_s: list[float] = field(factory=list)
    lost: int = 0
    accused: list[str] = field(factory=list)
    gaps_seen: int = 0
    refused: int = 0
    """Frames that are too large."""
    _last: dict[int, int] = field(factory=dict)

    def note(self, streams: Streams, arrived: Arrived, found: Sequence[Any]) -> None:
        """Note what was folded just now."""
        if arrived.source < WORST:
            counts = streams.of(arrived.source).counts
            if arrived.source == GAPS:
                self.gaps_seen = counts.gaps
            elif arrived.source == HUGE:
                self.refused = counts.malformed
            return
        self.accused += [f"{each.law_id}: {each.what}" for each in found]
        if isinstance(arrived, Frame):
            sent = streams.of(arrived.source).counts.last_timestamp or 0.0
            self.lags_s.append(time.time() - sent)
            before = self._last.get(arrived.source, arrived.sequence - 1)
            self.lost += arrived.sequence - before - 1
            self._last[arrived.source] = arrived.sequence


def watch(places: Path, into: Path) -> int:
    """`kvcanon watch` of the fleet, as its users run it, with a clock beside it."""
    folds, take = Folds(), Streams.take

    def timed(streams: Streams, arrived: Arrived) -> list[Any]:
        found = take(streams, arrived)
        folds.note(streams, arrived, found)
        return found

    setattr(Streams, "take", timed)  # noqa: B010  # A clock in place of a method.
    try:
        return kvcanon(["watch", "--discover", str(places), "--json"])
    finally:
        into.write_text(json.dumps(asdict(folds)), encoding="utf-8")


# --------------------------------------------------------------------------------------------------
# Both
# --------------------------------------------------------------------------------------------------


@contextmanager
def fleet_of(publishers: int, gaps_per_s: float) -> Iterator[tuple[Connection, str]]:
    """The process of the publishers: how to speak to it, and where they are."""
    ours, theirs = get_context("spawn").Pipe()
    made = get_context("spawn").Process(
        target=publish, args=(theirs, publishers, gaps_per_s), daemon=True
    )
    made.start()
    try:
        yield ours, ours.recv()
    finally:
        made.terminate()
        made.join()


def run(publishers: int, seconds: float, gaps: int, how: signal.Signals) -> FleetRun:
    """Watch the fleet for so long, then send the signal."""
    with TemporaryDirectory() as folder, fleet_of(publishers, gaps / seconds) as (control, where):
        places, into = Path(folder) / "publishers", Path(folder) / "folds.json"
        places.write_text(where, encoding="utf-8")
        command = [sys.executable, "-m", MODULE]
        with ExitStack() as stack:
            lines = stack.enter_context((Path(folder) / "lines").open("wb"))
            watching = stack.enter_context(
                subprocess.Popen([*command, "--watch", str(places), str(into)], stdout=lines)
            )
            stack.callback(watching.kill)
            start_bytes = _settled(watching)
            control.send("begin")
            began, spent, most = time.monotonic(), _cpu_s(watching.pid), start_bytes
            while time.monotonic() - began < seconds and watching.poll() is None:
                most = max(most, resident_bytes(watching.pid))
                time.sleep(0.1)
            spent = (_cpu_s(watching.pid) - spent) / (time.monotonic() - began)
            told = time.monotonic()
            watching.send_signal(how)
            code = watching.wait(60)
            end_s = time.monotonic() - told
        control.send("over")
        control.send("and")
        made_gaps, huge_frames, replayed = control.recv()
        folds = json.loads(into.read_text("utf-8"))
    lags = sorted(1000 * each for each in folds["lags_s"])
    held = publishers * 2 * BLOCKS_A_BATCH
    return FleetRun(
        signal=how.name,
        publishers=publishers,
        seconds=seconds,
        gaps=made_gaps,
        huge_frames=huge_frames,
        batches=len(lags),
        lost=folds["lost"],
        lag_ms={"p50": statistics.median(lags), "p99": _at(lags, 0.99), "most": lags[-1]},
        accused=len(folds["accused"]),
        gaps_seen=folds["gaps_seen"],
        replayed=replayed,
        refused=folds["refused"],
        watch_cpu=spent,
        start_bytes=start_bytes,
        most_bytes=most,
        bound_bytes=start_bytes + HELD_BYTES + BYTES_A_BLOCK * held + WORST * LEDGER_BYTES,
        end_s=end_s,
        exit_code=code,
    )


def _settled(watching: subprocess.Popen[bytes]) -> int:
    """The memory of a watch once it is connected to all, and uses no more from look to look."""
    ends, before = time.monotonic() + START_S, 0
    while time.monotonic() < ends and watching.poll() is None:
        time.sleep(2.0)
        now = resident_bytes(watching.pid)
        if before and now <= before + (1 << 20):
            return now
        before = now
    sys.exit("the watch does not start")


def _cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _at(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Watch a fleet whose worst do their worst.")
    parser.add_argument("--publishers", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each of the two signals")
    parser.add_argument("--gaps", type=int, default=10_000, help="of one publisher, in that time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--watch", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.watch is not None:
        return watch(*given.watch)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
    runs = [
        run(given.publishers, given.seconds, given.gaps, how)
        for how in (signal.SIGINT, signal.SIGTERM)
    ]
    for each in runs:
        print(
            f"{each.signal}: {each.batches:,} batches of {each.publishers - WORST} publishers "
            f"folded after {each.lag_ms['p50']:.1f} ms (p99 {each.lag_ms['p99']:.1f}, most "
            f"{each.lag_ms['most']:.0f}), {each.lost} lost; beside {each.gaps:,} gaps and "
            f"{each.huge_frames} frames of 100 MB; {each.watch_cpu:.2f} cores; "
            f"{each.most_bytes >> 20} MiB at most, {each.start_bytes >> 20} at the start; ended "
            f"{each.end_s:.2f} s after the signal",
            flush=True,
        )
    if given.json is not None:
        value = with_run({"fleet": [asdict(each) for each in runs]}, command=_command())
        given.json.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    missed = [f"{each.signal}: {words}" for each in runs for words in each.missed]
    for words in missed:
        print(f"missed: {words}", file=sys.stderr)
    return 1 if missed else 0


def _command() -> str:
    return " ".join([f"python -m {MODULE}", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
