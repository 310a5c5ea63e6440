"""Real servers of the external tier, on the loopback address: Redis, and Mooncake's two processes.

They end with the test that started them, and each by its own id. `stop` lets a server's process
stand still, as a machine that hangs; `kill` ends it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from attrs import define, field
from redis import Redis
from redis.exceptions import RedisError

from fast.stores import wait_until
from kvcanon.conformance.workers.ending import tied

LOCAL = "127.0.0.1"
SEGMENT_BYTES, BUFFER_BYTES = 64 << 20, 16 << 20
PROVIDER = """
import sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
here, segment, buffer, master = sys.argv[1:]
code = store.setup(here, "P2PHANDSHAKE", int(segment), int(buffer), "tcp", "", master)
print("ready" if code == 0 else f"setup gave {code}", flush=True)
time.sleep(100_000)
"""


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        port: int = taken.getsockname()[1]
        return port


@define(eq=False)
class ServerProcess:
    """A process that is started for a test, and may be stopped, killed and started again."""

    arguments: list[str]
    folder: Path
    answers: Callable[[subprocess.Popen[bytes]], bool]
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.arguments,
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                preexec_fn=tied(),  # noqa: PLW1509
            )
        wait_until(lambda: self.answers(self.process))

    def stop(self) -> None:
        """Let it stand still; returns when it does."""
        os.kill(self.process.pid, signal.SIGSTOP)
        state = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")

    def go_on(self) -> None:
        """Let it go on."""
        os.kill(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.go_on()
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def started(server: ServerProcess) -> Iterator[ServerProcess]:
    """A server from its start to its end."""
    server.start()
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def redis_server(folder: Path) -> Iterator[tuple[ServerProcess, str]]:
    """A Redis on a socket in a folder, and its address."""
    program = shutil.which("redis-server")
    assert program, "there is no redis-server; install Debian's package `redis-server`"
    path = folder / "redis.sock"
    plain = ["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket", str(path)]

    def answers(_: subprocess.Popen[bytes]) -> bool:
        try:
            with Redis(unix_socket_path=str(path)) as client:
                return bool(client.ping())
        except RedisError:
            return False

    with started(ServerProcess([program, *plain], folder, answers)) as server:
        yield server, f"unix://{path}"


@define(eq=False)
class MooncakeServers:
    """A master, and a process that provides the memory."""

    master: ServerProcess
    provider: ServerProcess
    address: str


@contextmanager
def mooncake_servers(folder: Path) -> Iterator[MooncakeServers]:
    """Mooncake's processes; its ports for figures are on the loopback address, too."""
    port = free_port()
    address = f"{LOCAL}:{port}"
    beside = Path(sys.executable).with_name("mooncake_master")
    words = [f"--rpc_address={LOCAL}", f"--rpc_port={port}"]
    figures = [f"--metrics_host={LOCAL}", f"--metrics_port={free_port()}"]
    settings = [f"{LOCAL}:{free_port()}", str(SEGMENT_BYTES), str(BUFFER_BYTES), address]

    def listens(_: subprocess.Popen[bytes]) -> bool:
        with socket.socket() as tried:
            return tried.connect_ex((LOCAL, port)) == 0

    def is_ready(process: subprocess.Popen[bytes]) -> bool:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line == b"ready", line.decode() or "Mooncake's provider does not start"
        return True

    with ExitStack() as stack:
        master = ServerProcess([str(beside), *words, *figures], folder, listens)
        provider = ServerProcess([sys.executable, "-c", PROVIDER, *settings], folder, is_ready)
        stack.enter_context(started(master))
        stack.enter_context(started(provider))
        yield MooncakeServers(master, provider, address)
