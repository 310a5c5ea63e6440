"""NVIDIA Dynamo's indexer, as a process that follows a publisher and is asked for overlaps."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from attrs import define, field, frozen

from kvcanon.lab.releases.environment import Peer
from kvcanon.live import Publisher
from kvcanon.spec.events import BlockRemoved, BlockStored, Event
from kvcanon.spec.hashing import namespace_seed, page_hashes
from kvcanon.spec.types import DEFAULT_NAMESPACE, GPU, Medium, Namespace

RELEASE = "ai-dynamo-runtime==1.6.1"
MODEL = "model"
WORKER = 1
PATIENCE_S = 60.0
SALT_TAG = "dynamo-cache-salt:"
"""What a salt must begin with to be known in the events of vLLM, which name salts as bare texts."""
FENCE_TOKEN = 1 << 30
"""No prompt has tokens from here on."""


@frozen
class TierOverlap:
    """Tokens of a prompt that are cached: on the device, and there or on the host."""

    device: int
    anywhere: int


@define
class DynamoIndexer:
    """An indexer that follows one publisher, whose stream it fences to know when it has read it."""

    sender: Publisher
    page_size: int
    connection: HTTPConnection
    rank: int = 0
    fences: int = 0
    _standing: list[Event] = field(factory=list)
    """The removes of the fence that stands."""

    def overlap(
        self, tokens: npt.NDArray[np.uint32] | list[int], namespace: Namespace = DEFAULT_NAMESPACE
    ) -> TierOverlap:
        """What the indexer believes of a prompt."""
        body: dict[str, Any] = {"model_name": MODEL, "token_ids": list(map(int, tokens))}
        if namespace.cache_salt is not None:
            body["cache_salt"] = namespace.cache_salt.removeprefix(SALT_TAG)
        if namespace.lora is not None:
            body["lora_name"] = namespace.lora
        found = self.ask("/query", body)["instances"].get(str(WORKER), {})
        device = found.get("dp", {}).get(str(self.rank), 0)
        assert device == found.get("gpu", 0), found
        return TierOverlap(device, found.get("cpu", 0))

    def ask(self, path: str, body: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON.
        """Post a request, and return its answer. Raises: HTTPException, OSError."""
        self.connection.request(
            "POST", path, msgspec.json.encode(body), {"Content-Type": "application/json"}
        )
        response = self.connection.getresponse()
        answer = response.read()
        if response.status not in {200, 201}:
            raise HTTPException(f"{path} answered {response.status}: {answer[:200]!r}")
        return json.loads(answer)

    def join(self) -> None:
        """Publish until the indexer receives it; from then on it misses nothing.

        What was published before, it gets by a replay.
        """
        ends = monotonic() + PATIENCE_S
        while not self._is_seen(self._fence(), 0.2):
            assert monotonic() < ends, "the indexer receives nothing"

    def catch_up(self) -> None:
        """Wait until the indexer has read all that was published."""
        assert self._is_seen(self._fence(), PATIENCE_S), "the indexer does not keep up"

    def _fence(self) -> list[int]:
        """Publish a prompt of two pages that nobody else has, and remove the one before.

        One page is stored on the device and one on the host, since the indexer has a queue for
        each.
        """
        self.fences += 1
        first = FENCE_TOKEN + 2 * self.fences
        pages = [(first,) * self.page_size, (first + 1,) * self.page_size]
        hashes = page_hashes(namespace_seed(DEFAULT_NAMESPACE), pages)
        stores = [
            BlockStored(hashes[0], None, pages[0], GPU, DEFAULT_NAMESPACE),
            BlockStored(hashes[1], hashes[0], pages[1], Medium.CPU, DEFAULT_NAMESPACE),
        ]
        self.sender.publish([*self._standing, *stores])
        self._standing = [BlockRemoved(hashes[1], Medium.CPU), BlockRemoved(hashes[0], GPU)]
        return [token for page in pages for token in page]

    def _is_seen(self, fence: list[int], patience_s: float) -> bool:
        wanted = TierOverlap(self.page_size, 2 * self.page_size)
        ends = monotonic() + patience_s
        while self.overlap(fence) != wanted:
            if monotonic() > ends:
                return False
            sleep(0.0005)
        return True


@contextmanager
def dynamo_indexer(
    peer: Peer, sender: Publisher, page_size: int, log: Path, rank: int = 0
) -> Iterator[DynamoIndexer]:
    """Start an indexer that follows a publisher, and end it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(peer.python), "-m", "dynamo.indexer", "--port", str(port), "--threads", "1"]
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, env=peer.variables | {"DYN_LOG": "warn"}, stdout=written, stderr=written
        )
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        _wait(port, process, log)
        indexer = DynamoIndexer(sender, page_size, connection, rank)
        indexer.ask(
            "/register",
            {
                "instance_id": WORKER,
                "dp_rank": rank,
                "endpoint": sender.endpoint,
                "replay_endpoint": sender.replay_endpoint,
                "model_name": MODEL,
                "block_size": page_size,
            },
        )
        indexer.join()
        yield indexer
    finally:
        connection.close()
        process.kill()
        process.wait()


def _wait(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    ends = monotonic() + PATIENCE_S
    while monotonic() < ends:
        assert process.poll() is None, log.read_text(encoding="utf-8")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            sleep(0.05)
        else:
            return
    raise AssertionError(f"the indexer does not start (log: {log})")
