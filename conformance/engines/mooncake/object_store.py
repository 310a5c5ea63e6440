"""Mooncake Store as a store of pages: an object for each page, over TCP on this machine.

The ground starts a master and a process that provides the memory, both on the loopback address.
Each writer is a client in a process of its own, without memory of its own. Names have the number of
the case in front: a lease keeps an object for seconds after it was read, so that an old case's
objects cannot be removed at once. For the same reason removals are not offered.

A client waits 30 s for a provider that is stopped, and promises no deadline; a check would take
hours, so the server is not stopped here.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attrs import define, evolve, field

from kvcanon.conformance.engines.installed_names import EngineObject, InstalledNames
from kvcanon.conformance.engines.key_value.page_names import name_of
from kvcanon.conformance.errors import UsageError
from kvcanon.conformance.stores.adapter import StoreAdapter, StoreGround, StoreOffer
from kvcanon.conformance.workers.ending import tied
from kvcanon.spec.stores.calls import Ability
from kvcanon.spec.stores.page_store import PageStore
from kvcanon.spec.stores.pages import PageKey, StoreIdentity

NAMES = InstalledNames(
    "mooncake-transfer-engine-non-cuda",
    "Mooncake",
    "",
    {"MooncakeDistributedStore": "mooncake.store"},
)
NAMES.version()
NAMES["MooncakeDistributedStore"]  # A copy of this process then has it.

LOCAL = "127.0.0.1"
SEGMENT_BYTES, BUFFER_BYTES = 512 << 20, 16 << 20
STARTS_SECONDS = 20.0
PROVIDER = """
import sys, time
from mooncake.store import MooncakeDistributedStore
store = MooncakeDistributedStore()
code = store.setup(*sys.argv[1:3], int(sys.argv[3]), int(sys.argv[4]), "tcp", "", sys.argv[5])
print("ready" if code == 0 else f"setup gave {code}", flush=True)
time.sleep(100_000)
"""
"""A process that provides memory, and prints `ready`."""


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    with socket.socket() as taken:
        taken.bind((LOCAL, 0))
        port: int = taken.getsockname()[1]
        return port


@define(eq=False)
class MooncakePages:
    """A `PageStore` around a client."""

    master: str
    case: int
    identity: StoreIdentity
    client: EngineObject = field(init=False)

    def __attrs_post_init__(self) -> None:
        # The client logs every call, in the process that is the judge's copy.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        self.client = NAMES["MooncakeDistributedStore"]()
        here = f"{LOCAL}:{free_port()}"
        code = self.client.setup(here, "P2PHANDSHAKE", 0, BUFFER_BYTES, "tcp", "", self.master)
        if code:
            raise RuntimeError(f"setup gave {code}")

    def put(self, pages: Sequence[tuple[PageKey, bytes]]) -> list[bool]:
        """Put an object for each page."""
        return [self.client.put(self.name_of(key), content) == 0 for key, content in pages]

    def get(self, pages: Sequence[tuple[PageKey, memoryview]]) -> list[int | None]:
        """Get each object, and copy it; an absent one is empty."""
        return [_fill(buffer, self.client.get(self.name_of(key))) for key, buffer in pages]

    def exists(self, keys: Sequence[PageKey]) -> list[bool]:
        """Ask for all objects at once."""
        return [each == 1 for each in self.client.batch_is_exist([*map(self.name_of, keys)])]

    def leading_run(self, keys: Sequence[PageKey]) -> int:
        """How many pages from the first on have an object in every pool."""
        wanted = [evolve(key, pool=pool) for key in keys for pool in self.identity.pools]
        there = self.exists(wanted)
        missing = there.index(False) if False in there else len(there)
        return missing // len(self.identity.pools)

    def remove(self, keys: Sequence[PageKey]) -> None:
        """It is not offered."""
        raise NotImplementedError

    def close(self) -> None:
        """The end of the process closes the client, without the second that a close takes."""

    def name_of(self, key: PageKey) -> str:
        """The name of the object of a page."""
        return f"{self.case}/{name_of(self.identity, key).hex()}"


def _fill(buffer: memoryview, value: bytes) -> int | None:
    if not value or len(value) > len(buffer):
        return None
    buffer[: len(value)] = value
    return len(value)


@define
class MooncakeGround:
    """A master and a provider that are started for a check."""

    master: str
    processes: Sequence[subprocess.Popen[bytes]] = ()
    """The master, and the provider of memory."""
    case: int = 0

    def open(self, identity: StoreIdentity, capacity_bytes: int | None) -> PageStore:  # noqa: ARG002
        """Set up a client."""
        return MooncakePages(self.master, self.case, identity)

    def empty(self) -> None:
        """Use new names from now on."""
        self.case += 1

    def used_bytes(self) -> None:
        """Unknown: the server does not count bytes by case."""

    def files_of(self, identity: StoreIdentity, key: PageKey) -> Sequence[Path]:  # noqa: ARG002
        """There are none."""
        return ()

    def stall(self) -> None:
        """It is not offered."""

    def resume(self) -> None:
        """It is not offered."""


@contextmanager
def _ground(folder: Path) -> Iterator[StoreGround]:
    beside = Path(sys.executable).with_name("mooncake_master")
    port = free_port()
    master = f"{LOCAL}:{port}"
    words = [f"--rpc_address={LOCAL}", f"--rpc_port={port}", f"--metrics_port={free_port()}"]
    arguments = [shutil.which("mooncake_master") or str(beside), *words, f"--metrics_host={LOCAL}"]
    with (folder / "mooncake.log").open("wb") as log:
        processes = [_started(arguments, log.fileno(), folder)]
        try:
            _wait_for_port(port)
            here = f"{LOCAL}:{free_port()}"
            settings = [here, "P2PHANDSHAKE", SEGMENT_BYTES, BUFFER_BYTES, master]
            command = [sys.executable, "-c", PROVIDER, *map(str, settings)]
            processes.append(_started(command, log.fileno(), folder))
            answers = processes[-1].stdout
            line = b"" if answers is None else answers.readline().strip()
            if line != b"ready":
                said = line.decode() or "it ended"
                raise UsageError(f"Mooncake's provider does not start: {said}")
            yield MooncakeGround(master, processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()
                if process.stdout is not None:
                    process.stdout.close()


def _started(arguments: Sequence[str], log: int, folder: Path) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603  # Our own arguments.
            arguments,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=log,
            preexec_fn=tied(),  # noqa: PLW1509
        )
    except OSError as error:
        raise UsageError(f"{arguments[0]} cannot be started: {error.strerror}") from error


def _wait_for_port(port: int) -> None:
    """Wait until somebody listens. Raises: UsageError."""
    until = time.monotonic() + STARTS_SECONDS
    while time.monotonic() < until:
        with socket.socket() as tried:
            if tried.connect_ex((LOCAL, port)) == 0:
                return
        time.sleep(0.05)
    raise UsageError("mooncake_master does not answer; start it by hand to see why")


MOONCAKE = StoreAdapter(
    f"mooncake {NAMES.version()}",
    _ground,
    StoreOffer(
        frozenset(
            {
                Ability.DURABLE,
                Ability.SHARED,
                Ability.RUNS,
                Ability.POOLS,
                Ability.NAMESPACES,
            }
        )
    ),
)
