"""Real servers over kvcanon's disk: what one wrote, the next must read, or leave alone.

A server writes the pages of a few prompts, stock with SGLang's own tree core or with kvcanon's.
Then servers are started over copies of its folder: the same model, other weights under the same
path, another dtype, a slab with damage, a slab that was cut. Each must answer as a server without
storage does; the same model must find its pages, and no other must find any.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from attrs import frozen

from kvcanon.conformance.errors import UsageError
from kvcanon.lab.servers.http_client import ask
from kvcanon.lab.servers.runs import EngineRuns
from kvcanon.lab.servers.script import Tokens
from kvcanon.lab.servers.server_process import RunningServer, running
from kvcanon.lab.servers.server_setup import (
    NO_CACHE,
    NO_HOST,
    PAGE_SIZE,
    RUST,
    WRITE_THROUGH,
    ServerSetup,
)
from kvcanon.lab.servers.tiny_model import FULL_MODEL, VOCABULARY, GreedyOracle, make_model

PROMPTS = 3
PROMPT_TOKENS = 200
REPLY_TOKENS = 8
FOUND_TOKENS = 196
"""What of a prompt is found: its last token is always computed, and with it its page."""
SLOT_BYTES = 4096
"""The slot of a page of the tiny model."""
EVERY = 7
"""One page of so many is damaged."""
WRITTEN_SECONDS = 60.0
BFLOAT16 = ("--dtype", "bfloat16")


@frozen
class StoredRow:
    """A server over the folder that another wrote."""

    name: str
    least: int = 0
    most: int = 0
    """How many tokens of all prompts it finds on the disk."""
    harm: Callable[[Path], None] | None = None
    """What is done to the slab before it starts."""
    flags: tuple[str, ...] = ()
    other_weights: bool = False


def half_zeroed(slab: Path) -> None:
    """Zero half of every seventh slot."""
    with slab.open("r+b") as file:
        for at in range(0, slab.stat().st_size, EVERY * SLOT_BYTES):
            file.seek(at + SLOT_BYTES // 4)
            file.write(bytes(SLOT_BYTES // 4))


def cut(slab: Path) -> None:
    """Cut a slab to half of what is written in it."""
    with slab.open("r+b") as file:
        file.truncate(SLOT_BYTES * PROMPTS * PROMPT_TOKENS // PAGE_SIZE // 2)


ALL = PROMPTS * FOUND_TOKENS
ROWS = (
    StoredRow("same model", ALL, ALL),
    StoredRow("other weights", other_weights=True),
    StoredRow("other dtype", flags=BFLOAT16),
    StoredRow("half zeroed", 0, ALL - PROMPTS * PAGE_SIZE, half_zeroed),
    StoredRow("cut", 1, ALL - PROMPTS * PAGE_SIZE, cut),
)


@frozen
class _Stored:
    """A run of all rows."""

    runs: EngineRuns
    core: str
    """The tree core of the servers with storage."""
    prompts: tuple[Tokens, ...]

    @property
    def folder(self) -> Path:
        """Where its folders and logs are."""
        return self.runs.folder / f"stored-{self.core}"

    @property
    def disk(self) -> Path:
        """The folder that the first server wrote."""
        return self.folder / "disk"

    def setup(self, flags: tuple[str, ...], folder: Path | None) -> ServerSetup:
        """A server over a folder or without storage."""
        if folder is None:
            return ServerSetup(FULL_MODEL, NO_CACHE, NO_HOST, flags=flags)
        extra = {
            "backend_name": "kvcanon",
            "module_path": "kvcanon.disk.sglang_storage",
            "class_name": "DiskStorage",
            "interface_v1": 1,
            "folder": str(folder),
            "size_gb": 0.5,
            "prefetch_threshold": 16,
            "hicache_storage_pass_prefix_keys": True,
        }
        storage = (
            *("--hicache-storage-backend", "dynamic"),
            *("--hicache-storage-prefetch-policy", "wait_complete"),
            *("--hicache-storage-backend-extra-config", json.dumps(extra)),
        )
        return ServerSetup(
            FULL_MODEL, self.core, WRITE_THROUGH, flags=(*storage, *flags), events=False
        )

    def answers(
        self, name: str, flags: tuple[str, ...], folder: Path | None, *, writes: bool = False
    ) -> tuple[list[Tokens], int]:
        """The replies of a server to all prompts, and how many tokens it had on the disk."""
        own = self.folder / name.replace(" ", "-")
        own.mkdir(parents=True, exist_ok=True)
        setup = self.setup(flags, folder)
        with running(setup, self.runs.folder / FULL_MODEL, own) as server:
            replies = [_generate(server, prompt) for prompt in self.prompts]
            if writes and folder is not None:
                _wait_until_written(folder)
        found = sum(
            (each["meta_info"].get("cached_tokens_details") or {}).get("storage", 0)
            for each in replies
        )
        return [tuple(each["output_ids"]) for each in replies], found


def run_stored(runs: EngineRuns, cores: Sequence[str] = (RUST,), only: str = "") -> list[str]:
    """Play all rows to servers of each core; returns what was wrong, in words."""
    return [words for core in cores for words in _rows(runs, core, only)]


def _rows(runs: EngineRuns, core: str, only: str) -> list[str]:
    """Play all rows to servers of one core."""
    rng = random.Random(runs.seed)
    prompts = tuple(
        tuple(rng.randrange(3, VOCABULARY) for _ in range(PROMPT_TOKENS)) for _ in range(PROMPTS)
    )
    stored = _Stored(runs, core, prompts)
    weights = {False: runs.seed, True: runs.seed + 1}
    expected = _expected(stored, weights[False])
    wrong = []
    replies, found = stored.answers("writer", (), stored.disk, writes=True)
    wrong += _judged(f"{core} writer", replies, expected, found, StoredRow("writer"), runs)
    for row in ROWS:
        if only not in row.name:
            continue
        folder = stored.folder / f"disk-{row.name.replace(' ', '-')}"
        shutil.copytree(stored.disk, folder)
        if row.harm is not None:
            (slab,) = folder.glob("*/slab")
            row.harm(slab)
        right = _expected(stored, weights[row.other_weights])
        if row.flags:
            right, _ = stored.answers(f"{row.name} without storage", row.flags, None)
        try:
            replies, found = stored.answers(row.name, row.flags, folder)
        except UsageError as death:
            wrong.append(f"{core} {row.name}: {death}")
            continue
        wrong += _judged(f"{core} {row.name}", replies, right, found, row, runs)
    return wrong


def _expected(stored: _Stored, seed: int) -> list[Tokens]:
    """Put the model of a seed at its usual path, and continue all prompts by transformers.

    A model is written once, and keeps its times: they are part of what its weights are known by.
    """
    folder = stored.runs.folder
    model, written = make_model(FULL_MODEL, seed), folder / f"{FULL_MODEL}-{seed}"
    if not written.exists():
        model.save_pretrained(written)
    shutil.rmtree(folder / FULL_MODEL, ignore_errors=True)
    shutil.copytree(written, folder / FULL_MODEL)
    oracle = GreedyOracle(model)
    return [oracle(prompt, REPLY_TOKENS) for prompt in stored.prompts]


def _judged(  # noqa: PLR0917  # A row, and what came of it.
    name: str,
    replies: list[Tokens],
    right: list[Tokens],
    found: int,
    row: StoredRow,
    runs: EngineRuns,
) -> list[str]:
    """What was wrong of a row, in words."""
    equal = sum(
        reply[: len(wanted)] == wanted for reply, wanted in zip(replies, right, strict=True)
    )
    runs.say(f"{name}: {equal} of {len(right)} replies right, {found} tokens from the disk")
    wrong = []
    if equal < len(right):
        wrong.append(f"{name}: {len(right) - equal} replies are wrong")
    if not row.least <= found <= row.most:
        wrong.append(f"{name}: {found} tokens from the disk, not {row.least} to {row.most}")
    return wrong


def _generate(server: RunningServer, prompt: Tokens) -> Mapping[str, Any]:
    """Ask for a greedy reply."""
    body = {
        "input_ids": list(prompt),
        "sampling_params": {"temperature": 0, "max_new_tokens": REPLY_TOKENS},
    }
    reply: Mapping[str, Any] = json.loads(ask(server.ports.http, "POST", "/generate", body))
    return reply


def _wait_until_written(folder: Path) -> None:
    """Wait until the journal has the pages of all prompts."""
    records = PROMPTS * FOUND_TOKENS // PAGE_SIZE
    until = monotonic() + WRITTEN_SECONDS
    while monotonic() < until:
        if sum(each.stat().st_size for each in folder.glob("*/journal")) // 128 > records:
            sleep(1.0)
            return
        sleep(0.2)
    raise UsageError(f"the server did not write {records} pages in {WRITTEN_SECONDS:.0f} s")
